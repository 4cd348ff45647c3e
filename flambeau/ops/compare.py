"""Comparisons, tests of elements, choices between elements, and logic."""

from __future__ import annotations

import functools

from ..core import dtype as dt
from ..core import expr as e
from ..core.expr import where as choose
from .declare import BOOL, FLOAT, SAME, composite, engine, pointwise, registry
from .refusal import accepts, is_signature, no_kernel, not_complex, spoken, tensors

# -- comparisons -------------------------------------------------------------------------------


@pointwise(BOOL, check=tensors("eq", "input"))
def eq(x, y):
    """x == y"""
    return x == y


@pointwise(BOOL, check=tensors("ne", "input"))
def ne(x, y):
    """x != y"""
    return x != y


def _ordered(name: str):
    def check(operands, attributes) -> None:
        tensors(name, "input")(operands, attributes)
        for o in operands:
            kind = o.dtype if is_signature(o) else dt.of_scalar(o)
            if kind.kind == "c":
                raise no_kernel(f"{name}_cpu", kind)
    return check


@pointwise(BOOL, check=_ordered("lt"))
def lt(x, y):
    """x < y"""
    return x < y


@pointwise(BOOL, check=_ordered("le"))
def le(x, y):
    """x <= y"""
    return x <= y


@pointwise(BOOL, check=_ordered("gt"))
def gt(x, y):
    """x > y"""
    return x > y


@pointwise(BOOL, check=_ordered("ge"))
def ge(x, y):
    """x >= y"""
    return x >= y


# -- tests -------------------------------------------------------------------------------------


def _any_part(test, x):
    """A test of a number, or of either part of a complex one."""
    return test(e.real(x)) | test(e.imag(x)) if x.dtype.kind == "c" else test(x)


def _infinite(x):
    return e.call("abs", x) == float("inf")


@pointwise(BOOL, inplace=False)
def isnan(x):
    """Whether an element is not a number."""
    return e.isnan(x)


@pointwise(BOOL, inplace=False)
def isinf(x):
    """Whether an element, or a part of it, is infinite."""
    return _any_part(_infinite, x) if x.dtype.kind in "fc" else e.const(False, dt.bool_)


@pointwise(BOOL, inplace=False)
def isfinite(x):
    """Whether an element is a number and not infinite."""
    if x.dtype.kind not in "fc":
        return e.const(True, dt.bool_)
    return ~(_any_part(_infinite, x) | e.isnan(x))


@pointwise(BOOL, inplace=False, check=not_complex("isposinf does not support complex inputs."))
def isposinf(x):
    """Whether an element is positive infinity."""
    return x == float("inf") if x.dtype.kind == "f" else e.const(False, dt.bool_)


@pointwise(BOOL, inplace=False, check=not_complex("isneginf does not support complex inputs."))
def isneginf(x):
    """Whether an element is negative infinity."""
    return x == float("-inf") if x.dtype.kind == "f" else e.const(False, dt.bool_)


@pointwise(BOOL, inplace=False)
def isreal(x):
    """Whether an element's imaginary part is 0."""
    return e.imag(x) == 0 if x.dtype.kind == "c" else e.const(True, dt.bool_)


@pointwise(BOOL, inplace=False, check=not_complex(
    "signbit is not implemented for complex tensors.", NotImplementedError))
def signbit(x):
    """Whether an element's sign is negative; that of -0 is."""
    if x.dtype.kind in "bu":
        return e.const(False, dt.bool_)
    if x.dtype.kind == "i":
        return x < 0
    return e.call("copysign", e.const(1, x.dtype), x) < 0


@pointwise(BOOL, method=False, function_form=False, inplace=False, said="isclose")
def near(x, y, *, rtol=1e-5, atol=1e-8, equal_nan=False):
    """|x - y| <= atol + rtol |y|"""
    close = x == y
    if equal_nan:
        close = close | (e.isnan(x) & e.isnan(y))
    if x.dtype.kind not in "fc":
        wide = dt.default_float()
        x, y = e.cast(x, wide), e.cast(y, wide)
    real = x.dtype.to_real()
    error = e.make("abs", (x - y,), None, real)
    allowed = atol + e.call("abs", rtol * e.make("abs", (y,), None, real))
    return close | ((error < float("inf")) & (error <= allowed))


