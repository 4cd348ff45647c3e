"""From indices to a batch: how samples are fetched from a data set."""

import itertools

import numpy as np

from .collate import default_collate
from .dataset import Gathered, TensorDataset, batch_getter
from .lending import in_shared_memory

ARRAYS = (np.ndarray, range)  # how the loader itself gives indices of data sets of tensors


class MapFetcher:
    """Samples by index, in one call per batch where the data set offers `__getitems__`.

    `at` is the index that is being fetched, or None; it is also written to `status`, if there is
    one, for others to see.
    """

    def __init__(self, batched, collate, drop_last, dataset):
        self.batched, self.collate, self.dataset = batched, collate, dataset
        self.together = batch_getter(dataset)
        plain = type(dataset) is TensorDataset and collate is default_collate
        self.at_once = dataset.batch_of if plain else None
        self.at = None
        self.status = None

    def __call__(self, indices):
        if self.at_once is not None and type(indices) in ARRAYS:
            return self.at_once(indices)
        if not self.batched:
            self._note(indices)
            sample = self.dataset[indices]
            with in_shared_memory():
                return self.collate(sample)
        if self.together is not None:
            self.at = None
            with in_shared_memory():
                samples = self.together(indices)
                if isinstance(samples, Gathered) and self.collate is not default_collate:
                    samples = list(samples)
                return self.collate(samples)
        samples = self._one_by_one(indices)
        self.at = None
        with in_shared_memory():
            return self.collate(samples)

    def _one_by_one(self, indices):
        dataset, samples, status = self.dataset, [], self.status
        for index in indices:
            self.at = index
            if status is not None and type(index) is int:
                status[0] = index
            samples.append(dataset[index])
        return samples

    def _note(self, index):
        self.at = index
        if self.status is not None:
            self.status[0] = index if type(index) is int else -1


class StreamFetcher:
    """The next samples of a stream; raises StopIteration at its end."""

    at = status = None

    def __init__(self, batched, collate, drop_last, dataset):
        self.batched, self.collate, self.drop_last = batched, collate, drop_last
        self.samples = iter(dataset)

    def __call__(self, indices):
        if not self.batched:
            sample = next(self.samples)
            with in_shared_memory():
                return self.collate(sample)
        batch = list(itertools.islice(self.samples, len(indices)))
        if not batch or (self.drop_last and len(batch) < len(indices)):
            raise StopIteration
        with in_shared_memory():
            return self.collate(batch)


FETCHERS = (MapFetcher, StreamFetcher)  # by the kind of the data set
