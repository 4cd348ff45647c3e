"""`flambeau run`: programs written for PyTorch, unmodified; and what is said when names miss."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau
from flambeau.cli import standin
from flambeau.cli.survey import Survey

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "tests" / "scripts_for_torch"

#: how the scripts are run: tiny, and each of the ways they offer
WAYS = [
    "gpt_trainer.py --max_iters 12", "gpt_trainer.py --max_iters 12 --compile",
    "names.py --type bigram --steps 20", "names.py --type rnn --steps 20",
    "names.py --type gru --steps 20", "names.py --type transformer --steps 20",
    "vae.py", "gan.py --outf out",
    "word_lstm.py --lr 2 --nlayers 1 --epochs 4", "word_lstm.py --model GRU --tied",
    "cnn_zoo.py --model resnet", "cnn_zoo.py --model vgg --amp", "cnn_zoo.py --model densenet",
    "cnn_zoo.py --model mobilenet", "cnn_zoo.py --model lenet", "cnn_zoo.py --model patches",
    "unet.py", "unet.py --bilinear --amp --checkpointing",
    "detection.py", "diffusion.py", "graphs.py", "llama.py", "policy_gradient.py", "translation.py",
    "years_ago.py", "physics.py", "self_supervised.py",
]


def run(arguments, folder, **environment):
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-m", "flambeau", "run", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)


def script(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("way", WAYS)
def test_scripts_for_torch(way, tmp_path):
    name, *arguments = way.split()
    done = run([SCRIPTS / name, *arguments], tmp_path)
    assert done.returncode == 0, done.stderr
    if name == "gpt_trainer.py" and not arguments[2:]:
        done = run([SCRIPTS / name, *arguments, "--resume"], tmp_path)
        assert "resumed at 12" in done.stdout, done.stderr


def test_every_name_of_the_scripts_is_known():
    survey = Survey()
    for path in SCRIPTS.glob("*.py"):
        survey.read(path)
    assert len(survey.places) > 120
    assert survey.missing() == []


def test_the_ways_to_import(tmp_path):
    path = script(tmp_path, """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim.lr_scheduler
import torch.utils.data.dataloader
from torch import Tensor, nn as again, optim
from torch.nn.utils.rnn import pad_sequence
from torch.nn.modules.linear import Linear
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset
from torch.autograd import Variable, Function
from torch.version import __version__
from torch.torch_version import TorchVersion
import flambeau

assert nn is again is torch.nn is flambeau.nn
assert Linear is nn.Linear and F.relu is torch.nn.functional.relu
assert torch.Tensor is flambeau.Tensor and isinstance(torch.ones(2), Tensor)
assert sys.argv[1:] == ["--lr", "3", "-m"], sys.argv
assert __name__ == "__main__" and sys.modules["__main__"].nn is nn
assert not [name for name in sys.modules if name.startswith("torch.") and "instead" in name]
""")
    done = run([path, "--lr", "3", "-m"], tmp_path)
    assert done.returncode == 0, done.stderr


def test_paths_behind_the_public_names(tmp_path):
    """Programs import helpers from the files where PyTorch happens to keep them."""
    path = script(tmp_path, """
import typing
import torch
from torch._tensor import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.functional import einsum, norm, unique
from torch.nn.common_types import _size_2_t, _size_any_t
from torch.nn.grad import conv2d_input, conv2d_weight
from torch.nn.modules.module import _addindent, T
from torch.nn.modules.utils import _list_with_default, _pair
from torch.nn.parallel.scatter_gather import gather, scatter_kwargs
from torch.optim.optimizer import ParamsT, required
from torch.utils.data._utils.collate import default_collate
from torch.utils.hooks import RemovableHandle
from torch.utils.model_zoo import load_url
from torch.distributed.elastic.multiprocessing.errors import record
from torch.jit.annotations import List

