"""distributed beside torch's: names, arguments, sampler orders, and one training run over gloo."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import flambeau

ROOT = Path(__file__).resolve().parents[2]
needs_mpi = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None,
                               reason="needs flambeau[distributed]")

FUNCTIONS = """
    init_process_group destroy_process_group get_rank get_world_size get_backend is_initialized
    barrier broadcast all_reduce reduce all_gather all_gather_into_tensor gather scatter
    reduce_scatter reduce_scatter_tensor all_to_all all_to_all_single send recv isend irecv
    batch_isend_irecv all_gather_object gather_object broadcast_object_list scatter_object_list
    new_group get_global_rank get_group_rank get_process_group_ranks monitored_barrier
""".split()


def arguments(function):
    """Names and defaults; a default that is an enum, by its name."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        default = parameter.default
        named = re.search(r"\.([A-Z_]+)", repr(default))
        found[name] = named[1] if named and default is not parameter.empty else default
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments(name):
    ours, theirs = (arguments(getattr(library.distributed, name)) for library in (flambeau, torch))
    empty = inspect.Parameter.empty
    shared = {key: default for key, default in theirs.items() if not key.startswith("_")}
    assert [key for key in ours if key in shared] == list(shared)
    for key, default in shared.items():
        if isinstance(default, (int, str, bool, type(None))) and default is not empty:
            assert ours[key] == default, key


@pytest.mark.parametrize("name", ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"])
def test_reduce_ops(name):
    ours, theirs = getattr(flambeau.distributed.ReduceOp, name), getattr(torch.distributed.ReduceOp,
                                                                        name)
    assert int(ours) == int(theirs)


def test_options_of_the_wrappers():
    from torch.distributed.fsdp import FullyShardedDataParallel as theirs_fsdp

    from flambeau.distributed.fsdp import FullyShardedDataParallel as ours_fsdp

    pairs = [(flambeau.nn.parallel.DistributedDataParallel, torch.nn.parallel
              .DistributedDataParallel), (ours_fsdp, theirs_fsdp)]
    rare = {"delay_all_reduce_named_params", "param_to_hook_all_reduce", "mixed_precision",
            "device_mesh"}
    for ours, theirs in pairs:
        known, wanted = (set(inspect.signature(each).parameters) for each in (ours, theirs))
        assert wanted - known <= rare


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize(("length", "replicas"), [(10, 3), (7, 4), (2, 5), (12, 4)])
def test_sampler_orders(shuffle, drop_last, length, replicas):
    for rank in range(replicas):
        orders = []
        for library in (flambeau, torch):
            sampler = library.utils.data.distributed.DistributedSampler(
                range(length), replicas, rank, shuffle, seed=3, drop_last=drop_last)
            sampler.set_epoch(2)
            orders.append((list(sampler), len(sampler)))
        assert orders[0] == orders[1]


PROGRAM = '''
import importlib, os, sys
library = os.environ["LIBRARY"]
torch = importlib.import_module(library)
dist = importlib.import_module(library + ".distributed")
nn = torch.nn
from_parallel = importlib.import_module(library + ".nn.parallel")
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
model = from_parallel.DistributedDataParallel(model)
data = torch.utils.data.TensorDataset(torch.randn(24, 6), torch.randint(0, 3, (24,)))
sampler = torch.utils.data.distributed.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        if rank == 0:
            print(f"{float(total) / size:.9f}", flush=True)
if rank == 0:
    print(*(f"{float(p.double().sum()):.9f}" for p in model.state_dict().values()), sep="\\n")
    print(*model.state_dict(), sep="\\n")
dist.destroy_process_group()
'''


@needs_mpi
def test_a_training_run_is_torchs(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    starters = {"flambeau": ["-m", "flambeau.cli", "launch", "-n", "2"],
                "torch": ["-m", "torch.distributed.run", "--nproc-per-node", "2"]}
    results = {}
    for library, starter in starters.items():
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, *starter, str(program)], capture_output=True, text=True,
                timeout=300, cwd=ROOT, env={**os.environ, "LIBRARY": library,
                                            "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)})
            # A process of torch's now and then aborts when it ends, beside a busy machine.
            if library == "flambeau" or done.returncode == 0:
                break
        assert done.returncode == 0, done.stderr
        results[library] = done.stdout.split()
    ours, theirs = results["flambeau"], results["torch"]
    numbers = [place for place, word in enumerate(theirs) if word[-1].isdigit()]
    assert [float(ours[n]) for n in numbers] == pytest.approx(
        [float(theirs[n]) for n in numbers], abs=2e-5)
    names = [word for word in theirs if not word[-1].isdigit()]
    assert [word for word in ours if not word[-1].isdigit()] == names
