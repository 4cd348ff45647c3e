"""Data sets: collections of samples, by index or as a stream."""

import bisect
import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

import flambeau

from .lending import is_shared_place, place

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples by index. Subclasses give `__getitem__` and, for most uses, `__len__`.

    `__getitems__(indices)`, if there is one, fetches a whole batch in one call.
    """

    def __getitem__(self, index):
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Samples as a stream. Subclasses give `__iter__`; with workers, each iterates its own copy."""

    def __add__(self, other):
        return ChainDataset([self, other])


class Gathered(Sequence):
    """A batch that was fetched at once; to whoever looks inside, a list of samples.

    `collated()` is what default_collate would make of the list.
    """

    def collated(self):
        raise NotImplementedError(f"{type(self).__name__} does not define collated")


class Rows(Gathered):
    """Rows gathered from tensors; a sample is a tuple."""

    def __init__(self, tensors):
        self.tensors = tensors

    def __len__(self):
        return len(self.tensors[0])

    def __iter__(self):
        return zip(*(tensor.unbind(0) for tensor in self.tensors), strict=True)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return Rows([tensor[index] for tensor in self.tensors])
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of a batch of {len(self)}")
        return tuple(tensor[index] for tensor in self.tensors)

    def collated(self):
        return list(self.tensors)


class Beside(Gathered):
    """Batches of several data sets side by side; a sample is a tuple, or a dict by name."""

    def __init__(self, columns, names=None):
        self.columns, self.names = columns, names

    def __len__(self):
        return len(self.columns[0])

    def _together(self, values):
        return tuple(values) if self.names is None else dict(zip(self.names, values, strict=True))

    def __iter__(self):
        return (self._together(values) for values in zip(*self.columns, strict=True))

    def __getitem__(self, index):
        values = [column[index] for column in self.columns]
        return Beside(values, self.names) if isinstance(index, slice) else self._together(values)

    def collated(self):
        found = [column.collated() for column in self.columns]
        return found if self.names is None else dict(zip(self.names, found, strict=True))


class Column:
    """A tensor as a source of rows, with the array over its memory where numpy can read it."""

    def __init__(self, tensor):
        self.tensor, self.array = tensor, None
        self.seen = tensor.data_ptr(), tensor.shape
        if tensor.is_contiguous() and not tensor.requires_grad and tensor.device.type == "cpu":
            # Rows are moved, not read: where numpy lacks a dtype, one of the same width will do.
            self.kind = flambeau.int16 if tensor.dtype is flambeau.bfloat16 else None
            if type(tensor) is flambeau.Tensor and tensor.dim():
                self.array = self._as_array(tensor)

    def _as_array(self, tensor):
        return (tensor if self.kind is None else tensor.view(self.kind)).numpy()

    def is_stale(self):
        return self.tensor.data_ptr() != self.seen[0] or self.tensor.shape != self.seen[1]

    def rows(self, begin, end):
        """Consecutive rows, copied."""
        if self.array is None or not is_shared_place():
            return self.tensor[begin:end].clone()
        out = place((end - begin, *self.tensor.shape[1:]), self.tensor.dtype)
        if end > begin:
            out.copy_(self.tensor[begin:end])
        return out

    def gather(self, at):
        """The rows at an array of indices, which are in range."""
        if self.array is None or not len(at):
            return self.tensor[flambeau.from_numpy(at)]
        out = place((len(at), *self.tensor.shape[1:]), self.tensor.dtype)
        self.array.take(at, 0, self._as_array(out), "wrap")
        return out


class TensorDataset(Dataset):
    """Tensors of equal length; a sample is one row of each."""

    _columns = None

    def __init__(self, *tensors):
        if any(len(tensors[0]) != len(tensor) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(tensor[index] for tensor in self.tensors)

    def batch_of(self, indices):
        """A batch at once: of a range, or of an array of indices that are in range."""
        columns = self._current_columns()
        if type(indices) is range:
            return [column.rows(indices.start, indices.stop) for column in columns]
        return [column.gather(indices) for column in columns]

    def __getitems__(self, indices):
        at, n = np.asarray(indices, np.int64), len(self)
        if len(at) and (at.min() < -n or at.max() >= n):
            bad = int(at[(at < -n) | (at >= n)][0])
            raise IndexError(f"index {bad} is out of bounds for dimension 0 with size {n}")
        return Rows(self.batch_of(at))

    def _current_columns(self):
        known = self._columns
        if known is None or known[0] is not self.tensors or any(c.is_stale() for c in known[1]):
            known = self._columns = self.tensors, [Column(tensor) for tensor in self.tensors]
        return known[1]

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "_columns"}

    def __len__(self):
        return len(self.tensors[0])


def batch_getter(dataset):
    """The `__getitems__` of a data set; None if it has none, or a newer `__getitem__`."""
    for cls in type(dataset).__mro__:
        if "__getitems__" in vars(cls):
            return dataset.__getitems__
        if "__getitem__" in vars(cls):
            return vars(dataset).get("__getitems__") if hasattr(dataset, "__dict__") else None
    return None


