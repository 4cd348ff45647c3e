"""One pool of threads for every kernel, in machine code.

    void flambeau_parallel(void (*body)(ptr context, i64 begin, i64 end),
                           ptr context, i64 count, i64 grain)

calls `body` for ranges that together cover [0, count), on as many threads as the pool has, and
returns when all are done. Ranges are taken from a counter, so a thread that the system keeps from
running holds nobody up but with the range it took. Workers wait in native code: a short spin, then
asleep. A call from inside another, or while another thread of Python uses the pool, runs alone.
"""

from __future__ import annotations

import ctypes
import os
import sys

from .bridge import jit
from .objects import addresses, cache, once
from .thread_text import ALONE, CORES, FIELDS, POOL_BYTES, PTHREAD, pool_text, pool_words

DECLARATION = "declare void @flambeau_parallel(ptr, ptr, i64, i64)\n"


class _Pool:
    """The words that the pool's code works on, and what Python knows of it."""

    memory: ctypes.Array | None = None
    address = 0
    limit = 0


def _words() -> int:
    """The address of the pool's words, 64-byte aligned, made on first use."""
    if _Pool.memory is None:
        _Pool.memory = ctypes.create_string_buffer(POOL_BYTES + 64)
        _Pool.address = -(-ctypes.addressof(_Pool.memory) // 64) * 64
        _renew()
    return _Pool.address


def _write(field: str, value: int) -> None:
    ctypes.c_int64.from_address(_words() + FIELDS[field]).value = value


def _renew() -> None:
    """A pool without workers, as at the start of a process; a fork leaves them behind."""
    if _Pool.memory is None:
        return
    words = pool_words(get_num_threads())
    ctypes.memmove(_Pool.address, words.buffer_info()[0], POOL_BYTES)
    if _posix():
        library = ctypes.CDLL(None)
        for field, make in (("mutex", "pthread_mutex_init"), ("work", "pthread_cond_init"),
                            ("done", "pthread_cond_init")):
            getattr(library, make)(ctypes.c_void_p(_Pool.address + FIELDS[field]), None)


def _posix() -> bool:
    return sys.platform != "win32"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@once
def publish() -> None:
    """Make `flambeau_parallel` known to generated code."""
    j = jit()
    add = j.publish
    add("flambeau_pool", _words())
    write = lambda: ALONE  # noqa: E731
    if _posix():
        library = ctypes.CDLL(None)
        moves = sys.platform == "linux" and all(hasattr(library, name) for name in CORES)
        for name in (*PTHREAD, *(CORES if moves else ())):
            add(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)
        write = lambda: pool_text(j.machine.triple, moves)  # noqa: E731
    (found,) = addresses(cache().key("threads"), ("flambeau_parallel_pool",), write)
    add("flambeau_parallel", found)


def available_threads() -> int:
    """How many threads this process should use: what it was told, or the cores it may run on."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        first = os.environ.get(name, "").split(",")[0].strip()
        if first.isdigit() and int(first) > 0:
            return int(first)
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def get_num_threads() -> int:
    """How many threads a kernel may use."""
    if _Pool.limit == 0:
        _Pool.limit = available_threads()
    return _Pool.limit


def set_num_threads(count: int) -> None:
    """Let kernels use up to `count` threads; workers are started when first needed."""
    _Pool.limit = count
    _write("limit", count)
