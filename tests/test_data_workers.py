"""Workers of the loader: what goes wrong is told at once, memory is lent and given back, and an
interrupted epoch goes on bitwise."""

import collections
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import flambeau
from flambeau.utils import data
from flambeau.utils.data import lending, renewal

ROOT = Path(__file__).resolve().parents[1]
Pair = collections.namedtuple("Pair", "left right")


class Numbers(data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return index


class Fatal(Numbers):
    """Sample 5 ends the worker."""

    def __init__(self, n, deed):
        super().__init__(n)
        self.deed = deed

    def __getitem__(self, index):
        if index == 5:
            self.deed()
        return index


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def hang():
    time.sleep(60)


def fail():
    raise ValueError("sample five is broken")


class Noisy(Numbers):
    """Samples that hold random numbers of all three streams."""

    def __getitem__(self, index):
        return index, flambeau.rand(()), float(np.random.rand()), random.random()


class NoisyStream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        for i in range(info.id if info else 0, 20, info.num_workers if info else 1):
            yield i, flambeau.rand(()), random.random()


def plain(batch):
    if isinstance(batch, flambeau.Tensor):
        return batch.tolist()
    if isinstance(batch, list | tuple):
        return [plain(value) for value in batch]
    return batch


# -- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "options", "told"),
    [
        (kill_self, {}, ["exited unexpectedly", "SIGKILL", "batch 1 at index 5"]),
        (crash, {}, ["SIGSEGV", "batch 1 at index 5", "Segmentation fault", "in crash"]),
        (hang, {"timeout": 0.5}, ["timed out after 0.5", "batch 1 at index 5", "in hang"]),
    ],
    ids=["kill -9", "crash", "hang"],
)
def test_faults_are_told_promptly_with_the_place(deed, options, told):
    began = time.monotonic()
    with pytest.raises(RuntimeError) as raised:
        list(data.DataLoader(Fatal(12, deed), 4, num_workers=2, **options))
    assert time.monotonic() - began < 8
    for phrase in told:
        assert phrase in str(raised.value)


def test_an_error_tells_the_index_of_the_sample():
    with pytest.raises(ValueError, match="sample five is broken") as raised:
        list(data.DataLoader(Fatal(12, fail), 4, num_workers=2))
    assert "at index 5" in str(raised.value)


def test_a_batch_that_cannot_be_sent_is_an_error():
    loader = data.DataLoader(
        Numbers(4), 2, num_workers=1, collate_fn=lambda batch: lambda: batch,
        multiprocessing_context="fork",
    )
    with pytest.raises(Exception, match="sending the batch at indices \\[0, 1\\]"):
        list(loader)


def test_a_worker_killed_from_outside():
    iterator = iter(data.DataLoader(Numbers(10_000), num_workers=2))
    next(iterator)
    os.kill(iterator._workers[1].pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=f"{iterator._workers[1].pid}.*SIGKILL"):
        list(iterator)
    assert time.monotonic() - began < 8


INTERRUPTED = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from flambeau.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i):
        time.sleep({pause})
        return i
for n, batch in enumerate(DataLoader(Slow(), num_workers=2, persistent_workers={stay})):
    if n == 1:
        print("working", flush=True)
