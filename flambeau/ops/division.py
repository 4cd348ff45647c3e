"""Division, rounded and not, and what it leaves."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import expr as e
from ..core.expr import where
from .declare import FLOAT, SAME, composite, engine, pointwise
from .refusal import accepts, no_kernel, tensors
from .rounding import trunc


@pointwise(FLOAT, backward={"tt": "DivBackward0", "tn": "DivBackward0", "nt": "MulBackward0"})
def true_divide(x, y):
    """x / y, in floating point"""
    return x / y


@true_divide.gradient
def true_divide(g, x, y):
    return lambda: g / e.conj(y), lambda: -g * e.conj(x / y / y)


@pointwise(SAME, method=False, inplace=False, function_form=False, backward="DivBackward1",
           check=accepts("div_trunc_cpu", "biuf"), said="div")
def truncated_quotient(x, y):
    """x / y rounded towards zero"""
    if x.dtype.kind == "b":
        raise no_kernel("div_trunc_cpu", x.dtype)
    return e.call("truncdiv", x, y) if x.dtype.kind in "iu" else e.call("trunc", x / y)


def _floor_of_quotient(x, y):
    """The whole number below x / y, from the exact remainder."""
    rest = e.call("fmod", x, y)
    quotient = (x - rest) / y
    quotient = where((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1, quotient)
    whole = e.call("floor", quotient)
    whole = where(quotient - whole > 0.5, whole + 1, whole)
    zero = e.call("copysign", e.const(0, x.dtype), x / y)
    return where(y == 0, x / y, where(quotient == 0, zero, whole))


@pointwise(SAME, method=False, inplace=False, function_form=False, backward="DivBackward1",
           check=accepts("div_floor_cpu", "biuf"), said="floor_divide")
def floored_quotient(x, y):
    """x / y rounded down"""
    if x.dtype.kind in "bc":
        raise no_kernel("div_floor_cpu", x.dtype)
    if x.dtype.kind == "f":
        return _floor_of_quotient(x, y)
    quotient = e.call("truncdiv", x, y)
    if x.dtype.kind == "u":
        return quotient
    below = (e.call("fmod", x, y) != 0) & ((x < 0) != (y < 0))
    return quotient - e.cast(below, x.dtype)


@floored_quotient.gradient
def floored_quotient(g):
    return None, None


def _counted(name: str) -> dict:
    """torch's names of a step: its first form has a number for divisor, its second a tensor."""
    return {"tn": f"{name}Backward0", "tt": f"{name}Backward1", "nt": f"{name}Backward1"}


@pointwise(SAME, method=False, inplace=False, function_form=False, backward=_counted("Remainder"),
           check=accepts("remainder_cpu", "biuf"), said="remainder")
def floored_remainder(x, y):
    """What x / y rounded down leaves; it has the sign of y"""
    if x.dtype.kind in "bc":
        raise no_kernel("remainder_cpu", x.dtype)
    rest = e.call("fmod", x, y)
    if x.dtype.kind == "u":
        return rest
    return where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)


@floored_remainder.gradient
def floored_remainder(g, x, y):
    return g, lambda: -g * floored_quotient(x, y)


@pointwise(SAME, method=False, inplace=False, function_form=False, backward=_counted("Fmod"),
           check=tensors("fmod", "input", then=accepts("fmod_cpu", "biuf")), said="fmod")
def truncated_remainder(x, y):
    """What x / y rounded towards zero leaves; it has the sign of x"""
    if x.dtype.kind in "bc":
        raise no_kernel("fmod_cpu", x.dtype)
    return e.call("fmod", x, y)


@truncated_remainder.gradient
def truncated_remainder(g, x, y):
    return g, lambda: -g * truncated_quotient(x, y)


def _whole(value) -> bool:
    """Whether a number or a tensor counts in integers."""
    if isinstance(value, (bool, int)):
        return True
    return hasattr(value, "dtype") and getattr(value.dtype, "kind", "f") in "biu"


def _boolean(value) -> bool:
    return isinstance(value, bool) or getattr(value, "dtype", None) is dt.bool_


def _dividing(op, input, other):
    """Divide; integers refuse a divisor of 0, which has no integer answer."""
    if _whole(input) and _whole(other) and not (_boolean(input) and _boolean(other)):
        if not hasattr(other, "sig"):
            zero = other == 0
        elif other.is_meta:
            zero = False
        else:
            zero = not engine.to_array(other).all() and getattr(input, "nbytes", 1) > 0
        if zero:
            raise RuntimeError("ZeroDivisionError")
    return op(input, other)


def _truncated(x, y):
    """x / y rounded towards zero; of short floats after it was rounded to what they can hold, which
    may be the whole number above, as torch's kernel does but for a single divisor."""
    if getattr(y, "dtype", None) in _SHORT and y.dim() and getattr(x, "dtype", None) is y.dtype:
        return trunc(true_divide(x, y))
    return _dividing(truncated_quotient, x, y)


_SHORT = (dt.float16, dt.bfloat16)
_QUOTIENTS = {
    None:    true_divide,
    "trunc": _truncated,
    "floor": lambda x, y: _dividing(floored_quotient, x, y),
}


@composite(inplace=True)
def div(input, other, *, rounding_mode=None):
    """input / other, in floating point, or rounded towards zero ('trunc') or down ('floor')"""
    if rounding_mode not in _QUOTIENTS:
        raise RuntimeError("div expected rounding_mode to be one of None, 'trunc', or 'floor' but "
                           f"found '{rounding_mode}'")
    return _QUOTIENTS[rounding_mode](input, other)


@composite(inplace=True)
def floor_divide(input, other):
    """input / other rounded down"""
    return _dividing(floored_quotient, input, other)


@composite(inplace=True)
def remainder(input, other):
    """What division rounded down leaves; it has the divisor's sign."""
    return _dividing(floored_remainder, input, other)


@composite(inplace=True)
def fmod(input, other):
    """What division rounded towards zero leaves; it has the dividend's sign."""
    return _dividing(truncated_remainder, input, other)


@pointwise(FLOAT)
def reciprocal(x):
    """1 / x"""
    return 1 / x


@reciprocal.gradient
def reciprocal(g, out):
    return -g * e.conj(out * out)