assert Tensor is torch.Tensor and einsum is torch.einsum
assert default_collate is torch.utils.data.default_collate
assert load_url is torch.hub.load_state_dict_from_url
assert isinstance(torch.nn.ReLU().register_forward_hook(print), RemovableHandle)
assert _addindent("a\\nb", 2) == "a\\n  b" and _list_with_default([None, 3], [7, 8, 9]) == [8, 3]
assert typing.get_args(_size_2_t) == (int, tuple[int, int])
assert "flambeau" in torch.__config__.show()
assert str(torch.get_num_threads()) in torch.__config__.parallel_info()

parts = [torch.ones(2, 3), torch.zeros(4)]
flat = _flatten_dense_tensors(parts)
assert flat.tolist() == [1] * 6 + [0] * 4
assert all(map(torch.equal, _unflatten_dense_tensors(flat, parts), parts))

x, w = torch.randn(2, 4, 7, 6, requires_grad=True), torch.randn(6, 2, 3, 3, requires_grad=True)
out = torch.nn.functional.conv2d(x, w, None, 2, 1, 1, 2)
g = torch.randn_like(out)
out.backward(g)
assert conv2d_input(x.shape, w, g, 2, 1, 1, 2).allclose(x.grad, atol=1e-5)
assert conv2d_weight(x, w.shape, g, 2, 1, 1, 2).allclose(w.grad, atol=1e-4)

import torch._dynamo
assert torch._dynamo.allow_in_graph(einsum) is einsum and torch._dynamo.graph_break() is None
torch._dynamo.mark_dynamic(parts[0], 1)
assert torch._dynamo.optimize("eager")(lambda x: x * 2)(torch.ones(1)).item() == 2

import json, os
os.environ["TORCHELASTIC_ERROR_FILE"] = "told.json"
@record
def main():
    raise ValueError("this went wrong")
try:
    main()
except ValueError:
    assert json.load(open("told.json"))["message"]["message"] == "ValueError: this went wrong"
else:
    raise SystemExit("an error was swallowed")
""")
    done = run([path], tmp_path)
    assert done.returncode == 0, done.stderr


def test_questions_about_the_installation(tmp_path):
    path = script(tmp_path, """
import torch
major, minor = (int(x) for x in torch.__version__.split(".")[:2])
assert (major, minor) >= (2, 0) and torch.__version__ >= "1.9" and torch.__version__ > "2.9.1"
assert not torch.__version__ < "2.0" and torch.__version__ >= (2, 1)
assert torch.version.cuda is None and torch.version.__version__ == torch.__version__
assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
assert not torch.backends.mps.is_available() and not torch.backends.mps.is_built()
torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("high")
assert torch.get_float32_matmul_precision() == "high"
torch.cuda.manual_seed_all(1), torch.cuda.empty_cache()
assert str(torch.device("cuda")) == "cuda" and torch.device("cuda:0").index == 0
for move in (lambda: torch.ones(2).cuda(), lambda: torch.ones(2, device="cuda"),
             lambda: torch.nn.Linear(2, 2).to("cuda")):
    try:
        move()
    except (AssertionError, RuntimeError) as error:
        assert "CUDA" in str(error)
    else:
        raise SystemExit("a tensor went to a device that is not there")
assert not hasattr(torch, "frobnicate") and hasattr(torch, "compile")
import torch._dynamo
import torch._inductor.config
torch._dynamo.config.suppress_errors = True
torch._inductor.config.coordinate_descent_tuning = True
torch._dynamo.reset()
assert torch.GradScaler is torch.amp.GradScaler
try:
    import torch.frobnication
except ImportError as error:
    assert error.name == "torch.frobnication"
