"""Arithmetic on elements."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import expr as e
from ..core.expr import Expr, where
from .declare import FLOAT, REAL, SAME, composite, engine, pointwise
from .refusal import accepts, check_element, is_signature, no_kernel, some_accepted, spoken, tensors

# -- sums and products -------------------------------------------------------------------------


def _check_alpha(operands, attributes) -> None:
    """torch's rules for the factor of the second operand."""
    alpha = attributes.get("alpha", 1)
    if type(alpha) is int:
        return
    dtypes = [o.dtype if is_signature(o) else dt.of_scalar(o) for o in operands]
    kinds = {d.kind for d in dtypes}
    if isinstance(alpha, bool):
        if kinds != {"b"}:
            raise RuntimeError("Boolean alpha only supported for Boolean results.")
    elif isinstance(alpha, complex):
        if "c" not in kinds:
            raise RuntimeError("For non-complex input tensors, argument alpha must not be a "
                               "complex number.")
    elif not kinds & set("fc"):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating "
                           "point number.")


def _check_sub(operands, attributes) -> None:
    booleans = [o for o in operands if (
        o.dtype is dt.bool_ if is_signature(o) else isinstance(o, bool))]
    if len(booleans) == 2:
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. "
                           "Use the `^` or `logical_xor()` operator instead.")
    if booleans:
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported. If "
                           "you are trying to invert a mask, use the `~` or `logical_not()` "
                           "operator instead.")
    _check_alpha(operands, attributes)


@pointwise(SAME, check=_check_alpha)
def add(x, y, *, alpha=1):
    """x + alpha * y"""
    if x.dtype is dt.bool_:
        return x | (y & bool(alpha) if isinstance(alpha, (bool, int)) else y & (alpha != 0))
    return x + alpha * y


@pointwise(SAME, check=_check_sub, backward={"nt": "RsubBackward1"})
def sub(x, y, *, alpha=1):
    """x - alpha * y"""
    return x - alpha * y


@composite(method=False)
def rsub(input, other, *, alpha=1):
    """other - alpha * input"""
    if not hasattr(input, "sig"):
        raise TypeError(f"rsub(): argument 'input' (position 1) must be Tensor, not "
                        f"{type(input).__name__}")
    return sub(other, input, alpha=alpha)


@pointwise(SAME)
def mul(x, y):
    """x * y"""
    return x * y


@mul.gradient
def mul(g, x, y):
    return lambda: g * e.conj(y), lambda: g * e.conj(x)


def _negatable(operands, attributes) -> None:
    if operands[0].dtype is dt.bool_:
        raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported. If you "
                           "are trying to invert a mask, use the `~` or `logical_not()` operator "
                           "instead.")


@pointwise(SAME, check=_negatable)
def neg(x):
    """-x"""
    return -x


@composite
def positive(input):
    """The tensor itself; refuses booleans."""
    if input.dtype is dt.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


@pointwise(REAL, check=accepts("abs_cpu", "iufc"))
def abs(x):
    """The absolute value."""
    return e.make("abs", (x,), None, x.dtype.to_real())


@abs.gradient
def abs(g, x):
    return g * sgn(x)


def _no_complex_sign(operands, attributes) -> None:
    if operands[0].dtype.kind == "c":
        raise NotImplementedError("Unlike NumPy, torch.sign is not intended to support complex "
                                  "numbers. Please use torch.sgn instead.")


@pointwise(SAME, check=_no_complex_sign)
def sign(x):
    """-1, 0 or 1"""
    if x.dtype.kind == "b":
        return x
    zero, one = e.const(0, x.dtype), e.const(1, x.dtype)
    if x.dtype.kind == "u":
        return where(x > 0, one, zero)
    return where(x > 0, one, where(x < 0, -one, zero))


@sign.gradient
def sign(g):
    return None


@pointwise(SAME)
def sgn(x):
    """x / |x|, and 0 at 0"""
    if x.dtype.kind != "c":
        return sign(x)
    size = e.make("abs", (x,), None, x.dtype.to_real())
    return where(size == 0, e.const(0, x.dtype), x / e.cast(size, x.dtype))


