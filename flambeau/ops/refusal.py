"""What elementwise ops refuse, in torch's words: dtypes no kernel is defined for, and numbers
where tensors are wanted.
"""

from __future__ import annotations

from ..core import dtype as dt
from ..core.dtype import spoken
from ..core.expr import Expr


def no_kernel(name: str, dtype: dt.dtype) -> NotImplementedError:
    return NotImplementedError(f"\"{name}\" not implemented for '{spoken(dtype)}'")


def require(name: str, x: Expr, kinds: str) -> None:
    """Raise unless the elements are of one of these kinds: b, i, u, f, c."""
    if x.dtype.kind not in kinds:
        raise no_kernel(name, x.dtype)


def is_signature(operand) -> bool:
    return not isinstance(operand, (bool, int, float, complex))


def accepts(name: str, kinds: str):
    """A check that every tensor among the operands is of one of these kinds."""
    def check(operands, attributes) -> None:
        for o in operands:
            if is_signature(o) and o.dtype.kind not in kinds:
                raise no_kernel(name, o.dtype)
    return check


def some_accepted(name: str, kinds: str):
    """A check that one of the tensors is of these kinds, which the others are then promoted to."""
    def check(operands, attributes) -> None:
        found = [o.dtype for o in operands if is_signature(o)]
        if not any(dtype.kind in kinds for dtype in found):
            raise no_kernel(name, found[0])
    return check


def tensors(name: str, *parameters: str, then=None):
    """A check that these operands are tensors, not numbers; `then` is checked next."""
    def check(operands, attributes) -> None:
        for position, (parameter, o) in enumerate(zip(parameters, operands, strict=False)):
            if not is_signature(o):
                raise TypeError(f"{name}(): argument '{parameter}' (position {position + 1}) must "
                                f"be Tensor, not {type(o).__name__}")
        if then is not None:
            then(operands, attributes)
    return check


def not_complex(message: str, error: type = RuntimeError):
    """A check that no operand is complex."""
    def check(operands, attributes) -> None:
        for o in operands:
            if isinstance(o, complex) or (is_signature(o) and o.dtype.kind == "c"):
                raise error(message)
    return check