print("too far")
"""


@pytest.mark.parametrize(("pause", "stay"), [(0.05, False), (0.05, True), (0.9, False)])
def test_an_interrupt_ends_all_processes_quietly(pause, stay):
    script = INTERRUPTED.format(pause=pause, stay=stay)
    run = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.stdout.readline() == "working\n"
    began = time.monotonic()
    os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=15)
    assert time.monotonic() - began < 6
    assert out == ""
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("KeyboardInterrupt")
    with pytest.raises(ProcessLookupError):  # nobody of its group is left
        os.killpg(run.pid, 0)


# -- memory -------------------------------------------------------------------------------------


class Images(Numbers):
    def __getitem__(self, index):
        return flambeau.full((64, 16), float(index)), np.full(3000, index), f"image {index}"


def test_blocks_are_lent_and_used_again():
    iterator = iter(data.DataLoader(Images(400), 4, num_workers=1))
    library = iterator._crew.members[0].library
    for i, (pictures, arrays, names) in enumerate(iterator):
        assert pictures[:, 0, 0].tolist() == [i * 4.0, i * 4 + 1, i * 4 + 2, i * 4 + 3]
        assert arrays[3, 2999] == i * 4 + 3
        assert names[0] == f"image {i * 4}"
        lent = iterator._crew.members[0].library.count[0]
        assert lent <= 8
    assert len(library.blocks) <= 8


def test_batches_that_are_kept_stay_as_they_are():
    batches = list(data.DataLoader(Images(1200), 4, num_workers=2))
    assert len(batches) == 300
    for i, (pictures, arrays, _) in enumerate(batches):
        assert pictures[0].unique().tolist() == [i * 4.0]
        assert arrays[0].unique().tolist() == [i * 4]


def test_batches_are_tensors_like_any_other():
    pictures, arrays, _ = next(iter(data.DataLoader(Images(8), 4, num_workers=1)))
    assert pictures._base is None
    assert pictures.storage_offset() == 0
    version = arrays._version
    pictures.add_(1)
    assert arrays._version == version
    weights = flambeau.ones(16, requires_grad=True)
    (pictures @ weights).sum().backward()
    assert weights.grad.tolist() == [float(pictures.sum()) / 16] * 16


class Remembering:
    """A collate function that keeps the batch it made."""

    def __init__(self):
        self.first = None

    def __call__(self, samples):
        batch = data.default_collate(samples)
        if self.first is None:
            self.first = batch
        return self.first, batch


def test_memory_that_a_worker_still_looks_at_is_not_written_over():
    loader = data.DataLoader(range(400), 4, num_workers=1, collate_fn=Remembering())
    for first, _ in loader:
        assert first.tolist() == [0, 1, 2, 3]


ODD = {
    "strided": lambda: flambeau.arange(12.0).view(3, 4).t(),
    "expanded": lambda: flambeau.ones(1).expand(5),
    "empty": lambda: flambeau.empty(0, 3),
    "bfloat16": lambda: flambeau.ones(3, dtype=flambeau.bfloat16),
    "channels last": lambda: flambeau.rand(1, 2, 3, 4).to(memory_format=flambeau.channels_last),
    "leaf": lambda: flambeau.ones(2, requires_grad=True),
    "array": lambda: np.arange(5000.0),
    "bytes": lambda: b"x" * 200_000,
    "pair": lambda: Pair(flambeau.ones(2), {"a": [flambeau.zeros(1), None]}),
    "parameter": lambda: flambeau.nn.Parameter(flambeau.ones(2)),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_objects_arrive_whole(name):
    flambeau.manual_seed(0)
    made = ODD[name]()
    loader = data.DataLoader(
        [0, 1], batch_size=None, num_workers=1, collate_fn=lambda _: made,
        multiprocessing_context="fork",
    )
    for found in loader:
        assert type(found) is type(made)
        if isinstance(made, flambeau.Tensor):
            assert found.dtype is made.dtype
            assert found.requires_grad == made.requires_grad
            assert flambeau.equal(found, made)
            if name not in ("expanded",):
                assert found.stride() == made.stride()
        elif isinstance(made, np.ndarray):
            assert (found == made).all()
            found[0] = 7  # writable
        elif name == "pair":
            assert plain(found.right["a"]) == [[0.0], None]
        else:
            assert found == made


def test_large_lists_of_indices_pass():
    loader = data.DataLoader(Numbers(200_000), 100_000, num_workers=2)
    assert [len(batch) for batch in loader] == [100_000, 100_000]


def test_spawned_workers():
    loader = data.DataLoader(Numbers(6), 2, num_workers=1, multiprocessing_context="spawn")
    assert plain(list(loader)) == [[0, 1], [2, 3], [4, 5]]


class Listed(data.Dataset):
    """A long list of small objects, made before the workers are."""

    def __init__(self, n):
        self.items = [f"{i:06} " * 128 for i in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return os.getpid(), int(self.items[index][:6]), random.random()


def test_workers_that_copy_what_they_read_are_renewed(monkeypatch):
    """A small limit; the samples, and the random numbers, are those of workers that stay."""
    monkeypatch.setattr(renewal, "LIFE", 0.01)
    words, found = Listed(4_000), []
    for limit in (1 << 40, 1 << 20):
        monkeypatch.setattr(renewal, "LIMIT", limit)
        flambeau.manual_seed(3)
        loader = data.DataLoader(
            words, 100, shuffle=True, num_workers=2, multiprocessing_context="fork")
        found.append(list(loader))
    (stayed, renewed) = found
    assert len({int(pid) for batch in stayed for pid in batch[0]}) == 2
    assert len({int(pid) for batch in renewed for pid in batch[0]}) > 4
    assert [plain(b[1:]) for b in stayed] == [plain(b[1:]) for b in renewed]


def test_faults_of_a_renewed_worker_are_noticed(monkeypatch):
    monkeypatch.setattr(renewal, "LIMIT", 1 << 20)
    monkeypatch.setattr(renewal, "LIFE", 0.01)
    loader = data.DataLoader(Listed(4_000), 100, num_workers=1, multiprocessing_context="fork")
    iterator = iter(loader)
    served = {int(next(iterator)[0][0]) for _ in range(20)}
    assert len(served) > 1
    os.kill(iterator._crew.members[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="SIGKILL"):
        list(iterator)


# -- resuming -----------------------------------------------------------------------------------

LOADERS = {
    "in order": lambda: data.DataLoader(Numbers(23), 2),
    "shuffled": lambda: data.DataLoader(Numbers(23), 2, shuffle=True),
    "tensors": lambda: data.DataLoader(
        data.TensorDataset(flambeau.arange(23)), 2, shuffle=True, drop_last=True),
    "with replacement": lambda: data.DataLoader(
        Numbers(23), 2, sampler=data.RandomSampler(range(23), True, 90)),
    "subset": lambda: data.DataLoader(
        Numbers(23), 2, sampler=data.SubsetRandomSampler(list(range(21)))),
    "weighted": lambda: data.DataLoader(
        Numbers(23), 2, sampler=data.WeightedRandomSampler([1.0] * 23, 23)),
    "distributed": lambda: data.DataLoader(
        Numbers(46), 2, sampler=data.DistributedSampler(range(46), 2, 1)),
    "generator": lambda: data.DataLoader(
        Numbers(23), 2, shuffle=True, generator=flambeau.Generator().manual_seed(7)),
    "unbatched": lambda: data.DataLoader(Numbers(23), None, shuffle=True),
    "stream": lambda: data.DataLoader(NoisyStream(), 2),
    "workers": lambda: data.DataLoader(Noisy(23), 2, shuffle=True, num_workers=2),
    "workers, generator": lambda: data.DataLoader(
        Noisy(23), 2, shuffle=True, num_workers=2, generator=flambeau.Generator().manual_seed(7)),
    "persistent": lambda: data.DataLoader(
        Noisy(23), 2, shuffle=True, num_workers=2, persistent_workers=True),
    "stream, workers": lambda: data.DataLoader(NoisyStream(), 2, num_workers=2),
}


@pytest.mark.parametrize("epochs", [0, 1])
@pytest.mark.parametrize("name", LOADERS)
def test_an_epoch_goes_on_where_it_was_left(name, epochs):
    """What a fresh loader gives after load_state_dict is what the first would have given."""
    flambeau.manual_seed(11)
    loader = LOADERS[name]()
    for _ in range(epochs):
        list(loader)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    early = loader.state_dict()
    next(iterator)
    next(iterator)
    state, streams = loader.state_dict(), (flambeau.get_rng_state(), random.getstate())
    expected = plain(list(iterator))
    flambeau.manual_seed(99)
    resumed = LOADERS[name]()
    resumed.load_state_dict(state)
    flambeau.set_rng_state(streams[0])
    random.setstate(streams[1])
    assert plain(list(resumed)) == expected
    again = LOADERS[name]()  # a state from before the workers told their random streams
    again.load_state_dict(early)
    flambeau.manual_seed(5)
    iterator = iter(again)
    skipped = [next(iterator), next(iterator)]
    assert len(skipped) == 2
    if name != "stream":  # whose random numbers are those of this process
        assert plain(list(iterator)) == expected


def test_the_epoch_after_a_resumed_one_is_the_same_too():
    for name in ("shuffled", "generator", "workers"):
        flambeau.manual_seed(11)
        loader = LOADERS[name]()
        iterator = iter(loader)
        next(iterator)
        state, streams = loader.state_dict(), flambeau.get_rng_state()
        expected = [plain(list(iterator)), plain(list(loader))]
        resumed = LOADERS[name]()
        resumed.load_state_dict(state)
        flambeau.set_rng_state(streams)
        assert [plain(list(resumed)), plain(list(resumed))] == expected


def test_out_of_order_batches_are_resumed_without_loss():
    loader = data.DataLoader(Numbers(40), 2, num_workers=2, in_order=False)
    iterator = iter(loader)
    seen = [next(iterator) for _ in range(7)]
    resumed = data.DataLoader(Numbers(40), 2, num_workers=2, in_order=False)
    resumed.load_state_dict(loader.state_dict())
    seen += list(resumed)
    assert sorted(v for batch in seen for v in batch.tolist()) == list(range(40))


def test_a_state_can_be_saved_and_read():
    loader = LOADERS["workers"]()
    iterator = iter(loader)
    next(iterator)
    loader.state_dict()
    next(iterator)
    saved = pickle.dumps(loader.state_dict())
    expected = plain(list(iterator))
    resumed = LOADERS["workers"]()
    resumed.load_state_dict(pickle.loads(saved))
    assert plain(list(resumed)) == expected


def test_a_strange_state_is_refused():
    with pytest.raises(ValueError, match="no state of a DataLoader"):
        LOADERS["shuffled"]().load_state_dict({"epoch": 3})
    state = LOADERS["stream"]().state_dict() | {"active": True}
    with pytest.raises(ValueError, match="workers"):
        LOADERS["stream, workers"]().load_state_dict(state)


def test_gathers_of_nested_data_sets():
    """One gather each, and what comes out is what row by row would give."""
    first = data.TensorDataset(flambeau.arange(12.0).view(6, 2), flambeau.arange(6))
    second = data.TensorDataset(-flambeau.arange(8.0).view(4, 2), -flambeau.arange(4))
    sets = {
        "concatenated": data.ConcatDataset([first, second]),
        "beside": data.StackDataset(first, data.Subset(second, [3, 1, 2, 0, 1, 1])),
        "by name": data.StackDataset(a=first, b=first),
        "split": data.Subset(data.ConcatDataset([second, first]), [9, 0, 4, 2]),
        "bfloat16": data.TensorDataset(flambeau.arange(6.0).to(flambeau.bfloat16)),
    }
    for dataset in sets.values():
        at = list(range(len(dataset) - 1, -1, -2))
        gathered = data.default_collate(dataset.__getitems__(at))
        single = data.default_collate([dataset[i] for i in at])
        assert repr(gathered) == repr(single)


def test_an_overridden_getitem_is_respected():
    class Doubled(data.TensorDataset):
        def __getitem__(self, index):
            return super().__getitem__(index)[0] * 2

    assert plain(list(data.DataLoader(Doubled(flambeau.arange(4)), 2))) == [[0, 2], [4, 6]]


def test_indices_out_of_range():
    rows = data.TensorDataset(flambeau.arange(4))
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        list(data.DataLoader(rows, batch_sampler=[[0, 7]]))
    assert plain(list(data.DataLoader(rows, batch_sampler=[[-1, 0]]))) == [[[3, 0]]]


def test_memory_files_end_with_their_users():
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(3):
        list(data.DataLoader(Images(40), 4, num_workers=2))
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 2
    assert lending.POSSIBLE or sys.platform == "win32"


class Products(Numbers):
    """Samples that need kernels, large enough for many threads."""

    def __getitem__(self, index):
        x = flambeau.full((300, 300), float(index))
        return (x @ flambeau.ones(300, 300)).sum(), flambeau.get_num_threads()


def test_workers_compute_while_the_parent_does():
    """Forked in the middle of the parent's own parallel kernels, with one thread each."""
    before = flambeau.get_num_threads()
    flambeau.set_num_threads(2)
    stop = threading.Event()

    def busy():
        x = flambeau.rand(400, 400)
        while not stop.is_set():
            x @ x

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(3):
            loader = data.DataLoader(Products(8), 2, num_workers=2, timeout=60)
            found = [(values.tolist(), threads.tolist()) for values, threads in loader]
            assert found == [([i * 300.0**3, (i + 1) * 300.0**3], [1, 1]) for i in range(0, 8, 2)]
    finally:
        stop.set()
        thread.join()
        flambeau.set_num_threads(before)