@pointwise(SAME, check=some_accepted("addcmul_cpu_out", "iufc"))
def addcmul(x, tensor1, tensor2, *, value=1):
    """x + value * tensor1 * tensor2"""
    return x + e.cast(_lifted(value, x), x.dtype) * tensor1 * tensor2


def _lifted(value, like: Expr) -> Expr:
    return value if isinstance(value, Expr) else e.const(value, like.dtype)


def _no_integers(operands, attributes) -> None:
    if all(o.dtype.kind in "biu" for o in operands[1:]):
        raise RuntimeError("Integer division with addcdiv is no longer supported, and in a future  "
                           "release addcdiv will perform a true division of tensor1 and tensor2.")


@pointwise(SAME, check=_no_integers)
def addcdiv(x, tensor1, tensor2, *, value=1):
    """x + value * tensor1 / tensor2"""
    return x + value * (tensor1 / tensor2)


def _same_dtypes(operands, attributes) -> None:
    for name, o in zip(("end", "weight"), operands[1:], strict=True):
        if is_signature(o) and o.dtype is not operands[0].dtype:
            raise RuntimeError(f"expected dtype {_c_name(operands[0].dtype)} for `{name}` but got "
                               f"dtype {_c_name(o.dtype)}")
    if operands[0].dtype.kind not in "fc":
        raise no_kernel("lerp_kernel_scalar", operands[0].dtype)


def _c_name(d: dt.dtype) -> str:
    return {"float32": "float", "float64": "double", "int64": "long int"}.get(d.name, d.name)


@pointwise(SAME, check=_same_dtypes, backward={"ttt": "LerpBackward1"})
def lerp(x, end, weight):
    """x + weight * (end - x), computed from the nearer end"""
    move = end - x
    return where(e.make("abs", (weight,), None, weight.dtype.to_real()) < 0.5, x + weight * move,
                 end - move * (1 - weight))


@lerp.gradient
def lerp(g, x, end, weight):
    return (lambda: g * e.conj(1 - weight), lambda: g * e.conj(weight),
            lambda: g * e.conj(end - x))


# -- powers ------------------------------------------------------------------------------------


class _Exponents:
    """The exponents that become part of a kernel: whole numbers and halves."""

    def __contains__(self, value) -> bool:
        return isinstance(value, (int, float)) and (isinstance(value, int) or value in (
            0.5, -0.5, 2.0, 3.0, 1.0, 0.0, -1.0, -2.0))


def _check_pow(operands, attributes) -> None:
    x, exponent = operands
    if all(o.dtype is dt.bool_ if is_signature(o) else isinstance(o, bool) for o in operands):
        raise no_kernel("pow", dt.bool_)
    if isinstance(exponent, int) and exponent < 0 and is_signature(x) and x.dtype.kind in "biu":
        raise RuntimeError("Integers to negative integer powers are not allowed.")


def _integer_power(x, n):
    """By squaring; a negative power of an integer is 0, but for 1 and -1."""
    result, square, rest = e.const(1, x.dtype), x, n
    bits = 8 * x.dtype.itemsize - (x.dtype.kind == "i")
    if n.head == "const":
        bits = max(n.attr.bit_length(), 1)
    for bit in range(bits):
        odd = (rest & e.const(1, x.dtype)) != 0
        result = where(odd, result * square, result)
        rest = rest >> e.const(1, x.dtype)
        if bit + 1 < bits:
            square = square * square
    if x.dtype.kind == "u" or n.head == "const":
        return result
    one, zero = e.const(1, x.dtype), e.const(0, x.dtype)
    turned = where((n & one) != 0, -one, one)
    return where(n < 0, where(x == 1, one, where(x == -1, turned, zero)), result)


#: powers that are cheaper, or exacter, another way
_EASY_POWERS = {
    2:    lambda x: x * x,
    3:    lambda x: x * x * x,
    1:    lambda x: x,
    0:    lambda x: e.const(1, x.dtype),
    -1:   lambda x: 1 / x,
    -2:   lambda x: 1 / (x * x),
    0.5:  lambda x: e.call("sqrt", x),
    -0.5: lambda x: 1 / e.call("sqrt", x),
}


@pointwise(SAME, bake=_Exponents(), check=_check_pow,
           backward={"tt": "PowBackward1", "nt": "PowBackward2"})
