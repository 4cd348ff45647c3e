"""Data loading by itself: batches, workers, and what happens when something goes wrong."""

import itertools
import os
import time

import pytest

import flambeau
from flambeau.utils import data


class Numbers(data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return index


class Together(Numbers):
    """Fetched only a batch at a time."""

    def __getitem__(self, index):
        raise AssertionError("fetched one by one")

    def __getitems__(self, indices):
        return [i * 10 for i in indices]


class Stream(data.IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(first, self.n, step))


class Dying(Numbers):
    def __getitem__(self, index):
        if index == 3:
            os._exit(1)
        return index


class Sleeping(Numbers):
    def __getitem__(self, index):
        time.sleep(30)


class Broken(Numbers):
    def __getitem__(self, index):
        if index == 3:
            raise ValueError("sample three is broken")
        return index


class WhoAmI(Numbers):
    def __getitem__(self, index):
        info = data.get_worker_info()
        return info.id, info.num_workers, info.seed, len(info.dataset)


def values(loader):
    return [batch.tolist() for batch in loader]


def test_batches_in_order():
    loader = data.DataLoader(Numbers(7), batch_size=3)
    assert values(loader) == [[0, 1, 2], [3, 4, 5], [6]]
    assert len(loader) == 3
    assert values(data.DataLoader(Numbers(7), 3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]


def test_every_epoch_has_another_order_and_a_seed_repeats_it():
    loader = data.DataLoader(Numbers(50), batch_size=50, shuffle=True)
    flambeau.manual_seed(1)
    first, second = values(loader), values(loader)
    flambeau.manual_seed(1)
    assert first != second
    assert values(loader) == first
    assert sorted(first[0]) == list(range(50))


def test_whole_batches_are_fetched_in_one_call():
    assert values(data.DataLoader(Together(4), batch_size=2)) == [[0, 10], [20, 30]]


def test_rows_of_tensors_are_gathered_at_once():
    x, y = flambeau.arange(12.0).view(6, 2), flambeau.arange(6)
    rows = data.TensorDataset(x, y)
    batch = rows.__getitems__([4, 1])
    assert [pair[1].item() for pair in batch] == [4, 1]
    gathered = data.default_collate(batch)
    assert isinstance(gathered, list)
    assert gathered[0].tolist() == [[8.0, 9.0], [2.0, 3.0]]
    loaded = list(data.DataLoader(data.Subset(rows, [5, 0, 2]), batch_size=2))
    assert [b[1].tolist() for b in loaded] == [[5, 0], [2]]


def test_own_collate_functions_see_rows_as_tuples():
    rows = data.TensorDataset(flambeau.arange(4), flambeau.arange(4) * 2)
    loader = data.DataLoader(rows, 2, collate_fn=lambda batch: [(int(a), int(b)) for a, b in batch])
    assert list(loader) == [[(0, 0), (1, 2)], [(2, 4), (3, 6)]]


def test_a_batch_is_a_copy():
    x = flambeau.zeros(4)
    (batch,) = next(iter(data.DataLoader(data.TensorDataset(x), 4)))
    batch += 1
    assert x.tolist() == [0.0] * 4


def test_streams():
    assert values(data.DataLoader(Stream(5), batch_size=2)) == [[0, 1], [2, 3], [4]]
    assert [int(v) for v in data.DataLoader(Stream(3), batch_size=None)] == [0, 1, 2]
    both = data.ChainDataset([Stream(2), Stream(1)])
    assert list(both) == [0, 1, 0]


def test_no_batching():
    assert list(data.DataLoader(Numbers(3), batch_size=None)) == [0, 1, 2]


def test_samplers_of_batches():
    loader = data.DataLoader(Numbers(9), batch_sampler=[[1, 3], [8]])
    assert values(loader) == [[1, 3], [8]]


class Shuffled(data.Sampler):
    """Draws when iter() is called, not when the first index is asked for."""

    def __iter__(self):
        return iter([[i] for i in flambeau.randperm(6).tolist()])


@pytest.mark.parametrize(("workers", "order"), [(0, [5, 0, 1, 3, 4, 2]), (1, [5, 4, 2, 1, 3, 0])])
def test_samplers_draw_before_the_seed_of_workers_is_drawn(workers, order):
    flambeau.manual_seed(5)
    loader = data.DataLoader(range(6), batch_sampler=Shuffled(), num_workers=workers)
    assert [batch.item() for batch in loader] == order  # as PyTorch orders them


def test_shares_of_a_distributed_sampler_cover_the_data():
    shares = [list(data.DistributedSampler(range(10), 3, rank)) for rank in range(3)]
    assert {len(share) for share in shares} == {4}
    assert set().union(*shares) == set(range(10))


def test_random_split_covers_the_data():
    parts = data.random_split(range(10), [0.55, 0.45])
    assert [len(part) for part in parts] == [6, 4]
    assert sorted(i for part in parts for i in part.indices) == list(range(10))


# -- workers ------------------------------------------------------------------------------------


def test_workers_give_the_same_batches():
    alone = data.DataLoader(Numbers(23), batch_size=4)
    assert values(data.DataLoader(Numbers(23), 4, num_workers=2)) == values(alone)


def test_workers_know_who_they_are():
    seen = list(data.DataLoader(WhoAmI(4), batch_size=None, num_workers=2))
    assert {sample[0] for sample in seen} == {0, 1}
    assert {sample[1] for sample in seen} == {2}
    assert {sample[2] - sample[0] for sample in seen} == {seen[0][2] - seen[0][0]}
    assert data.get_worker_info() is None


def test_streams_are_shared_among_workers():
    found = values(data.DataLoader(Stream(9), batch_size=2, num_workers=2))
    assert sorted(v for batch in found for v in batch) == list(range(9))


def test_persistent_workers_serve_many_epochs():
    loader = data.DataLoader(Numbers(6), 2, num_workers=2, persistent_workers=True)
    first = next(iter(loader))  # an epoch that is left early
    assert first.tolist() == [0, 1]
    for _ in range(3):
        assert values(loader) == [[0, 1], [2, 3], [4, 5]]
    pids = [process.pid for process in loader._iterator._workers]
    list(loader)
    assert [process.pid for process in loader._iterator._workers] == pids
    loader._iterator.shutdown()


def test_out_of_order_loses_nothing():
    loader = data.DataLoader(Numbers(12), 2, num_workers=2, in_order=False)
    assert sorted(v for batch in values(loader) for v in batch) == list(range(12))


def test_an_error_in_a_worker_comes_with_its_traceback():
    loader = data.DataLoader(Broken(6), 2, num_workers=2)
    with pytest.raises(ValueError, match="DataLoader worker process 1") as raised:
        list(loader)
    assert "sample three is broken" in str(raised.value)
    assert "__getitem__" in str(raised.value)


def test_an_error_in_worker_init_fn_is_reported():
    def fail(worker):
        raise RuntimeError("no database")

    loader = data.DataLoader(
        Numbers(4), num_workers=1, worker_init_fn=fail, multiprocessing_context="fork"
    )
    with pytest.raises(RuntimeError, match="no database"):
        list(loader)


def test_a_worker_that_dies_is_noticed_promptly():
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(data.DataLoader(Dying(8), 2, num_workers=2))
    assert time.monotonic() - began < 10


def test_timeout():
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"timed out after 0\.5 seconds"):
        list(data.DataLoader(Sleeping(4), num_workers=1, timeout=0.5))
    assert time.monotonic() - began < 10


def test_leaving_early_ends_the_workers():
    iterator = iter(data.DataLoader(Numbers(100), num_workers=2))
    next(iterator)
    workers = iterator._workers
    del iterator
    assert not any(process.is_alive() for process in workers)


def test_a_sampler_for_ever():
    """Endless loaders are written with a huge number of samples: nothing may be laid out ahead."""
    sampler = data.RandomSampler(range(10), replacement=True, num_samples=10 ** 12)
    first = list(itertools.islice(sampler, 100))
    assert len(sampler) == 10 ** 12 and set(first) <= set(range(10)) and len(set(first)) > 5
