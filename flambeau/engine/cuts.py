"""Fronts of ops that cut, turn and roll a tensor: what integers mean for a signature was decided
when they were first met."""

from __future__ import annotations

from ..core import formats as fm
from ..core import shape as sh
from ..ops.declare import Op
from .eager import new_table
from .interception import PLAIN, tracers
from .movement import flipped, rolled
from .tensor import Tensor
from .views import parts

_INT = frozenset((int,))


def _met(work, meant):
    """The front of f(x, integers ...), which is `work(x, ...)` of what they are `meant` to be."""
    def wrapped(op: Op, otherwise):
        known = new_table()

        def front(*args, **named):
            if named or tracers or Tensor not in PLAIN:
                return otherwise(*args, **named)
            given = args[1:]
            if not _INT.issuperset(map(type, given)):
                given = _plain(given)
            try:
                found = None if given is None else known.get((args[0].sig, *given))
            except (AttributeError, IndexError):
                return otherwise(*args)
            if found is None:
                result = otherwise(*args)
                if given is not None and args[0].sig.tag is None:
                    known[args[0].sig, *given] = meant(args[0].sig, *given)
                return result
            return work(args[0], *found)

        front.__name__, front.__doc__ = op.name, op.doc
        return front

    return wrapped


def _plain(given: tuple) -> tuple | None:
    """Integers, and lists of them as tuples; None if there is anything else: 2.0 would be found
    where 2 is."""
    found = tuple([tuple(a) if type(a) is list else a for a in given])
    plain = all([type(a) is int or (type(a) is tuple and _INT.issuperset(map(type, a)))
                 for a in found])
    return found if plain else None


def _of_size(sig, size: int | tuple, dim: int = 0):
    """(name of the step, dimension, sizes) of parts of one size, or of sizes that are given."""
    if isinstance(size, tuple):
        return "SplitWithSizesBackward0", dim % sig.rank, size
    n = sig.shape[dim]
    sizes = [min(size, n - start) for start in range(0, n, size)] if n else [0]
    return "SplitBackward0", dim % sig.rank, tuple(sizes)


def _of_number(sig, chunks: int, dim: int = 0):
    """The same of so many parts at most."""
    n = sig.shape[dim]
    if not n:
        return "SplitWithSizesBackward0", dim % sig.rank, (0,) * chunks
    return _of_size(sig, -(-n // chunks), dim)


def _turned(sig, *dims):
    if len(dims) == 1 and type(dims[0]) is tuple:
        dims = dims[0]
    return (sh.wrap_dims(dims, sig.rank),)


def _rolled(sig, shift, dim=None):
    """Without a dimension it is the whole, laid out in one, that is rolled."""
    if dim is None and sig.rank == 1:
        dim = 0
    return (shift, dim % sig.rank) if type(shift) is type(dim) is int else None


def _in_order(op: Op, otherwise):
    """contiguous: of what is so already, the tensor itself."""
    def front(x, memory_format=fm.contiguous_format) -> Tensor:
        if type(x) is Tensor and x.sig.contiguous and memory_format is fm.contiguous_format:
            return x
        return otherwise(x, memory_format)

    front.__name__, front.__doc__ = op.name, op.doc
    return front


FRONTS = {
    "contiguous":       _in_order,
    "split":            _met(parts, _of_size),
    "split_with_sizes": _met(parts, _of_size),
    "chunk":            _met(parts, _of_number),
    "flip":             _met(flipped, _turned),
    "roll":             _met(rolled, _rolled),
}
