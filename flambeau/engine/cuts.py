"""Fronts of ops that cut a tensor into parts: which parts, was decided when they were first met."""

from __future__ import annotations

from ..ops.declare import Op
from .eager import PLAIN, new_table, tracers
from .tensor import Tensor
from .views import parts

_INT = frozenset((int,))


def _cut(sizes_of):
    """The front of f(x, integer, dim)."""
    def wrapped(op: Op, otherwise):
        known = new_table()

        def front(*args, **named):
            if named or tracers or Tensor not in PLAIN:
                return otherwise(*args, **named)
            try:
                found = known.get((args[0].sig, *args[1:]))
            except (AttributeError, TypeError, IndexError):
                return otherwise(*args)
            if found is None or not _INT.issuperset(map(type, args[1:])):
                result = otherwise(*args)
                if args[0].sig.tag is None and _INT.issuperset(map(type, args[1:])):
                    known[args[0].sig, *args[1:]] = sizes_of(args[0].sig, *args[1:])
                return result
            return parts(args[0], *found)

        front.__name__, front.__doc__ = op.name, op.doc
        return front

    return wrapped


def _of_size(sig, size: int, dim: int = 0):
    """(name of the step, dimension, sizes) of parts of one size."""
    n = sig.shape[dim]
    sizes = [min(size, n - start) for start in range(0, n, size)] if n else [0]
    return "SplitBackward0", dim % sig.rank, tuple(sizes)


def _of_number(sig, chunks: int, dim: int = 0):
    """The same of so many parts at most."""
    n = sig.shape[dim]
    if not n:
        return "SplitWithSizesBackward0", dim % sig.rank, (0,) * chunks
    return _of_size(sig, -(-n // chunks), dim)


FRONTS = {"split": _cut(_of_size), "chunk": _cut(_of_number)}
