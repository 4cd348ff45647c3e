"""DataLoader: batches of a data set, fetched in this process or ahead of time by workers."""

import functools
import itertools
import multiprocessing
import multiprocessing.context
import os
import queue
import time
import warnings
from typing import Generic, TypeVar

from . import worker as work
from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

T_co = TypeVar("T_co", covariant=True)

LIVENESS_CHECK = 0.5  # seconds of silence after which workers are looked at
GRACE = 1.0  # seconds a worker has to end by itself
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

    def _make_fetcher(self):
        """What turns a data set into a function from indices to a batch."""
        streamed = isinstance(self.dataset, IterableDataset)
        fetcher = _StreamFetcher if streamed else _MapFetcher
        return functools.partial(fetcher, self._auto_collation, self.collate_fn, self.drop_last)

    def __iter__(self):
        if self.num_workers == 0:
            return _SingleProcessIter(self)
        if not self.persistent_workers:
            return _MultiProcessIter(self)
        if self._iterator is None:
            self._iterator = _MultiProcessIter(self)
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


# -- from indices to a batch ------------------------------------------------------------------


class _MapFetcher:
    """Samples by index, in one call per batch where the data set offers `__getitems__`."""

    def __init__(self, batched, collate, drop_last, dataset):
        self.batched, self.collate, self.dataset = batched, collate, dataset
        self.together = getattr(dataset, "__getitems__", None)

    def __call__(self, indices):
        if not self.batched:
            return self.collate(self.dataset[indices])
        if self.together is not None:
            return self.collate(self.together(indices))
        return self.collate([self.dataset[i] for i in indices])


class _StreamFetcher:
    """The next samples of a stream; raises StopIteration at its end."""

    def __init__(self, batched, collate, drop_last, dataset):
        self.batched, self.collate, self.drop_last = batched, collate, drop_last
        self.samples = iter(dataset)

    def __call__(self, indices):
        if not self.batched:
            return self.collate(next(self.samples))
        batch = list(itertools.islice(self.samples, len(indices)))
        if not batch or (self.drop_last and len(batch) < len(indices)):
            raise StopIteration
        return self.collate(batch)


# -- iterators --------------------------------------------------------------------------------


class _BaseIter:
    """One epoch. The seed of its workers is drawn even without any: streams stay the same."""

    def __init__(self, loader):
        self._loader = loader
        self._base_seed = draw_seed(loader.generator)
        self._begin(loader)

    def _begin(self, loader):
        self._indices = iter(loader._index_sampler)
        self._yielded = 0

    def __iter__(self):
        return self

    def __len__(self):
        return len(self._loader._index_sampler)

    def __next__(self):
        batch = self._next()
        self._yielded += 1
        if isinstance(self._loader.dataset, IterableDataset):
            self._warn_if_longer()
        return batch

    def _warn_if_longer(self):
        if hasattr(self._loader.dataset, "__len__") and self._yielded > len(self._loader):
            warnings.warn(
                f"Length of IterableDataset {self._loader.dataset} was reported to be "
                f"{len(self._loader)}, but {self._yielded} samples have been fetched.",
                stacklevel=3,
            )


class _SingleProcessIter(_BaseIter):
    def __init__(self, loader):
        super().__init__(loader)
        self._fetch = loader._make_fetcher()(loader.dataset)

    def _next(self):
        return self._fetch(next(self._indices))


