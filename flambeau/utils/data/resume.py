"""How far a loader has come, in a form that can be saved, and how to come as far again.

Most orders are made again from one number; where a sampler draws in a way unknown here, the random
streams are noted before it begins.
"""

from . import streams
from .collate import default_collate
from .dataset import IterableDataset, TensorDataset
from .distributed import DistributedSampler
from .sampler import BatchSampler, RandomSampler, SequentialSampler, draw_seed

VERSION = 1


class Progress:
    """One epoch: what its order was made from, and how many batches have been given out."""

    def __init__(self, loader, state=None):
        self.loader = loader
        self.yielded, self.ahead = 0, set()
        self.finished = False
        self.base_seed = None
        self.drew = True  # whether the seed of the workers was drawn in this epoch
        self.workers = None  # streams of the workers after the batches that were given out
        self.origins = None  # streams of workers that stay, before this epoch
        self.start = None
        sampler = loader.sampler
        self.by_seed = type(sampler) is RandomSampler and sampler.generator is None and (
            loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler)
        self.seed = None
        if state is not None:
            self.yielded, self.ahead = state["yielded"], set(state["ahead"])
            self.base_seed, self.seed = state["base_seed"], state["seed"]
            self.start, self.workers = state["start"], state["workers"]
            self.drew, self.origins = state["drew"], state["origins"]
        elif self._draws_unseen():
            self.start = self._streams()

    def _draws_unseen(self):
        """Whether the order depends on streams in a way that one seed does not tell."""
        if isinstance(self.loader.dataset, IterableDataset):
            return self.loader.num_workers == 0
        known = type(self.loader.sampler) in (SequentialSampler, DistributedSampler)
        batches = self.loader.batch_sampler
        return not self.by_seed and not (
            known and (batches is None or type(batches) is BatchSampler))

    def _generators(self):
        batches = self.loader.batch_sampler
        return streams.generators_of(
            self.loader, self.loader.sampler, batches, getattr(batches, "sampler", None))

    def _streams(self):
        return {**streams.saved(), "generators": [g.get_state() for g in self._generators()]}

    def rewind(self):
        """Put the streams back to where this epoch began; its indices as they were begun then."""
        streams.put_back(self.start)
        self.set_generators(self.start["generators"])
        found = iter(self.loader._index_sampler)
        if self.drew:
            draw_seed(self.loader.generator)
        return iter(self.loader._index_sampler) if self.begun_twice() else found

    def begun_twice(self):
        """New workers begin the order once more, and samplers may draw when it is begun."""
        return self.loader.num_workers > 0 and self.drew

    def set_generators(self, states):
        for generator, saved in zip(self._generators(), states, strict=True):
            generator.set_state(saved)

    def gave_out(self, ordinal):
        """The batch at this place of the order has been given out, perhaps ahead of others."""
        self.yielded += 1
        self.ahead.add(ordinal)
        low = self.yielded - len(self.ahead)
        while low in self.ahead:
            self.ahead.remove(low)
            low += 1

    def state(self):
        """All of it as plain data."""
        epoch = getattr(self.loader.sampler, "epoch", None)
        return {
            "version": VERSION,
            "yielded": 0 if self.finished else self.yielded,
            "ahead": [] if self.finished else sorted(self.ahead),
            "active": not self.finished,
            "base_seed": self.base_seed,
            "seed": self.seed,
            "start": None if self.finished else self.start,
            "generators": [g.get_state() for g in self._generators()],
            "drew": self.drew,
            "workers": self.workers,
            "origins": None if self.finished else self.origins,
            "num_workers": self.loader.num_workers,
            "epoch": epoch if isinstance(epoch, int) else None,
        }

    def indices(self):
        """The indices, or lists of them, of a new epoch."""
        loader = self.loader
        if loader.num_workers == 0 and (arrays := self._arrays()) is not None:
            return arrays
        return self._noting(iter(loader._index_sampler)) if self.by_seed else iter(
            loader._index_sampler)

    def _noting(self, indices):
        for each in indices:
            if self.seed is None:
                self.seed = self.loader.sampler.last_seed
            yield each

    def _arrays(self):
        """Whole arrays of indices for data sets of tensors, which gather batches at once."""
        loader = self.loader
        sampler, batches = loader.sampler, loader.batch_sampler
        if type(loader.dataset) is not TensorDataset or type(batches) is not BatchSampler or (
                loader.collate_fn is not default_collate or batches.sampler is not sampler
                or getattr(sampler, "data_source", None) is not loader.dataset):
            return None
        if type(sampler) is SequentialSampler:
            return _cut(range(len(sampler)), batches)
        if self.by_seed and not sampler.replacement and sampler._num_samples is None:
            return self._shuffled(batches)
        return None

    def _shuffled(self, batches):
        order = batches.sampler.permutation(self.seed)  # drawn with the first batch, as ever
        self.seed = batches.sampler.last_seed
        yield from _cut(order, batches)

    def again(self):
        """The indices of the saved epoch from its beginning; streams are left as they are."""
        if self.start is not None:
            now = streams.saved()
            try:
                found = self.rewind()
                first = next(found, None)  # samplers draw when they are first asked
            finally:
                streams.put_back(now)
            return _with_first(first, found)
        if not self.by_seed or self.seed is None:
            return self.indices()
        if self.loader.num_workers == 0 and (arrays := self._arrays()) is not None:
            return arrays
        order = self.loader.sampler.order(self.seed)
        batches = self.loader.batch_sampler
        return order if batches is None else batches.batches(order)


def _cut(order, batches):
    size = batches.batch_size
    for begin in range(0, len(order), size):
        part = order[begin : begin + size]
        if len(part) == size or not batches.drop_last:
            yield part


def _with_first(first, rest):
    if first is not None:
        yield first
        yield from rest


def checked(state, loader):
    """A state that this loader can go on from; ValueError if it cannot."""
    wanted = {"version", "yielded", "ahead", "active", "seed", "start", "workers"}
    if not isinstance(state, dict) or not wanted <= state.keys():
        raise ValueError("DataLoader.load_state_dict: this is no state of a DataLoader")
    if state["version"] != VERSION:
        raise ValueError(f"DataLoader.load_state_dict: the state has version {state['version']}, "
                         f"this library writes version {VERSION}")
    streamed = isinstance(loader.dataset, IterableDataset)
    if streamed and state["active"] and state["num_workers"] != loader.num_workers:
        raise ValueError(
            f"DataLoader.load_state_dict: a stream read by {state['num_workers']} workers cannot "
            f"be continued by {loader.num_workers}")
    return state
