"""What a worker process of a DataLoader does: wait for indices, fetch, lend the batch."""

import contextlib
import faulthandler
import gc
import os
import pickle
import signal
import traceback
from dataclasses import dataclass
from typing import Any, NamedTuple

import flambeau

from . import lending, renewal, streams
from .channel import Channel

PARENT_CHECK = 5.0  # seconds between looks whether the parent is still there
DUMP_SIGNAL = getattr(signal, "SIGUSR2", None)  # asks a worker where it is


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this process is."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info = None


def get_worker_info():
    """In a worker its WorkerInfo (id, num_workers, seed, dataset); elsewhere None."""
    return _info


class Job(NamedTuple):
    """A batch to fetch: for the reader, or only to bring the worker to where it was (`discard`)."""

    number: int
    indices: Any
    returned: list  # blocks that the reader has no more use for
    keep: tuple = ()  # when to save the random streams: "before" the job, "after" it
    discard: bool = False


class Restart(NamedTuple):
    """Begin a new epoch; random numbers go on where they were, or at a saved state."""

    streams: Any = None
    renew: bool = True


class Exhausted(NamedTuple):
    """A worker's own stream has ended."""

    worker: int


class Hello(NamedTuple):
    """A process begins to serve as the worker; the file for its last words follows."""

    pid: int
    generation: int


class Result(NamedTuple):
    """What became of a job. Handles of new blocks, (number, bytes), follow the message."""

    number: int
    data: Any
    buffers: list
    used: list
    new: list
    gone: list  # blocks that will not come again
    streams: tuple  # of random numbers, before and after; None if not asked for


class Failure:
    """An exception in a worker, as text that survives pickling."""

    def __init__(self, error, worker, where):
        self.kind = type(error)
        self.text = (
            f"Caught {type(error).__name__} in DataLoader worker process {worker}.\n{where}"
            f"Original {''.join(traceback.format_exception(error))}"
        )

    def reraise(self):
        """Raise the same type of exception, with the worker's traceback as its message."""
        if issubclass(self.kind, KeyError):
            raise self.kind(_Verbatim(self.text))  # KeyError prints its argument's repr
        try:
            error = self.kind(self.text)
        except Exception:
            raise RuntimeError(self.text) from None
        raise error


class _Verbatim(str):
    __slots__ = ()

    def __repr__(self):
        return str(self)


@dataclass
class Duty:
    """All that a worker is told when it begins."""

    worker: int
    num_workers: int
    dataset: Any
    make_fetcher: Any
    connection: Any
    others: list  # ends of connections that a forked worker must not hold open
    status: Any
    base_seed: int
    init_fn: Any


def describe(indices, at=None):
    """Which samples are meant, as a phrase."""
    if indices is None:
        return ""
    if at is not None:
        return f" at index {at!r}"
    shown = indices if not isinstance(indices, list) or len(indices) <= 16 else (
        f"[{', '.join(map(repr, indices[:16]))}, ...]")
    return f" at indices {shown}" if isinstance(indices, list) else f" at index {shown!r}"


def run(duty):
    """The life of a worker: until the connection ends, or its parent is gone."""
    gc.freeze()  # what was inherited is not walked, so its pages stay shared
    gc.enable()
    for other in duty.others:
        other.close()
    signal.signal(signal.SIGINT, lambda *_: None)  # the parent hears it too, and ends its workers
    _Life(duty).serve()


class _Life:
    def __init__(self, duty):
        global _info
        self.duty = duty
        self.parent = os.getppid()
        self.channel = Channel(duty.connection)
        self.channel.peer = self.parent
        self.fetch = self.failure = None
        self.generation = 0
        self._introduce()
        flambeau.set_num_threads(1)
        seed = streams.seed_worker(duty.base_seed, duty.worker)
        _info = WorkerInfo(duty.worker, duty.num_workers, seed, duty.dataset)
        try:
            if duty.init_fn is not None:
                duty.init_fn(duty.worker)
            self._begin()
        except Exception as error:
            self.failure = Failure(error, duty.worker, "")
        self.renewal = renewal.Renewal(duty.dataset)

    def _introduce(self):
        """Say who serves, and open the file that a crash, or a question, writes a traceback to."""
        self.arena = lending.Arena(self.generation) if lending.POSSIBLE else None
        lending.set_arena(self.arena)
        self.words = lending.memory_file(0)
        faulthandler.enable(self.words, all_threads=False)
        if DUMP_SIGNAL is not None:
            faulthandler.register(DUMP_SIGNAL, self.words, all_threads=False, chain=False)
        handles = [self.words] if lending.POSSIBLE else []
        self.channel.send(pickle.dumps(Hello(os.getpid(), self.generation)), handles)

    def _begin(self):
        self.fetch = self.duty.make_fetcher(self.duty.dataset)
        self.fetch.status = self.duty.status

    def serve(self):
        """Do what is asked until there is nobody to ask."""
        with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):
            while True:
                while not self.channel.ready(PARENT_CHECK):
                    if os.getppid() != self.parent:
                        return
                order = pickle.loads(self.channel.receive())
                if order is None:
                    return
                self._obey(order)
                if self.renewal.due() and not self._renew():
                    return

    def _obey(self, order):
        if isinstance(order, Restart):
            if order.streams is not None:
                streams.put_back(order.streams)
            if order.renew and self.failure is None:
                try:
                    self._begin()
                except Exception as error:
                    self.failure = Failure(error, self.duty.worker, "")
            return
        if self.arena is not None:
            self.arena.give_back(order.returned)
        self.duty.status[1] = order.number
        self.duty.status[0] = -1
        before = streams.saved() if "before" in order.keep else None
        found, self.failure = self.failure or self._attempt(order.indices), None
        if order.discard:
            if self.arena is not None:
                self.arena.abandon()
        else:
            after = streams.saved() if "after" in order.keep else None
            self._answer(order, found, (before, after))
        self.duty.status[1] = -1

    def _attempt(self, indices):
        try:
            return self.fetch(indices)
        except StopIteration:
            return Exhausted(self.duty.worker)
        except Exception as error:
            phrase = describe(indices, self.fetch.at)
            return Failure(error, self.duty.worker, f"It was fetching the batch{phrase}.\n")

    def _answer(self, order, found, kept):
        """Send a batch, or why there is none."""
        try:
            data, buffers, used, new = self._packed(found)
        except Exception as error:  # a batch that cannot be pickled
            if self.arena is not None:
                self.arena.abandon()
            phrase = describe(order.indices)
            found = Failure(error, self.duty.worker, f"It was sending the batch{phrase}.\n")
            data, buffers, used, new = self._packed(found)
        shown = [(block.number, block.nbytes) for block, _ in new]
        gone = [] if self.arena is None else self.arena.told_gone()
        message = Result(order.number, data, buffers, used, shown, gone, kept)
        try:
            self.channel.send(pickle.dumps(tuple(message), 5), [handle for _, handle in new])
        finally:
            for _, handle in new:
                os.close(handle)

    def _packed(self, found):
        if self.arena is None:
            return pickle.dumps(found, 5), [], [], []
        data, buffers = lending.packed(self.arena, found)
        return data, buffers, *self.arena.close()

    def _renew(self):
        """Let a fresh process go on; False in the one that has ended its service."""
        state = self.renewal.hand_over(streams.saved)
        if state is None:
            return False
        streams.put_back(state)
        self.parent = os.getppid()
        self.generation = self.renewal.generation
        os.close(self.words)
        self._introduce()
        return True