def pow(x, exponent):
    """x raised to `exponent`, elementwise"""
    if x.dtype.kind in "biu":
        return _integer_power(x, exponent)
    easy = _EASY_POWERS.get(exponent.attr) if exponent.head == "const" else None
    return easy(x) if easy is not None else e.call("pow", x, exponent)


@pow.gradient
def pow(g, x, exponent, out):
    zero = e.const(0, x.dtype)

    def base():
        if exponent.head == "const":
            if exponent.attr == 0:
                return None
            less = e.const(exponent.attr - 1, exponent.dtype)
            return g * e.conj(exponent * pow(x, less))
        return where(exponent == 0, zero, g * e.conj(exponent * pow(x, exponent - 1)))

    def power():
        still = (x == 0) & (e.real(exponent) >= 0)
        return where(still, zero, g * e.conj(out * log(x)))

    return base, power


@composite(inplace=False)
def float_power(input, exponent):
    """input raised to `exponent`, in double precision"""
    wanted = _float_power_dtype(input, exponent)
    return pow(_in(input, wanted), _in(exponent, wanted))


def _float_power_dtype(*values) -> dt.dtype:
    complex_ones = [v for v in values if isinstance(v, complex)
                    or (hasattr(v, "sig") and v.dtype.kind == "c")]
    return dt.complex128 if complex_ones else dt.float64


def _in(value, wanted: dt.dtype):
    if hasattr(value, "sig"):
        return engine.cast(value, wanted)
    return complex(value) if wanted.kind == "c" else float(value)


@composite(name="float_power_", function_form=False)
def float_power_in_place(input, exponent):
    """In-place form of `float_power`; the tensor must be in double precision."""
    wanted = _float_power_dtype(input, exponent)
    if input.dtype is not wanted:
        raise RuntimeError(f"the base given to float_power_ has dtype {spoken(input.dtype)} but "
                           f"the operation's result requires dtype {spoken(wanted)}")
    return engine.overwrite(input, "float_power_", float_power, (exponent,), {})


@composite(inplace=True)
def square(input):
    """input * input"""
    return pow(input, 2)


@pointwise(FLOAT)
def sqrt(x):
    """The square root."""
    return e.call("sqrt", x)


@sqrt.gradient
def sqrt(g, out):
    return g / e.conj(2 * out)


@pointwise(FLOAT)
def rsqrt(x):
    """1 / sqrt(x)"""
    return 1 / e.call("sqrt", x)


@rsqrt.gradient
def rsqrt(g, out):
    return -0.5 * g * e.conj(out * out * out)


@pointwise(SAME, check=tensors("hypot", "input", "other", then=some_accepted("hypot_cpu", "f")))
def hypot(x, y):
    """sqrt(x**2 + y**2)"""
    return e.call("hypot", x, y)


@hypot.gradient
def hypot(g, x, y, out):
    return lambda: g * (x / out), lambda: g * (y / out)


# -- exponentials that other files build on ----------------------------------------------------


@pointwise(FLOAT)
def exp(x):
    """e to the power x"""
    return e.call("exp", x)


@exp.gradient
def exp(g, out):
    return g * e.conj(out)


@pointwise(FLOAT)
def log(x):
    """The natural logarithm."""
    return e.call("log", x)


@log.gradient
def log(g, x):
    return g / e.conj(x)


def _check_fill(operands, attributes) -> None:
    x, value = operands
    if is_signature(value):
        if value.rank:
            raise RuntimeError("fill_ only supports 0-dimension value tensor but got tensor with "
                               f"{value.rank} dimensions.")
    else:
        check_element(value, x.dtype)


@pointwise(SAME, promote=(0,), method=False, check=_check_fill)
def fill(x, value):
    """One value everywhere."""
    return e.cast(value, x.dtype)


@fill.gradient
def fill(g):
    return None, g


@composite(name="fill_method", method="fill_", function_form=False)
def fill_in_place(self, value):
    """One value everywhere, in place."""
    return engine.fill_form(self, value)


@composite(name="zero_", function_form=True)
def zero_in_place(input):
    """0 everywhere, in place."""
    return engine.fill_form(input, 0)


@pointwise(SAME, inplace=False)
def clone(x):
    """A copy, with its own memory."""
    return x
