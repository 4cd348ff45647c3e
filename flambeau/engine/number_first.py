"""Calls as they were written before their numbers had names: x.add_(-lr, g), addmm(beta, c, a, b).

PyTorch takes them still, with a warning, and many optimizers and scripts have them.
"""

from __future__ import annotations

from ..ops.declare import Op, Pointwise
from .caller import warn_caller
from .tensor import Tensor

#: ops that scale what they add -> the number's name
SCALED = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}
#: products that are added to something, of numbers beta and alpha
SUMS = frozenset(("addbmm", "addmm", "addmv", "addr", "baddbmm"))


def is_scaled(op: Pointwise, args: tuple) -> bool:
    """Whether the operands of a pointwise op come with its number before the second one."""
    return (op.name in SCALED and len(args) == len(op.operands) + 1
            and not isinstance(args[1], Tensor) and isinstance(args[-1], Tensor))


def scaled(op: Pointwise, args: tuple) -> tuple[tuple, dict]:
    """(x, number, y, ...) as operands, and the number by its name."""
    _deprecated(op, SCALED[op.name])
    return (args[0], *args[2:]), {SCALED[op.name]: args[1]}


def sum_front(op: Op, general):
    """The front of a product that is added, which also takes beta and alpha where they once were:
    (beta, input, alpha, a, b), or (input, beta, alpha, a, b) of a method; alpha may be left out."""

    def front(*args, **kwargs):
        if len(args) > 3 and not kwargs:
            tensors = tuple(a for a in args if isinstance(a, Tensor))
            numbers = [a for a in args if not isinstance(a, Tensor)]
            if len(tensors) == 3 and all(isinstance(a, Tensor) for a in args[-2:]):
                _deprecated(op, "beta, alpha")
                return general(*tensors, **dict(zip(("beta", "alpha"), numbers, strict=False)))
        return general(*args, **kwargs)

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _deprecated(op: Op, names: str) -> None:
    warn_caller(f"This overload of {op.name} is deprecated: give {names} by name, after the "
                "tensors")


FRONTS = dict.fromkeys(SUMS, sum_front)
