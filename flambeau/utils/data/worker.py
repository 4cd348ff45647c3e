"""What a worker process of a DataLoader does: wait for indices, fetch, send the batch back."""

import os
import queue
import random
import traceback
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import flambeau

PARENT_CHECK = 5.0  # seconds between looks whether the parent is still there


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
    """A batch to fetch."""

    number: int
    indices: Any


class Restart:
    """Begin a new epoch; random numbers go on where they were."""


class Exhausted(NamedTuple):
    """A worker's own stream has ended."""

    worker: int


class Ready(NamedTuple):
    """A worker has begun the new epoch."""

    worker: int


class Failure:
    """An exception in a worker, as text that survives pickling."""

    def __init__(self, error, worker):
        self.kind = type(error)
        self.text = (
            f"Caught {type(error).__name__} in DataLoader worker process {worker}.\n"
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


def seed_everything(base_seed, worker):
    """Give a worker random numbers of its own."""
    seed = base_seed + worker
    random.seed(seed)
    flambeau.manual_seed(seed)
    words = [worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    np.random.seed(np.random.SeedSequence(words).generate_state(4))
    return seed


def run(worker, num_workers, dataset, make_fetcher, jobs, results, stop, base_seed, init_fn):
    """The life of a worker: until it is told None, or its parent is gone."""
    global _info
    try:
        flambeau.set_num_threads(1)
        _info = WorkerInfo(worker, num_workers, seed_everything(base_seed, worker), dataset)
        failure = None
        try:
            if init_fn is not None:
                init_fn(worker)
            fetch = make_fetcher(dataset)
        except Exception as error:
            failure, fetch = Failure(error, worker), None
        parent = os.getppid()
        while not stop.is_set():
            try:
                job = jobs.get(timeout=PARENT_CHECK)
            except queue.Empty:
                if os.getppid() != parent:
                    return
                continue
            if job is None:
                return
            if isinstance(job, Restart):
                if failure is None:
                    fetch = make_fetcher(dataset)
                results.put((Ready(worker), None))
                continue
            results.put((job.number, failure or _attempt(fetch, job.indices, worker)))
            failure = None
    except KeyboardInterrupt:
        pass  # the parent reports it
    finally:
        if stop.is_set():
            results.cancel_join_thread()
        results.close()


def _attempt(fetch, indices, worker):
    try:
        return fetch(indices)
    except StopIteration:
        return Exhausted(worker)
    except Exception as error:
        return Failure(error, worker)