class _MultiProcessIter(_BaseIter):
    """Workers are kept prefetch_factor batches ahead each; results come back in order.

    A batch has a number. `_pending` maps the numbers handed out to their worker, and `_arrived`
    holds results whose turn has not come.
    """

    def __init__(self, loader):
        super().__init__(loader)
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self._results = context.Queue()
        self._stop = context.Event()
        self._jobs, self._workers = [], []
        for i in range(loader.num_workers):
            jobs = context.Queue()
            jobs.cancel_join_thread()
            arguments = (
                i,
                loader.num_workers,
                loader.dataset,
                loader._make_fetcher(),
                jobs,
                self._results,
                self._stop,
                self._base_seed,
                loader.worker_init_fn,
            )
            process = context.Process(target=work.run, args=arguments, daemon=True)
            process.start()
            self._jobs.append(jobs)
            self._workers.append(process)
        self._prime()

    def _prime(self):
        """Hand out the first batches of an epoch."""
        self._handed_out = itertools.count()
        self._turn = 0
        self._pending, self._arrived = {}, {}
        self._active = list(range(len(self._workers)))
        self._rotation = 0
        for _ in range(self._loader.prefetch_factor * len(self._workers)):
            self._hand_out()

    def restart(self, loader):
        """Another epoch with the same workers."""
        for number in self._arrived:  # an epoch that was left early: what has come already,
            self._pending.pop(number, None)
        while self._pending:  # and what is still to come
            number, _ = self._receive()
            self._pending.pop(number, None)
        self._begin(loader)
        for jobs in self._jobs:
            jobs.put(work.Restart())
        waiting = len(self._workers)
        while waiting:
            answer, _ = self._receive()
            waiting -= isinstance(answer, work.Ready)
        self._prime()

    def _hand_out(self):
        """Give the next batch to the next worker that still has something to fetch."""
        if not self._active:
            return
        indices = next(self._indices, work)
        if indices is work:
            return
        worker = self._active[self._rotation % len(self._active)]
        self._rotation += 1
        number = next(self._handed_out)
        self._pending[number] = worker
        self._jobs[worker].put(work.Job(number, indices))

    def _next(self):
        while True:
            number = self._awaited()
            if number is None:
                self._finish()
                raise StopIteration
            result = self._arrived.pop(number)
            self._pending.pop(number)
            if isinstance(result, work.Exhausted):
                if result.worker in self._active:
                    self._active.remove(result.worker)
                self._hand_out()
                continue
            self._hand_out()
            if isinstance(result, work.Failure):
                if not self._loader.persistent_workers:
                    self.shutdown()
                result.reraise()
            return result

    def _awaited(self):
        """The number of the batch to give out next, once it is here; None at the end."""
        while self._pending:
            number = min(self._pending)
            if not self._loader.in_order:
                number = next(iter(self._arrived), None)
            if number in self._arrived:
                return number
            answer, result = self._receive()
            if answer in self._pending:
                self._arrived[answer] = result
        return None

    def _receive(self):
        """The next message of any worker; promptly an error if one has died."""
        timeout = self._loader.timeout
        deadline = time.monotonic() + timeout if timeout else None
        while True:
            wait = LIVENESS_CHECK if not timeout else max(0.0, deadline - time.monotonic())
            try:
                return self._results.get(timeout=min(wait, LIVENESS_CHECK))
            except queue.Empty:
                dead = [p.pid for p in self._workers if not p.is_alive()]
                if dead:
                    self.shutdown()
                    pids = ", ".join(map(str, dead))
                    raise RuntimeError(
                        f"DataLoader worker (pid(s) {pids}) exited unexpectedly"
                    ) from None
                if timeout and time.monotonic() >= deadline:
                    self.shutdown()
                    raise RuntimeError(f"DataLoader timed out after {timeout} seconds") from None

    def _finish(self):
        if not self._loader.persistent_workers:
            self.shutdown()

    def shutdown(self):
        """End the workers; kindly, then not."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._pending, self._arrived, self._active = {}, {}, []
        for jobs in self._jobs:
            jobs.put(None)
        for process in self._workers:
            process.join(timeout=GRACE)
            if process.is_alive():
                process.terminate()
                process.join()
        for channel in (*self._jobs, self._results):
            channel.cancel_join_thread()
            channel.close()

    def __del__(self):
        if hasattr(self, "_stop") and len(getattr(self, "_workers", ())) > 0:
            self.shutdown()
