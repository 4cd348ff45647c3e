"""Python's multiprocessing, through which tensors go without their elements being copied.

Importing this lets every queue, pipe and process argument of `multiprocessing` pass tensors by
shared memory. `share` gives the handle by itself.
"""

import multiprocessing
from multiprocessing import *

from flambeau.assemble import shared_memory

from .reductions import Handle, init_reductions, share
from .spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

#: file_system: by names in shared memory, which end with the program; the sender may end first
#: file_descriptor: by open files, which never have names; the sender must live until received
_STRATEGIES = {"file_system": True, "file_descriptor": False}


def get_all_sharing_strategies():
    """The ways in which blocks of shared memory are passed."""
    return set(_STRATEGIES)


def get_sharing_strategy():
    """The way in which new blocks of shared memory are passed."""
    return next(name for name, named in _STRATEGIES.items() if named == (
        shared_memory.Strategy.named))


def set_sharing_strategy(new_strategy):
    """Choose how new blocks of shared memory are passed."""
    if new_strategy not in _STRATEGIES:
        raise ValueError(f"set_sharing_strategy: there are {sorted(_STRATEGIES)}, not "
                         f"{new_strategy!r}")
    shared_memory.Strategy.named = _STRATEGIES[new_strategy]


init_reductions()

__all__ = [
    *multiprocessing.__all__, "Handle", "ProcessContext", "ProcessException",
    "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
    "get_all_sharing_strategies", "get_sharing_strategy", "init_reductions",
    "set_sharing_strategy", "share", "spawn", "start_processes",
]