def _getitems(dataset, indices):
    """A batch, in one call where the data set offers it."""
    together = batch_getter(dataset)
    return together(indices) if together is not None else [dataset[i] for i in indices]


class Subset(Dataset[T_co]):
    """The samples of a data set at some indices."""

    def __init__(self, dataset, indices):
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices):
        return _getitems(self.dataset, [self.indices[i] for i in indices])

    def __len__(self):
        return len(self.indices)


class ConcatDataset(Dataset[T_co]):
    """Data sets one after another."""

    @staticmethod
    def cumsum(sequence):
        return list(itertools.accumulate(len(part) for part in sequence))

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, index):
        part, inner = self._locate(index)
        return self.datasets[part][inner]

    def _locate(self, index):
        """Which data set an index falls into, and where in it."""
        if index < -len(self):
            raise ValueError("absolute value of index should not exceed dataset length")
        if index >= len(self):
            raise IndexError(f"index {index} of a dataset of {len(self)}")
        index %= len(self)
        part = bisect.bisect_right(self.cumulative_sizes, index)
        return part, index - (self.cumulative_sizes[part - 1] if part else 0)

    def __getitems__(self, indices):
        parts = {}
        for position, index in enumerate(indices):
            part, inner = self._locate(index)
            parts.setdefault(part, []).append((position, inner))
        found = [(_getitems(self.datasets[part], [inner for _, inner in wanted]),
                  [position for position, _ in wanted]) for part, wanted in parts.items()]
        if len(found) == 1:
            return found[0][0]
        return _joined(found) or _interleaved(found)

    @property
    def cummulative_sizes(self):
        warnings.warn(
            "cummulative_sizes attribute is renamed to cumulative_sizes",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.cumulative_sizes


def _joined(found):
    """Rows of several data sets as one batch, in the order they were asked for; or None."""
    rows = [batch for batch, _ in found]
    if not all(type(batch) is Rows and _like(batch, rows[0]) for batch in rows):
        return None
    order = np.argsort(np.concatenate([positions for _, positions in found]))
    joined = [flambeau.cat(parts) for parts in zip(*(b.tensors for b in rows), strict=True)]
    return Rows([Column(tensor).gather(order) for tensor in joined])


def _like(batch, other):
    """Whether rows have the dtypes and shapes of other rows, so that they can be joined."""
    def kinds(rows):
        return [(tensor.dtype, tensor.shape[1:]) for tensor in rows.tensors]
    return kinds(batch) == kinds(other)


def _interleaved(found):
    samples = [None] * sum(len(positions) for _, positions in found)
    for batch, positions in found:
        for position, sample in zip(positions, batch, strict=True):
            samples[position] = sample
    return samples


class ChainDataset(IterableDataset):
    """Streams one after another."""

    def __init__(self, datasets):
        self.datasets = datasets

    def _parts(self):
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self):
        return itertools.chain.from_iterable(self._parts())

    def __len__(self):
        return sum(len(dataset) for dataset in self._parts())


class StackDataset(Dataset):
    """Data sets side by side: a sample is a tuple, or a dict, with one sample of each."""

    def __init__(self, *args, **kwargs):
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or "
                "``dict``- (via ``kwargs``) like input/output, but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets = args or kwargs
        parts = self._parts()
        if any(len(parts[0]) != len(part) for part in parts):
            raise ValueError("Size mismatch between datasets")
        self._length = len(parts[0])

    def _parts(self):
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _sample(self, values):
        if isinstance(self.datasets, dict):
            return dict(zip(self.datasets, values, strict=True))
        return tuple(values)

    def __getitem__(self, index):
        return self._sample([part[index] for part in self._parts()])

    def __getitems__(self, indices):
        columns = [_getitems(part, indices) for part in self._parts()]
        for column in columns:
            if len(column) != len(indices):
                raise ValueError(
                    "Nested dataset's output size mismatch. "
                    f"Expected {len(indices)}, got {len(column)}"
                )
        if all(isinstance(column, Gathered) for column in columns):
            return Beside(columns, list(self.datasets) if isinstance(self.datasets, dict) else None)
        return [self._sample(values) for values in zip(*columns, strict=True)]

    def __len__(self):
        return self._length


def random_split(dataset, lengths, generator=None):
    """Subsets of the given lengths, or fractions that sum to one, that share no sample."""
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _from_fractions(lengths, len(dataset))
    if sum(lengths) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = flambeau.randperm(sum(lengths), generator=generator).tolist()
    ends = itertools.accumulate(lengths)
    return [
        Subset(dataset, order[end - length : end])
        for end, length in zip(ends, lengths, strict=True)
    ]


def _from_fractions(fractions, total):
    """Whole lengths, what rounding leaves over going one each to the first."""
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
    lengths = [math.floor(total * fraction) for fraction in fractions]
    for i in range(total - sum(lengths)):
        lengths[i % len(lengths)] += 1
    for i, length in enumerate(lengths):
        if length == 0:
            warnings.warn(
                f"Length of split at index {i} is 0. This might result in an empty dataset.",
                stacklevel=3,
            )
    return lengths
