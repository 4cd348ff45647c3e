"""Rounding, and the parts of a floating point number."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import expr as e
from ..core.expr import where
from .arithmetic import mul, pow
from .declare import SAME, composite, pointwise
from .refusal import accepts, is_signature, no_kernel


def _roundable(name: str):
    def check(operands, attributes) -> None:
        if operands[0].dtype.kind == "c":
            raise NotImplementedError(f"{name} is not supported for complex inputs")
        accepts(f"{name}_vml_cpu", "iuf")(operands, attributes)
    return check


@pointwise(SAME, check=_roundable("floor"))
def floor(x):
    """The whole number below."""
    return e.call("floor", x)


@pointwise(SAME, check=_roundable("ceil"))
def ceil(x):
    """The whole number above."""
    return e.call("ceil", x)


@pointwise(SAME, check=_roundable("trunc"))
def trunc(x):
    """The whole number towards zero."""
    return e.call("trunc", x)


def _decimals(operands, attributes) -> None:
    _roundable("round")(operands, attributes)
    if attributes.get("decimals", 0) and operands[0].dtype.kind in "iu":
        raise no_kernel("round_vml_cpu", operands[0].dtype)


@pointwise(SAME, bake=("decimals",), check=_decimals)
def round(x, *, decimals=0):
    """The nearest number of so many decimals; of two, the even one"""
    if decimals == 0:
        return e.call("rint", x)
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    if decimals > 0:
        return e.call("rint", x * scale) / scale
    return e.call("rint", x / scale) * scale


@pointwise(SAME, check=accepts("frac_cpu", "f"))
def frac(x):
    """What truncation leaves."""
    return x - e.call("trunc", x)


# -- mantissa and exponent ---------------------------------------------------------------------

#                  integer of its size   bits of the mantissa  exponent of 0.5  scale of subnormals
_LAYOUTS = {
    dt.float32: (dt.int32, 23, 126, 32),
    dt.float64: (dt.int64, 52, 1022, 64),
}


def _floating(operands, attributes) -> None:
    if not is_signature(operands[0]) or operands[0].dtype.kind != "f":
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")


def _split(x):
    """x = mantissa * 2**exponent with 1/2 <= |mantissa| < 1; what has no exponent keeps 0."""
    whole, width, bias, lift = _LAYOUTS[x.dtype]
    tiny = e.call("abs", x) < dt.finfo(x.dtype).tiny
    scaled = where(tiny, x * 2.0 ** lift, x)
    bits = e.make("bitcast", (scaled,), None, whole)
    mask = e.const(2 * bias + 3, whole)
    exponent = ((bits >> e.const(width, whole)) & mask) - bias - where(
        tiny, e.const(lift, whole), e.const(0, whole))
    kept = bits & e.const(~((2 * bias + 3) << width), whole)
    mantissa = e.make("bitcast", (kept | e.const(bias << width, whole),), None, x.dtype)
    odd = (x == 0) | ~(e.call("abs", x) < float("inf"))
    return where(odd, x, mantissa), where(odd, e.const(0, whole), exponent)


@pointwise(SAME, method=False, function_form=False, inplace=False, backward="FrexpBackward0",
           check=_floating, said="frexp")
def mantissa(x):
    """The part of a number between 1/2 and 1."""
    return _split(x)[0]


@mantissa.gradient
def mantissa(g, x, out):
    return where(x == out, g, g * (out / x))


@pointwise(SAME, method=False, function_form=False, inplace=False, check=_floating, said="frexp")
def exponent_of(x):
    """The power of two that makes a number of its mantissa."""
    return e.cast(_split(x)[1], x.dtype)


@exponent_of.gradient
def exponent_of(g):
    return None


@composite
def frexp(input):
    """input = mantissa * 2**exponent"""
    whole = exponent_of(input.detach())
    return frexp.engine.named(frexp, (mantissa(input), frexp.engine.cast(whole, dt.int32)))


@composite(inplace=True)
def ldexp(input, other):
    """input * 2**other"""
    for position, (name, value) in enumerate((("input", input), ("other", other)), 1):
        if not hasattr(value, "sig"):
            raise TypeError(f"ldexp(): argument '{name}' (position {position}) must be Tensor, not "
                            f"{type(value).__name__}")
    return mul(input, pow(2.0, other))
