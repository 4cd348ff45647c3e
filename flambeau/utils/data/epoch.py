"""Iterators over a DataLoader: one epoch, in this process or by workers."""

import itertools
import multiprocessing
import sys
import warnings
import weakref

from . import streams
from . import worker as work
from .crew import Crew
from .resume import Progress
from .sampler import draw_seed
from .stranger import received

END = object()


class BaseIter:
    """One epoch. The seed of its workers is drawn even without any: streams stay the same."""

    def __init__(self, loader):
        self._loader = loader = received(loader)
        self._streamed = bool(loader._dataset_kind)
        self._begin(loader)

    def _begin(self, loader):
        """Start an epoch, or go on with the one whose state was loaded."""
        state, loader._resume = loader._resume, None
        active = state is not None and state["active"]
        self._progress = loader._progress = Progress(loader, state if active else None)
        self._resumed = active
        self._indices = self._progress.again() if active else self._progress.indices()
        seed = state["base_seed"] if state is not None and (
            active or loader.persistent_workers) else None
        self._base_seed = self._seed(loader) if seed is None else seed
        self._progress.base_seed = self._base_seed
        if state is not None and not active and loader.persistent_workers:
            self._progress.workers = state["workers"]
        if not active and self._progress.begun_twice():
            self._indices = self._progress.indices()

    def _seed(self, loader):
        return draw_seed(loader.generator)

    def __iter__(self):
        return self

    def __len__(self):
        return len(self._loader._index_sampler)

    def __next__(self):
        try:
            batch = self._next()
        except StopIteration:
            self._progress.finished = True
            raise
        if self._streamed:
            self._warn_if_longer()
        return batch

    def _warn_if_longer(self):
        yielded = self._progress.yielded
        if hasattr(self._loader.dataset, "__len__") and yielded > len(self._loader):
            warnings.warn(
                f"Length of IterableDataset {self._loader.dataset} was reported to be "
                f"{len(self._loader)}, but {yielded} samples have been fetched.",
                stacklevel=3,
            )


class SingleProcessIter(BaseIter):
    def __init__(self, loader):
        super().__init__(loader)
        loader = self._loader
        self._fetch = loader._make_fetcher()(loader.dataset)
        if self._resumed:
            self._skip()

    def _skip(self):
        """Come to where the saved epoch was, without a trace in the streams of random numbers."""
        if not self._streamed:
            for _ in range(self._progress.yielded):
                next(self._indices, None)
            return
        now = streams.saved()
        self._progress.rewind()
        try:
            for _ in range(self._progress.yielded):
                self._fetch(next(self._indices))
        finally:
            streams.put_back(now)

    def _next(self):
        batch = self._fetch(next(self._indices))
        self._progress.yielded += 1
        return batch


def _usual_context():
    """How processes start where nobody has said it.

    Forked workers need not be sent the dataset, and are there in milliseconds; so it is on Linux
    with every Python, also from 3.14 on, which would have a server fork for others.
    """
    if multiprocessing.get_start_method(allow_none=True) is None and sys.platform == "linux":
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context()