""")
    done = run([path], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("line", "name"), [
    ("torch.frobnicate(1)", "torch.frobnicate"),
    ("torch.nn.functional.reluu(1)", "torch.nn.functional.reluu"),
    ("from torch.nn import Linnear", "torch.nn.Linnear"),
    ("from torch import frobnicate", "torch.frobnicate"),
    ("import torch.frobnication", "torch.frobnication"),
    ("torch.ones(2).frobnicate()", "torch.Tensor.frobnicate"),
])
def test_a_missing_name_is_told_with_its_place(line, name, tmp_path):
    path = script(tmp_path, f"import torch\n\n\ndef f():\n    {line}\n\n\nf()\n")
    done = run([path], tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"program.py:5: {name} is missing from flambeau ")
    assert line in done.stderr and "Traceback" not in done.stderr
    if "relu" in name:
        assert "nearest name is torch.nn.functional.relu" in done.stderr


def test_other_errors_are_pythons_own(tmp_path):
    path = script(tmp_path, "import torch\n\ntorch.ones(2) + torch.ones(3)\n")
    done = run([path], tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert 'program.py", line 3' in done.stderr and "cli/run.py" not in done.stderr
    assert "RuntimeError: add: The size of tensor a (2) must match" in done.stderr


def test_a_module_that_needs_torch_itself(tmp_path):
    done = run([script(tmp_path, "import torch\nimport torchaudio\n")], tmp_path)
    if "No module named 'torchaudio'" in done.stderr:
        assert "needs PyTorch itself" in done.stderr


def test_exit_codes(tmp_path):
    for code, ends in ((0, ""), (3, "import sys; sys.exit(3)"), (1, "raise SystemExit('no')"),
                       (130, "raise KeyboardInterrupt")):
        assert run([script(tmp_path, ends)], tmp_path).returncode == code
    for wrong in (["nowhere.py"], ["-m", "no.where"], [], ["-m"], ["--frob"]):
        done = run(wrong, tmp_path)
        assert done.returncode == 2 and "Traceback" not in done.stderr, wrong


def test_modules_and_packages(tmp_path):
    (tmp_path / "pack").mkdir()
    script(tmp_path / "pack", "", "__init__.py")
    script(tmp_path / "pack", "import torch\nsize = torch.Size([2])\n", "inner.py")
    script(tmp_path / "pack", "import sys\nfrom .inner import size\nprint(size, sys.argv[1:])\n",
           "__main__.py")
    for name in ("pack", "pack.__main__"):
        done = run(["-m", name, "-x"], tmp_path)
        assert done.stdout == "torch.Size([2]) ['-x']\n", done.stderr


def test_report_and_check(tmp_path):
    script(tmp_path, "import torch\nx = torch.nn.Linear\n", "beside.py")
    path = script(tmp_path, "import torch\nfrom torch import nn as n\nimport beside\n"
                            "if False:\n    torch.frobnicate(n.ReLU().weird)\n"
                            "print(torch.ones(2).sum().item())\n")
    done = run(["--report", path], tmp_path)
    assert done.returncode == 0 and done.stdout == "2.0\n"
    assert "missing from flambeau" in done.stderr
    assert re.search(r"MISSING  torch.frobnicate +program.py:5", done.stderr)
    assert re.search(r"^ +torch.nn.Linear +beside.py:2", done.stderr, re.M)
    assert re.search(r"^ +torch.nn.ReLU +program.py:5", done.stderr, re.M)
    done = run(["--check", path], tmp_path)
    assert done.returncode == 1 and "torch.frobnicate" in done.stdout
    assert "2.0" not in done.stdout


def test_processes_that_a_program_starts_find_it_too(tmp_path):
    path = script(tmp_path, """
import multiprocessing, subprocess, sys
import torch
from torch.utils.data import DataLoader, TensorDataset

def work(x):
    import torch
    return torch.__version__ + " " + str(int(x.sum()))

if __name__ == "__main__":
    code = "import torch; print(torch.ones(2).sum().item(), torch.nn.Linear.__module__)"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(work, (torch.ones(3),)))
    loader = DataLoader(TensorDataset(torch.arange(4.)), 2, num_workers=1)
    print([batch[0].tolist() for batch in loader])
""")
    done = run([path], tmp_path)
    assert done.stdout.split("\n") == [
        "2.0 flambeau.nn.modules.linear", "", "2.13.0 3", "[[0.0, 1.0], [2.0, 3.0]]", ""
    ], done.stderr


def test_the_finder_comes_and_goes(monkeypatch):
    for name in [each for each in sys.modules if each.split(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    standin.install()
    try:
        import torch
        import torch.nn

        assert torch.nn is flambeau.nn and torch.ones is flambeau.ones
        assert "ones" in dir(torch)
    finally:
        standin.remove()
    assert "torch" not in sys.modules
