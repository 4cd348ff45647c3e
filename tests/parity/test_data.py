"""Data loading beside torch's: the same order from the same seed, the same batches and errors."""

import collections
import dataclasses

import numpy as np
import pytest
import torch

import flambeau

LIBS = (flambeau, torch)
Point = collections.namedtuple("Point", "x y")


class Numbers:
    """A data set that either library accepts; samples hold random numbers of the worker."""

    def __init__(self, n, lib=None):
        self.n, self.lib = n, lib

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if self.lib is None:
            return index
        return index, int(np.random.randint(10_000)), float(self.lib.rand(()))


def plain(value):
    """Tensors of either library as lists."""
    if isinstance(value, flambeau.Tensor | torch.Tensor):
        return ("tensor", str(value.dtype).rpartition(".")[2], value.tolist())
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(plain, value))
    if isinstance(value, list | tuple):
        return type(value)(plain(v) for v in value)
    return value


def on_both(action):
    """The action with each library after the same seed, and the stream afterwards."""
    results = []
    for lib in LIBS:
        lib.manual_seed(4)
        results.append((plain(action(lib)), lib.rand(2).tolist()))
    return results


LOADERS = [
    {"batch_size": 4},
    {"batch_size": 4, "shuffle": True},
    {"batch_size": 4, "shuffle": True, "drop_last": True},
    {"batch_size": None, "shuffle": True},
    {"batch_size": 4, "shuffle": True, "num_workers": 2},
    {"batch_size": 4, "num_workers": 2, "persistent_workers": True},
]


@pytest.mark.parametrize("options", LOADERS, ids=str)
def test_epochs(options):
    """Two epochs: order, batches, and what is taken from the random stream."""

    def load(lib):
        loader = lib.utils.data.DataLoader(Numbers(18), **options)
        return [[list(loader) for _ in range(2)], len(loader)]

    ours, theirs = on_both(load)
    assert ours == theirs


def test_workers_draw_the_numbers_of_torchs_workers():
    def load(lib):
        loader = lib.utils.data.DataLoader(
            Numbers(12, lib), batch_size=3, shuffle=True, num_workers=2
        )
        return list(loader)

    ours, theirs = on_both(load)
    assert ours == theirs


SAMPLERS = {
    "sequential": lambda d: d.SequentialSampler(range(7)),
    "random": lambda d: d.RandomSampler(range(7)),
    "more than all": lambda d: d.RandomSampler(range(7), num_samples=17),
    "with replacement": lambda d: d.RandomSampler(range(7), True, 70),
    "subset": lambda d: d.SubsetRandomSampler([5, 3, 8, 1]),
    "weighted": lambda d: d.WeightedRandomSampler([0.1, 0.7, 0.2], 20),
    "weighted, once each": lambda d: d.WeightedRandomSampler([0.1, 0.7, 0.2], 2, False),
    "batches": lambda d: d.BatchSampler(d.RandomSampler(range(7)), 3, False),
    "share": lambda d: d.DistributedSampler(range(10), 3, 1),
    "share, dropped": lambda d: d.DistributedSampler(range(10), 3, 2, False, drop_last=True),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name):
    def visit(lib):
        sampler = SAMPLERS[name](lib.utils.data)
        return [list(sampler), list(sampler), len(sampler)]

    ours, theirs = on_both(visit)
    assert ours == theirs


@pytest.mark.parametrize("lengths", [[12, 5, 3], [0.3, 0.7], [0.33, 0.33, 0.34]])
def test_random_split(lengths):
    ours, theirs = on_both(
        lambda lib: [s.indices for s in lib.utils.data.random_split(range(20), lengths)]
    )
    assert ours == theirs


BATCHES = {
    "ints": [1, 2, 3],
    "floats": [1.5, 2.5],
    "bools": [True, False],
    "text": ["a", "b"],
    "arrays": [np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)],
    "numpy scalars": [np.float32(1.0), np.float32(2.0)],
    "tuples": [(1, 2.0), (3, 4.0)],
    "lists": [[1, 2], [3, 4]],
    "named tuples": [Point(1, 2.0), Point(3, 4.0)],
    "dicts": [{"a": 1, "b": [1.0, 2.0]}, {"a": 2, "b": [3.0, 4.0]}],
    "ordered dicts": [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    "nested": [{"a": (np.arange(3), ["x"])}, {"a": (np.arange(3), ["y"])}],
}