class MultiProcessIter(BaseIter):
    """Workers are kept prefetch_factor batches ahead each; results come back in order.

    A batch has a number. `_pending` maps the numbers handed out to their worker, and `_arrived`
    holds results whose turn has not come.
    """

    def __init__(self, loader):
        super().__init__(loader)
        loader = self._loader
        context = loader.multiprocessing_context or _usual_context()
        self._crew = Crew(loader, context, self._base_seed, loader._make_fetcher())
        # Kept alive by the finalizer, so in a cycle of garbage, too, and at exit, the crew is whole
        # when it stops; __del__ might find its connections finalized and close them twice.
        self._end = weakref.finalize(self, self._crew.stop)
        self._workers = [member.process for member in self._crew.members]
        self._numbers = itertools.count()
        self._stays = False  # whether these workers have served an epoch before
        self._prime()

    def _seed(self, loader):
        """Workers that stay keep their seed."""
        if not hasattr(self, "_crew"):
            return draw_seed(loader.generator)
        self._stays = True
        self._progress.drew = False
        return self._base_seed

    def restart(self, loader):
        """Another epoch with the same workers; what is under way of the last is ignored."""
        self._begin(loader)
        for i in range(len(self._workers)):
            self._crew.send(i, work.Restart())
        self._prime()

    def _prime(self):
        """Hand out the first batches of an epoch."""
        progress, workers = self._progress, range(len(self._workers))
        self._pending, self._arrived = {}, {}
        self._active = list(workers)
        self._rotation = self._place = 0
        self._unseen = set(workers) if self._stays else set()  # whose streams are not known yet
        saved = self._saved_streams()
        for i in workers:
            self._crew.members[i].streams = saved[i]
            known = saved[i] or (progress.origins or {}).get(i)
            if known is not None:
                self._crew.send(i, work.Restart(known, renew=self._streamed))
                self._unseen.discard(i)
        if self._resumed and not self._streamed:
            self._catch_up(saved)
        for _ in range(self._loader.prefetch_factor * len(workers)):
            self._hand_out()
        if self._resumed and self._streamed:
            yielded, progress.yielded = progress.yielded, 0
            for _ in range(yielded):
                self._next()

    def _saved_streams(self):
        """The streams that workers go on with; a stream of samples is read from its start."""
        saved, count = self._progress.workers, len(self._workers)
        if saved is None or len(saved) != count or (self._streamed and self._resumed):
            return [None] * count
        return saved

    def _catch_up(self, saved):
        """Pass over what was given out before; a worker without saved streams fetches it again."""
        ahead = self._progress.ahead
        low = self._progress.yielded - len(ahead)
        left_over = []
        for place in range(max(ahead, default=low - 1) + 1):
            indices = next(self._indices, END)
            worker = place % len(self._workers)
            if place >= low and place not in ahead:
                left_over.append((worker, indices, place))
            elif saved[worker] is None and indices is not END:
                self._crew.send(worker, work.Job(-1, indices, [], discard=True))
            self._rotation = self._place = place + 1
        for each in left_over:
            self._give(*each)

    def _hand_out(self):
        """Give the next batch to the next worker that still has something to fetch."""
        if not self._active:
            return
        indices = next(self._indices, END)
        if indices is END:
            return
        worker = self._active[self._rotation % len(self._active)]
        self._rotation += 1
        self._give(worker, indices, self._place)
        self._place += 1

    def _give(self, worker, indices, place):
        number = next(self._numbers)
        self._pending[number] = worker, place
        keep = ("after",) if self._loader._keep_streams else ()
        if worker in self._unseen:
            self._unseen.discard(worker)
            keep = ("before", *keep)
        self._crew.send(worker, work.Job(number, indices, [], keep))

    def _next(self):
        while True:
            number = self._awaited()
            if number is None:
                self._finish()
                raise StopIteration
            result, saved = self._arrived.pop(number)
            worker, place = self._pending.pop(number)
            if isinstance(result, work.Exhausted):
                if worker in self._active:
                    self._active.remove(worker)
                self._hand_out()
                continue
            self._hand_out()
            if isinstance(result, work.Failure):
                if not self._loader.persistent_workers:
                    self.shutdown()
                result.reraise()
            self._note(worker, place, *saved)
            return result

    def _note(self, worker, place, before, after):
        """Write down what the state of the loader consists of."""
        progress = self._progress
        progress.gave_out(place)
        if before is not None:
            progress.origins = {**(progress.origins or {}), worker: before}
        self._crew.members[worker].streams = after
        if after is not None or progress.workers is not None:
            progress.workers = [member.streams for member in self._crew.members]

    def _awaited(self):
        """The number of the batch to give out next, once it is here; None at the end."""
        while self._pending:
            number = min(self._pending)
            if not self._loader.in_order:
                number = next(iter(self._arrived), None)
            if number in self._arrived:
                return number
            _, answer, result, saved = self._crew.receive(self._loader.timeout)
            if answer in self._pending:
                self._arrived[answer] = (result, saved)
        return None

    def _finish(self):
        if not self._loader.persistent_workers:
            self.shutdown()

    def shutdown(self):
        """End the workers."""
        self._pending, self._arrived, self._active = {}, {}, []
        self._end()
