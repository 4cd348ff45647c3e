"""What elementwise ops refuse, in torch's words: dtypes no kernel is defined for, numbers where
tensors are wanted, and numbers that a dtype cannot hold.
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


def check_element(value, dtype: dt.dtype) -> None:
    """A number that becomes an element: integers wrap, others are refused where they do not fit."""
    if isinstance(value, complex) and dtype.kind != "c":
        raise RuntimeError(f"value cannot be converted to type {C_NAMES.get(dtype, dtype.name)} "
                           "without overflow")
    if isinstance(value, float) and dtype.kind in "iu":
        check_fits(value, dtype)


#: what torch calls each dtype in messages about conversion
C_NAMES = {dt.uint8: "uint8_t", dt.int8: "int8_t", dt.int16: "int16_t", dt.int32: "int",
           dt.int64: "int64_t", dt.float32: "float", dt.float64: "double", dt.bool_: "bool",
           dt.uint16: "uint16_t", dt.uint32: "uint32_t", dt.uint64: "uint64_t",
           dt.float16: "at::Half", dt.bfloat16: "at::BFloat16"}


def check_fits(value, dtype: dt.dtype) -> None:
    """A number that a dtype cannot hold is refused; negative integers wrap into unsigned ones."""
    kind = dtype.kind
    if kind == "b" or kind == "c":
        return
    if isinstance(value, complex):
        fits = value.imag == 0
    elif kind == "f":
        limit = dt.finfo(dtype).max
        fits = not isinstance(value, float) or value != value or abs(value) in (
            float("inf"),) or abs(value) <= limit
    else:
        info = dt.iinfo(dtype)
        low = -info.max if kind == "u" and not isinstance(value, float) else info.min
        fits = value == value and low <= value <= info.max
    if not fits:
        raise RuntimeError(f"value cannot be converted to type {C_NAMES.get(dtype, dtype.name)} "
                           "without overflow")