@composite
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether elements are equal within tolerances."""
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{spoken(input.dtype)} did not match {spoken(other.dtype)}")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value}")
    if equal_nan and input.dtype.kind not in "fc":
        equal_nan = False
    return near(input, other, rtol=float(rtol), atol=float(atol), equal_nan=bool(equal_nan))


# -- logic -------------------------------------------------------------------------------------


@pointwise(BOOL)
def logical_not(x):
    """Whether an element is 0."""
    return x == 0


@pointwise(BOOL, check=tensors("logical_and", "input", "other"))
def logical_and(x, y):
    """Whether both elements are not 0."""
    return (x != 0) & (y != 0)


@pointwise(BOOL, check=tensors("logical_or", "input", "other"))
def logical_or(x, y):
    """Whether one of the elements is not 0."""
    return (x != 0) | (y != 0)


@pointwise(BOOL, check=tensors("logical_xor", "input", "other"))
def logical_xor(x, y):
    """Whether exactly one of the elements is not 0."""
    return (x != 0) != (y != 0)


# -- the larger and the smaller ----------------------------------------------------------------


def _pair(name: str):
    return tensors(name, "input", "other",
                   then=not_complex(f"{name} not implemented for complex tensors."))


def _shared(g, beaten, tied):
    """A gradient that a tie halves."""
    return choose(beaten, e.const(0, g.dtype), choose(tied, g / 2, g))


@pointwise(SAME, inplace=False, check=_pair("maximum"))
def maximum(x, y):
    """The larger of two; NaN if either is."""
    return e.maximum(x, y)


@maximum.gradient
def maximum(g, x, y):
    return lambda: _shared(g, x < y, x == y), lambda: _shared(g, y < x, x == y)


@pointwise(SAME, inplace=False, check=_pair("minimum"))
def minimum(x, y):
    """The smaller of two; NaN if either is."""
    return e.minimum(x, y)


@minimum.gradient
def minimum(g, x, y):
    return lambda: _shared(g, x > y, x == y), lambda: _shared(g, y > x, x == y)


@pointwise(SAME, inplace=False, check=_pair("fmax"))
def fmax(x, y):
    """The larger of two; a NaN loses to a number."""
    return choose((x >= y) | e.isnan(y), x, y)


@fmax.gradient
def fmax(g, x, y):
    first, zero = (x >= y) | e.isnan(y), e.const(0, g.dtype)
    return lambda: choose(first, g, zero), lambda: choose(first, zero, g)


@pointwise(SAME, inplace=False, check=_pair("fmin"))
def fmin(x, y):
    """The smaller of two; a NaN loses to a number."""
    return choose((x <= y) | e.isnan(y), x, y)


@fmin.gradient
def fmin(g, x, y):
    first, zero = (x <= y) | e.isnan(y), e.const(0, g.dtype)
    return lambda: choose(first, g, zero), lambda: choose(first, zero, g)


# -- limits ------------------------------------------------------------------------------------


def _clampable(operands, attributes) -> None:
    tensors("clamp", "input")(operands, attributes)
    for o in operands:
        if isinstance(o, complex) or (is_signature(o) and o.dtype.kind == "c"):
            raise NotImplementedError("clamp is not supported for complex types")


@pointwise(SAME, check=_clampable)
def clamp_min(x, min):
    """The larger of x and `min`"""
    return e.maximum(x, min)


@clamp_min.gradient
def clamp_min(g, x, min):
    zero = e.const(0, g.dtype)
    return lambda: choose(x >= min, g, zero), lambda: choose(x < min, g, zero)


@pointwise(SAME, check=_clampable)
def clamp_max(x, max):
    """The smaller of x and `max`"""
    return e.minimum(x, max)


@clamp_max.gradient
def clamp_max(g, x, max):
    zero = e.const(0, g.dtype)
    return lambda: choose(x <= max, g, zero), lambda: choose(x > max, g, zero)


@pointwise(SAME, method=False, function_form=False, inplace=False, backward="ClampBackward1",
           check=_clampable, said="clamp")
def clamp_between(x, min, max):
    """x kept between `min` and `max`"""
    return e.minimum(e.maximum(x, min), max)


@clamp_between.gradient
def clamp_between(g, x, min, max):
    zero = e.const(0, g.dtype)
    return (lambda: choose((x >= min) & (x <= max), g, zero),
            lambda: choose((min < max) & (x < min), g, zero),
            lambda: choose((x > max) | (max < min), g, zero))


@composite(inplace=True, backward="ClampBackward1")
def clamp(input, min=None, max=None):
    """input kept between limits, either of which may be left out"""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if max is None:
        return clamp_min(input, min)
    return clamp_max(input, max) if min is None else clamp_between(input, min, max)


# -- choices -----------------------------------------------------------------------------------


def _check_condition(operands, attributes) -> None:
    condition = operands[0]
    if not is_signature(condition):
        raise TypeError("where(): argument 'condition' (position 1) must be Tensor, not "
                        f"{type(condition).__name__}")
    if condition.dtype not in (dt.bool_, dt.uint8):
        raise RuntimeError("where expected condition to be a boolean tensor, but got a tensor with "
                           f"dtype {spoken(condition.dtype)}")


@pointwise(SAME, name="chosen", promote=(1, 2), method=False, function_form=False, inplace=False,
           backward="WhereBackward0", check=_check_condition, said="where")
def chosen(condition, x, y):
    """x where the condition holds, else y"""
    return choose(condition, x, y)


@composite(method=False)
def where(condition, input=None, other=None):
    """input where the condition holds, else other; alone, where the condition holds"""
    if input is None and other is None:
        return registry["nonzero"](condition, as_tuple=True)
    if input is None or other is None:
        raise TypeError("where() takes a condition, or a condition and both choices")
    return chosen(condition, input, other)


@composite(name="where_method", method="where", function_form=False)
def choose_from(self, condition, other):
    """self where the condition holds, else other"""
    return chosen(condition, self, other)


def _one_dtype(operands, attributes) -> None:
    if operands[0].dtype is not operands[1].dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    if operands[0].dtype.kind == "c":
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")


@pointwise(SAME, check=tensors("heaviside", "input", "values", then=_one_dtype))
def heaviside(x, values):
    """0 below 0, 1 above, and `values` at 0"""
    zero, one = e.const(0, x.dtype), e.const(1, x.dtype)
    return choose(x == 0, values, choose(x > 0, one, zero))


@heaviside.gradient
def heaviside(g):
    raise RuntimeError("derivative for heaviside is not implemented")


# -- signs and neighbours ----------------------------------------------------------------------


@pointwise(FLOAT, check=tensors("copysign", "input", then=not_complex(
    "\"copysign_cpu\" not implemented for 'ComplexFloat'", NotImplementedError)))
def copysign(x, y):
    """|x| with the sign of y"""
    return e.call("copysign", x, y)


@copysign.gradient
def copysign(g, x, out):
    zero = e.const(0, g.dtype)
    return choose(x == 0, zero, choose((x < 0) == (out < 0), g, -g)), None


@pointwise(SAME, check=tensors("nextafter", "input", "other",
                               then=accepts("nextafter_cpu", "biuf")))
def nextafter(x, y):
    """The next number after x towards y."""
    if x.dtype.kind != "f":
        raise no_kernel("nextafter_cpu", x.dtype)
    return e.call("nextafter", x, y)


@nextafter.gradient
def nextafter(g, x, y):
    zero = e.const(0, g.dtype)
    return choose(x == y, zero, g), None


@pointwise(SAME, method=False, function_form=False, inplace=False, backward="NanToNumBackward0",
           said="nan_to_num")
def replaced(x, *, nan=0.0, posinf=0.0, neginf=0.0):
    """x with NaN and the infinities replaced"""
    if x.dtype.kind == "c":
        parts = (_replaced(part, nan, posinf, neginf) for part in (e.real(x), e.imag(x)))
        return e.complex_of(*parts)
    return _replaced(x, nan, posinf, neginf)


def _replaced(x, nan, posinf, neginf):
    inf = float("inf")
    return choose(e.isnan(x), nan, choose(x == inf, posinf, choose(x == -inf, neginf, x)))


@functools.cache
def _largest(dtype: dt.dtype) -> float:
    return float(dt.finfo(dtype).max)


@composite(inplace=True)
def nan_to_num(input, nan=None, posinf=None, neginf=None):
    """NaN and infinities replaced, by 0 and the largest numbers unless told"""
    if input.dtype.kind not in "fc":
        return engine.clone(input)
    most = _largest(input.dtype)
    return replaced(input, nan=float(0 if nan is None else nan),
                    posinf=most if posinf is None else float(posinf),
                    neginf=-most if neginf is None else float(neginf))
