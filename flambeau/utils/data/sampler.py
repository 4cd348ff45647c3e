"""Samplers: the order in which the samples of a data set are visited."""

import itertools
from typing import Generic, TypeVar

import flambeau

T_co = TypeVar("T_co", covariant=True)

CHUNK = 32  # indices drawn at a time with replacement; fixed, as it decides the random stream


class Sampler(Generic[T_co]):
    """Iterates over indices, or over lists of them. Subclasses give `__iter__`."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


def draw_seed(generator=None):
    """A fresh seed: the one number that an epoch takes from a random stream."""
    return int(flambeau.empty((), dtype=flambeau.int64).random_(generator=generator).item())


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class SequentialSampler(Sampler[int]):
    """0, 1, 2 ..."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A random order; with replacement, any number of independent draws."""

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        self.last_seed = None  # what the order of the latest epoch was drawn from
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got {replacement=}")
        if not _is_count(self.num_samples):
            raise ValueError(
                f"num_samples should be a positive integer value, but got "
                f"num_samples={self.num_samples}"
            )

    @property
    def num_samples(self):
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        yield from self.order()

    def order(self, seed=None):
        """The indices; those of an earlier time again, given the `last_seed` of then."""
        n = len(self.data_source)
        generator = self._stream(seed)
        whole, rest = divmod(self.num_samples, CHUNK if self.replacement else n)
        if self.replacement:
            # Lazily: "forever" is often written as a huge num_samples.
            for size in itertools.chain(itertools.repeat(CHUNK, whole), [rest]):
                yield from flambeau.randint(n, (size,), generator=generator).tolist()
        else:
            for _ in range(whole):
                yield from flambeau.randperm(n, generator=generator).tolist()
            yield from flambeau.randperm(n, generator=generator).tolist()[:rest]

    def _stream(self, seed):
        """The generator to draw from: the given one, or a fresh one with a seed drawn now."""
        if self.generator is not None:
            return self.generator
        self.last_seed = draw_seed() if seed is None else seed
        return flambeau.Generator().manual_seed(self.last_seed)

    def permutation(self, seed=None):
        """The order of an epoch without replacement as one array; None if it is not that simple."""
        if self.replacement or self._num_samples is not None or self.generator is not None:
            return None
        return flambeau.randperm(len(self.data_source), generator=self._stream(seed)).numpy()

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices, in random order."""

    def __init__(self, indices, generator=None):
        self.indices = indices
        self.generator = generator

    def __iter__(self):
        for i in flambeau.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """num_samples indices, drawn with probabilities proportional to the weights."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        if not _is_count(num_samples):
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={num_samples}"
            )
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        weights = flambeau.as_tensor(weights, dtype=flambeau.double)
        if weights.dim() != 1:
            raise ValueError(
                "weights should be a 1d sequence but given weights have shape "
                f"{tuple(weights.shape)}"
            )
        self.weights = weights
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self):
        drawn = flambeau.multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from drawn.tolist()

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler[list]):
    """Lists of batch_size indices of another sampler."""

    def __init__(self, sampler, batch_size, drop_last):
        if not _is_count(batch_size):
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self):
        yield from self.batches(iter(self.sampler))

    def batches(self, indices):
        """Lists of the given indices."""
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self):
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole if self.drop_last or not rest else whole + 1
