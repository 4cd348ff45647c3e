"""DataLoader: batches of a data set, fetched in this process or ahead of time by workers."""

import functools
import itertools
import multiprocessing
import multiprocessing.context
import os
import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from . import resume
from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .epoch import BaseIter, MultiProcessIter, SingleProcessIter
from .fetch import FETCHERS
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

T_co = TypeVar("T_co", covariant=True)

# What loaders of other packages derive theirs from.
_BaseDataLoaderIter = BaseIter
_SingleProcessDataLoaderIter = SingleProcessIter
_MultiProcessingDataLoaderIter = MultiProcessIter

_collate_fn_t: TypeAlias = Callable[[list], Any]
_worker_init_fn_t: TypeAlias = Callable[[int], None]


class _DatasetKind:
    """Whether a data set is asked for its elements one by one, or gives them as they come."""

    Map, Iterable = 0, 1

    @staticmethod
    def create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last):
        """Who fetches batches of a data set."""
        return FETCHERS[kind](auto_collation, collate_fn, drop_last, dataset)


FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _Endless(Sampler):
    """The sampler of a stream, which has no indices."""

    def __iter__(self):
        return itertools.repeat(None)


class DataLoader(Generic[T_co]):
    """Iterates over a data set in batches, each epoch anew."""

    _initialized = False

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory_device="",
        in_order=True,
    ):
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.persistent_workers = persistent_workers
        self.generator = generator
        if pin_memory:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, "
                "then device pinned memory won't be used.",
                stacklevel=2,
            )
        streamed = isinstance(dataset, IterableDataset)
        if streamed:
            _check_stream(shuffle, sampler, batch_sampler)
        _check_batching(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            if streamed:
                sampler = _Endless()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self._iterator = None
        self._progress = self._resume = None
        self._keep_streams = False
        self._initialized = True
        _warn_about_cores(num_workers)

    @property
    def multiprocessing_context(self):
        return self._multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context):
        if context is not None:
            if self.num_workers == 0:
                raise ValueError(
                    "multiprocessing_context can only be used with multi-process loading "
                    f"(num_workers > 0), but got num_workers={self.num_workers}"
                )
            if isinstance(context, str):
                known = multiprocessing.get_all_start_methods()
                if context not in known:
                    raise ValueError(
                        "multiprocessing_context option should specify a valid start method in "
                        f"{known!r}, but got multiprocessing_context={context!r}"
                    )
                context = multiprocessing.get_context(context)
            if not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError(
                    "multiprocessing_context option should be a valid context object or a string "
                    f"specifying the start method, but got multiprocessing_context={context}"
                )
        self._multiprocessing_context = context

    def __setattr__(self, name, value):
        if self._initialized and name in FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    @property
    def _dataset_kind(self):
        return int(isinstance(self.dataset, IterableDataset))

    def _make_fetcher(self):
        """What turns a data set into a function from indices to a batch."""
        fetcher = FETCHERS[self._dataset_kind]
        return functools.partial(fetcher, self._auto_collation, self.collate_fn, self.drop_last)

    def __iter__(self):
        if self.num_workers == 0:
            if self.timeout:
                raise AssertionError("DataLoader: timeout is for workers, and there are none: "
                                     "_SingleProcessDataLoaderIter requires timeout == 0")
            return SingleProcessIter(self)
        if not self.persistent_workers:
            return MultiProcessIter(self)
        if self._iterator is None:
            self._iterator = MultiProcessIter(self)
        else:
            self._iterator.restart(self)
        return self._iterator

    def __len__(self):
        if not isinstance(self.dataset, IterableDataset):
            return len(self._index_sampler)
        length = len(self.dataset)
        if self.batch_size is None:
            return length
        whole, rest = divmod(length, self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def state_dict(self):
        """Where the loader is: in the middle of an epoch, or between two.

        Taken between two batches, it is what `load_state_dict` of a loader made alike needs to
        give out the very batches that would have come. The default random streams of this process
        are the program's, and not part of it.
        """
        self._keep_streams = True  # from now on workers tell theirs, so that resuming is quick
        progress = self._progress
        if progress is None:
            if self._resume is not None:
                return dict(self._resume)
            progress = resume.Progress(self)
            progress.finished = True
        return progress.state()

    def load_state_dict(self, state_dict):
        """Let the next iteration go on from a saved state; the one after it is a whole epoch."""
        state = resume.checked(state_dict, self)
        self._keep_streams = True
        self._resume, self._iterator, self._progress = dict(state), None, None
        if state["epoch"] is not None and hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(state["epoch"])
        if not state["active"]:
            resume.Progress(self).set_generators(state["generators"])

    def check_worker_number_rationality(self):
        """Warn if there are more workers than this process has cores."""
        _warn_about_cores(self.num_workers)


# -- checks of the arguments ------------------------------------------------------------------


def _check_workers(num_workers, timeout, prefetch_factor, persistent_workers):
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable "
            "multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle, sampler, batch_sampler):
    for name, value, bad in (
        ("shuffle", shuffle, shuffle not in (None, False)),
        ("sampler", sampler, sampler is not None),
        ("batch_sampler", batch_sampler, batch_sampler is not None),
    ):
        if bad:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, "
                f"but got {name}={value}"
            )


def _check_batching(batch_size, shuffle, sampler, batch_sampler, drop_last):
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                "and drop_last"
            )
    elif batch_size is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )


def _warn_about_cores(num_workers):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores and num_workers > cores:
        warnings.warn(
            f"This DataLoader will create {num_workers} worker processes in total. Our suggested "
            f"max number of worker in current system is {cores}, which is smaller than what this "
            "DataLoader is going to create. Please be aware that excessive worker creation might "
            "get DataLoader running slow or even freeze, lower the worker number to avoid "
            "potential slowness/freeze if necessary.",
            stacklevel=3,
        )