@pytest.mark.parametrize("name", BATCHES)
def test_collate(name):
    ours, theirs = (lib.utils.data.default_collate(BATCHES[name]) for lib in LIBS)
    assert type(ours) is type(theirs) or isinstance(theirs, torch.Tensor)
    assert plain(ours) == plain(theirs)
    ours, theirs = (lib.utils.data.default_convert(BATCHES[name]) for lib in LIBS)
    assert plain(ours) == plain(theirs)


@pytest.mark.parametrize(
    "batch",
    [[object()], [[1, 2], [3]], [np.array(["a"])], [np.array([object()])], [None]],
    ids=["object", "lengths", "text array", "object array", "None"],
)
def test_what_cannot_be_collated(batch):
    with pytest.raises((TypeError, RuntimeError)) as expected:
        torch.utils.data.default_collate(batch)
    with pytest.raises(expected.type):
        flambeau.utils.data.default_collate(batch)


DATASETS = {
    "subset": lambda d: d.Subset(range(10), [3, 1, 4]),
    "concatenated": lambda d: d.ConcatDataset([range(3), range(10, 12)]),
    "stacked": lambda d: d.StackDataset(range(3), range(10, 13)),
    "stacked by name": lambda d: d.StackDataset(a=range(3), b=range(10, 13)),
}


@pytest.mark.parametrize("name", DATASETS)
def test_datasets(name):
    ours, theirs = (DATASETS[name](lib.utils.data) for lib in LIBS)
    assert len(ours) == len(theirs)
    assert [ours[i] for i in range(len(ours))] == [theirs[i] for i in range(len(theirs))]
    ours, theirs = (list(lib.utils.data.DataLoader(d, 2)) for lib, d in zip(LIBS, (ours, theirs)))
    assert plain(ours) == plain(theirs)


def test_tensor_datasets():
    def load(lib):
        x, y = lib.arange(24.0).view(12, 2), lib.arange(12)
        return list(lib.utils.data.DataLoader(lib.utils.data.TensorDataset(x, y), 5, True))

    ours, theirs = on_both(load)
    assert ours == theirs


MISUSES = [
    lambda d: d.DataLoader(range(3), num_workers=-1),
    lambda d: d.DataLoader(range(3), timeout=-1),
    lambda d: d.DataLoader(range(3), prefetch_factor=2),
    lambda d: d.DataLoader(range(3), persistent_workers=True),
    lambda d: d.DataLoader(range(3), shuffle=True, sampler=range(3)),
    lambda d: d.DataLoader(range(3), batch_size=2, batch_sampler=[[0]]),
    lambda d: d.DataLoader(range(3), batch_size=None, drop_last=True),
    lambda d: d.DataLoader(range(3), batch_size=0),
    lambda d: d.DataLoader(d.ChainDataset([]), shuffle=True),
    lambda d: setattr(d.DataLoader(range(3)), "batch_size", 2),
    lambda d: d.DataLoader(range(3), num_workers=1, multiprocessing_context="thread"),
    lambda d: d.RandomSampler([]),
    lambda d: d.RandomSampler(range(3), replacement=1),
    lambda d: d.WeightedRandomSampler([[1.0]], 1),
    lambda d: d.DistributedSampler(range(3), 2, 2),
    lambda d: d.random_split(range(3), [1, 1]),
    lambda d: d.ConcatDataset([]),
    lambda d: d.ConcatDataset([range(2)])[5],
    lambda d: d.StackDataset(),
    lambda d: d.StackDataset(range(2), range(3)),
]


@pytest.mark.parametrize("misuse", MISUSES, ids=range(len(MISUSES)))
def test_misuse_raises_as_torch_does(misuse):
    with pytest.raises(Exception) as expected:
        misuse(torch.utils.data)
    with pytest.raises(expected.type):
        misuse(flambeau.utils.data)


class Failing(Numbers):
    def __getitem__(self, index):
        if index == 5:
            raise KeyError(f"sample {index}")
        return index


def test_errors_of_workers():
    """The same type of exception, and a message that holds the worker's traceback."""
    messages = []
    for lib in LIBS:
        loader = lib.utils.data.DataLoader(Failing(8), batch_size=2, num_workers=2)
        with pytest.raises(KeyError) as raised:
            list(loader)
        messages.append(str(raised.value))
    for message in messages:
        assert message.startswith("Caught KeyError in DataLoader worker process 0.")
        assert "sample 5" in message


def test_dataclasses_are_collated():
    """Which torch refuses."""

    @dataclasses.dataclass
    class Sample:
        x: int
        y: list

    batch = flambeau.utils.data.default_collate([Sample(1, [1.0]), Sample(2, [2.0])])
    assert plain(batch.x) == ("tensor", "int64", [1, 2])
    assert plain(batch.y) == [("tensor", "float64", [1.0, 2.0])]
