"""Tensors between processes: by memory that both see, under any start method; nothing stays."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import flambeau as torch
import flambeau.multiprocessing as mp
from flambeau import nn
from flambeau.multiprocessing import parcels

pytestmark = pytest.mark.skipif(os.name != "posix", reason="shared files")


def names_in_memory():
    """What this program's processes have in shared memory under a name."""
    return [name for name in os.listdir("/dev/shm") if parcels.session() in name]


def test_share_memory_moves_all_that_look_at_it():
    x = torch.arange(6.).reshape(2, 3)
    row, storage, version = x[1], x.untyped_storage(), x._version
    assert not x.is_shared()
    assert x.share_memory_() is x and x.is_shared() and row.is_shared() and storage.is_shared()
    row.fill_(9.)
    assert x.tolist() == [[0, 1, 2], [9, 9, 9]] and storage.data_ptr() == x.data_ptr()
    assert x._version > version and x.untyped_storage().nbytes() == 24
    address = x.data_ptr()
    assert x.share_memory_().data_ptr() == address


def test_gradients_survive_sharing():
    x = torch.ones(3, requires_grad=True)
    y = (x * x).sum()
    x.share_memory_()
    y.backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_modules_share_what_they_have():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).share_memory()
    assert all(x.is_shared() for x in model.state_dict().values())
    assert model(torch.ones(3, 2)).shape == (3, 2)


def work(jobs, results, wait):
    for x in iter(jobs.get, None):
        x[0] = 42
        results.put({"sum": x.sum(), "parameter": nn.Parameter(x), "view": [x[1:]]})
    results.put(torch.full((1000,), 5.))
    if wait:
        jobs.get(timeout=60)


@pytest.mark.parametrize("strategy", ["file_system", "file_descriptor"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_queues_pass_memory(method, strategy):
    before, _ = mp.get_sharing_strategy(), mp.set_sharing_strategy(strategy)
    try:
        context = mp.get_context(method)
        jobs, results = context.Queue(), context.Queue()
        process = context.Process(target=work, args=(jobs, results, strategy != "file_system"))
        process.start()
        x = torch.zeros(8)
        jobs.put(x)
        found = results.get(timeout=60)
        assert x[0] == 42 and found["sum"] == 42 and found["parameter"].requires_grad
        assert found["view"][0].data_ptr() == x[1:].data_ptr()  # the same memory has come home
        found["view"][0][0] = 7
        assert x[1] == 7
        jobs.put(x[2:5])
        assert results.get(timeout=60)["sum"] == 42 and x[2] == 42
        jobs.put(None)
        if strategy == "file_system":
            process.join(60)  # what was sent stays although the sender has ended
        assert results.get(timeout=60).eq(5).all()
        jobs.put(None)
        process.join(60)
        assert process.exitcode == 0
        del x, found
        gc.collect()
        assert names_in_memory() == []
    finally:
        mp.set_sharing_strategy(before)


def test_handles_go_by_any_pickle():
    x = torch.arange(10)[::2]
    handle = pickle.loads(pickle.dumps(mp.share(x)))
    found = handle.open()
    assert found.tolist() == x.tolist() and found.stride() == (2,)
    found[0] = 99
    assert x[0] == 99


def test_a_handle_opened_twice_says_so():
    code = """
        import pickle, sys, flambeau.multiprocessing as mp
        data = sys.stdin.buffer.read()
        print(pickle.loads(data).open().tolist(), flush=True)
        try:
            pickle.loads(data).open()
        except RuntimeError as error:
            print(error)
    """
    x = torch.arange(3)
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(code)],
                           input=pickle.dumps(mp.share(x)), capture_output=True, check=True)
    first, second = found.stdout.decode().splitlines()
    assert first == "[0, 1, 2]" and "send it again" in second


def test_non_leaf_tensors_are_refused():
    x = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="non-leaf"):
        mp.share(x)


def fill(index, x, fail):
    x[index] = index + 1
    if index == fail:
        raise ValueError(f"bad {index}")
    if fail == -2:
        os.kill(os.getpid(), signal.SIGKILL)
    if fail is not None:
        time.sleep(60)


def test_spawn_runs_and_reports():
    x = torch.zeros(2).share_memory_()
    mp.spawn(fill, args=(x, None), nprocs=2)
    assert x.tolist() == [1, 2]
    begun = time.monotonic()
    with pytest.raises(mp.ProcessRaisedException, match="ValueError: bad 1") as caught:
        mp.start_processes(fill, (x, 1), nprocs=2, start_method="fork")
    assert caught.value.error_index == 1 and time.monotonic() - begun < 30
    with pytest.raises(mp.ProcessExitedException, match="SIGKILL"):
        mp.start_processes(fill, (x, -2), nprocs=1, start_method="fork")


def test_a_pool():
    with mp.get_context("fork").Pool(2) as pool:
        found = pool.map(torch.nn.functional.relu, [torch.tensor([-1., n]) for n in range(4)])
    assert [x.tolist() for x in found] == [[0, n] for n in range(4)]


def test_nothing_stays_when_a_worker_is_killed():
    code = """
        import os, signal, sys, flambeau as torch, flambeau.multiprocessing as mp
        from flambeau.multiprocessing import parcels

        def send(queue):
            for n in range(5):
                queue.put(torch.full((100,), float(n)))
            queue.close(); queue.join_thread()
            os.kill(os.getpid(), signal.SIGKILL)

        queue = mp.get_context("fork").Queue()
        process = mp.get_context("fork").Process(target=send, args=(queue,))
        process.start()
        process.join()
        assert queue.get()[0] == 0
        print(parcels.session())
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True,
                           text=True, check=True, timeout=120)
    name = found.stdout.strip()
    assert len(name) == 12 and not [each for each in os.listdir("/dev/shm") if name in each]


def test_strategies():
    assert mp.get_all_sharing_strategies() == {"file_system", "file_descriptor"}
    with pytest.raises(ValueError, match="pigeons"):
        mp.set_sharing_strategy("pigeons")


def test_open_files_do_not_grow():
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    a, b = mp.Pipe()
    a.send(torch.ones(5))
    b.recv()
    before = open_files()
    for n in range(50):
        a.send(torch.full((5,), float(n)))
        assert b.recv()[0] == n
    assert open_files() <= before + 4
