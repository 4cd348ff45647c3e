"""Megabytes of tensors and of workspace that one step of flambeau's needs.

Free lists are emptied before it, so all that it takes at once is made anew and counted, by sizes;
what it hands back in between is taken again. A compiled step has most of it in the arenas of its
programs, which are counted as they are.
"""

from __future__ import annotations

import gc


def of_step(step) -> float:
    """Of a step that has been taken before."""
    from flambeau.devices.cpu import memory

    made = 0
    make, batch = memory._block, memory.BATCH

    def counted(address, size, pool, owner):
        nonlocal made
        made += size
        return make(address, size, pool, owner)

    idle = [pool.pop() for pool in memory._pools.values() for _ in range(len(pool))]
    memory._block, memory.BATCH = counted, 1
    try:
        step()
    finally:
        memory._block, memory.BATCH = make, batch
        idle.clear()
    return (made + sum(map(_held, _programs()))) / 2**20


def _programs() -> list:
    """Of all that was compiled, the programs that have run."""
    from flambeau.compiler.program import Program

    return [x for x in gc.get_objects() if isinstance(x, Program) and "code" in x.__dict__]


def _held(program) -> int:
    """Bytes that a program holds between its runs."""
    return program.size + program.data.nbytes
