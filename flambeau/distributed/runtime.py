"""The MPI library of this process: started once, ended when the process ends.

mpi4py speaks to it; only starting and ending go through ctypes, which lets go of the interpreter's
lock, so that the thread that answers MPI's questions about its peers can run meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
from typing import Any

from .errors import DistError
from .pmi import ProcessManager
from .store import Store

MISSING = ("distributed needs MPI: pip install 'flambeau[distributed]' "
           "(mpi4py and an MPI runtime, both as wheels)")

THREAD_MULTIPLE = 3
SHARED = "/dev/shm/mpich_shm_"

#: variables a process manager of MPI sets: the name of the rank, the name of the size
MANAGERS = (
    ("PMI_RANK",             "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK",            "PMIX_SIZE"),
)  # fmt: skip


class Runtime:
    """MPI, and whether it is running."""

    def __init__(self) -> None:
        self.mpi: Any = None
        self.library: Any = None
        self.manager: ProcessManager | None = None
        self.started = False


runtime = Runtime()


def is_available() -> bool:
    """Whether mpi4py is installed."""
    return importlib.util.find_spec("mpi4py") is not None


def managed() -> tuple[int, int] | None:
    """(rank, size) when mpiexec started this process."""
    for rank, size in MANAGERS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


def load() -> Any:
    """mpi4py.MPI, not yet started."""
    if runtime.mpi is None:
        if not is_available():
            raise ImportError(MISSING)
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError, OSError) as error:
            raise ImportError(f"{MISSING}: {error}") from error
        runtime.mpi, runtime.library = MPI, ctypes.CDLL(MPI.__file__)
    return runtime.mpi


def start(store: Store | None, rank: int, size: int) -> Any:
    """MPI with `size` ranks, of which this is `rank`; a store where nobody else manages them."""
    mpi = load()
    if not mpi.Is_initialized():
        if store is not None:
            runtime.manager = ProcessManager(store, rank, size)
        provided = ctypes.c_int()
        code = runtime.library.MPI_Init_thread(None, None, THREAD_MULTIPLE, ctypes.byref(provided))
        if runtime.manager is not None:
            runtime.manager.forget()
        if code:
            raise DistError(f"MPI did not start: error {code}")
        runtime.started = True
    world = mpi.COMM_WORLD
    if (world.Get_rank(), world.Get_size()) != (rank, size):
        raise ValueError(
            f"init_process_group: rank {rank} of {size} was asked for, but MPI is running as rank "
            f"{world.Get_rank()} of {world.Get_size()}; a process has one place in MPI")
    return mpi


def finish() -> None:
    """End MPI, if it was started here; all ranks must do it."""
    if runtime.started and not runtime.mpi.Is_finalized():
        runtime.library.MPI_Finalize()


def hide_shared_memory() -> None:
    """Take the names off MPI's shared memory: a process that is killed leaves none behind.

    Only when all ranks have it mapped.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8") as lines:
            paths = {line.split(maxsplit=5)[-1].strip() for line in lines if SHARED in line}
    except OSError:
        return
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def retire() -> None:
    """The process ends: nobody will answer MPI any more."""
    if runtime.manager is not None:
        runtime.manager.retire()
