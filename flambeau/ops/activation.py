"""Activations of neural networks."""

from __future__ import annotations

import math

from ..core import dtype as dt
from ..core import expr as e
from ..core.expr import where
from .arithmetic import exp
from .declare import FLOAT, SAME, composite, engine, pointwise, registry
from .exponential import expm1, log1p
from .refusal import accepts, no_kernel, spoken
from .special import share_below
from .trigonometry import tanh

FUNCTIONAL = "nn.functional"


def _floats(name: str):
    return accepts(f"{name}_cpu", "f")


# -- rectifiers --------------------------------------------------------------------------------


def _no_booleans(name: str, words: str):
    def check(operands, attributes) -> None:
        if operands[0].dtype.kind == "b":
            raise RuntimeError(f"{words} inputs not supported for {name}")
        if operands[0].dtype.kind == "c":
            raise no_kernel(f"{name}_cpu", operands[0].dtype)
    return check


@pointwise(SAME, check=_no_booleans("relu", "Boolean"))
def relu(x):
    """max(x, 0)"""
    return e.maximum(x, 0)


@relu.gradient
def relu(g, out):
    return where(out <= 0, 0, g)  # where out is NaN the gradient passes


@pointwise(SAME, where=FUNCTIONAL, check=_floats("leaky_relu"))
def leaky_relu(x, *, negative_slope=0.01):
    """x, or negative_slope * x below 0"""
    return where(x > 0, x, x * negative_slope)


@pointwise(SAME, method=False, function_form=False, inplace=False, backward="PreluKernelBackward0",
           said="prelu")
def rectified(x, weight):
    """x, or weight * x below 0"""
    return where(x > 0, x, x * weight)


@composite
def prelu(input, weight):
    """input, or weight * input below 0, with one weight for all or for each channel"""
    if input.dtype is not weight.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {spoken(input.dtype)} and "
                           f"{spoken(weight.dtype)}")
    if weight.numel() != 1:
        if not input.ndim:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.shape[1] if input.ndim > 1 else 1
        if channels != weight.numel():
            raise RuntimeError("Mismatch of parameter numbers and input channel size. Found "
                               f"parameter numbers = {weight.numel()} and channel size = "
                               f"{channels}.")
    if weight.ndim > 1:
        raise RuntimeError("prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = "
                           f"{weight.ndim}")
    if weight.ndim == 1:
        rank = input.ndim
        shape = (1, weight.numel(), *(1,) * (rank - 2)) if rank > 1 else (weight.numel(),) * rank
        weight = engine.reshape(weight, shape)
    return rectified(input, weight)


@pointwise(SAME, where=FUNCTIONAL, check=_floats("elu"))
def elu(x, *, alpha=1.0):
    """x, or alpha * (exp(x) - 1) below 0"""
    return where(x > 0, x, alpha * expm1(x))


def _check_celu(operands, attributes) -> None:
    if attributes.get("alpha", 1.0) == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    _floats("elu")(operands, attributes)


@pointwise(SAME, method=False, check=_check_celu)
def celu(x, *, alpha=1.0):
    """x, or alpha * (exp(x / alpha) - 1) below 0"""
    return where(x > 0, x, alpha * expm1(x / alpha))


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@pointwise(SAME, method=False, check=_floats("elu"), backward="EluBackward0")
def selu(x):
    """scale * (x, or alpha * (exp(x) - 1) below 0), which keeps mean and variance"""
    return SELU_SCALE * where(x > 0, x, SELU_ALPHA * expm1(x))


@pointwise(SAME, method=False, check=accepts("threshold_cpu", "iuf"))
def threshold(x, *, threshold, value):
    """x where it is above the threshold, else the value"""
    zero = e.const(0, x.dtype)
    limit, other = (e.cast(v + zero, x.dtype) if x.dtype.kind == "f" else _whole(v, x)
                    for v in (threshold, value))
    return where(x <= limit, other, x)


def _whole(value, like):
    """A number cut to the integers an op counts in."""
    return e.cast(value, like.dtype) if isinstance(value, e.Expr) else e.const(value, like.dtype)


@threshold.gradient
def threshold(g, x, threshold):
    return where(x <= threshold, e.const(0, g.dtype), g)


@pointwise(SAME, where=FUNCTIONAL, check=_no_booleans("hardtanh", "Bool"))
def hardtanh(x, *, min_val=-1.0, max_val=1.0):
    """x kept between two numbers"""
    return e.minimum(e.maximum(x, _whole(min_val, x)), _whole(max_val, x))


@hardtanh.gradient
def hardtanh(g, x, min_val, max_val):
    return where((x > min_val) & (x < max_val), g, e.const(0, g.dtype))


@pointwise(SAME, where=FUNCTIONAL, backward="HardtanhBackward0",
           check=_no_booleans("hardtanh", "Bool"))
def relu6(x):
    """x kept between 0 and 6"""
    return e.minimum(e.maximum(x, 0), 6)


@relu6.gradient
def relu6(g, x):
    return where((x > 0) & (x < 6), g, e.const(0, g.dtype))


# -- smooth ones -------------------------------------------------------------------------------


@pointwise(FLOAT)
def sigmoid(x):
    """1 / (1 + exp(-x))"""
    return 1 / (1 + exp(-x))


@sigmoid.gradient
def sigmoid(g, out):
    return g * e.conj(out * (1 - out))


def _check_gelu(operands, attributes) -> None:
    if attributes.get("approximate", "none") not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    accepts("GeluKernelImpl", "f")(operands, attributes)


@pointwise(SAME, where=FUNCTIONAL, inplace=False, check=_check_gelu)
def gelu(x, *, approximate="none"):
    """x times the normal distribution function, or an approximation of it by tanh"""
    if approximate == "none":
        return x * share_below(x)
    return 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


@pointwise(SAME, where=FUNCTIONAL, check=accepts("silu_cpu", "fc"))
def silu(x):
    """x * sigmoid(x)"""
    return x * sigmoid(x)


@pointwise(SAME, where=FUNCTIONAL, check=_floats("mish"))
def mish(x):
    """x * tanh(softplus(x))"""
    return x * tanh(softplus(x))


@pointwise(SAME, where=FUNCTIONAL, inplace=False, check=_floats("softplus"))
def softplus(x, *, beta=1.0, threshold=20.0):
    """log(1 + exp(beta x)) / beta; the identity where beta x > threshold"""
    z = beta * x
    return where(z > threshold, x, log1p(exp(z)) / beta)


@softplus.gradient
def softplus(g, x, beta, threshold):
    z = beta * x
    return where(z > threshold, g, g * sigmoid(z))


@pointwise(SAME, where=FUNCTIONAL, inplace=False, backward="LogSigmoidBackward0",
           check=accepts("log_sigmoid_cpu", "f"))
def logsigmoid(x):
    """log(sigmoid(x))"""
    return e.minimum(x, 0) - log1p(exp(-e.call("abs", x)))


@logsigmoid.gradient
def logsigmoid(g, x):
    return g * sigmoid(-x)


@composite(where=FUNCTIONAL)
def softsign(input):
    """input / (1 + |input|)"""
    return input / (input.abs() + 1)


@composite(where=FUNCTIONAL)
def tanhshrink(input):
    """input - tanh(input)"""
    return input - input.tanh()


@composite(where=FUNCTIONAL)
def glu(input, dim=-1):
    """The first half along `dim`, times sigmoid of the second"""
    if not input.ndim:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    size = input.shape[dim]
    if size % 2:
        where_ = dim % input.ndim
        raise RuntimeError(f"Halving dimension must be even, but dimension {where_} is size {size}")
    narrow = registry["narrow"]
    first, second = (narrow(input, dim, k * size // 2, size // 2) for k in (0, 1))
    return gated(first, second)


@pointwise(SAME, method=False, function_form=False, inplace=False, backward="GluBackward0",
           check=accepts("glu_cpu", "f"), said="glu")
def gated(x, y):
    """x * sigmoid(y)"""
    return x * sigmoid(y)


# -- piecewise ones ----------------------------------------------------------------------------


@pointwise(SAME, where=FUNCTIONAL, check=_floats("hardsigmoid"))
def hardsigmoid(x):
    """x / 6 + 1/2, kept between 0 and 1"""
    return e.minimum(e.maximum(x + 3, 0), 6) / 6


@hardsigmoid.gradient
def hardsigmoid(g, x):
    return where((x > -3) & (x < 3), g / 6, e.const(0, g.dtype))


@pointwise(SAME, where=FUNCTIONAL, check=_floats("hardswish"))
def hardswish(x):
    """x * hardsigmoid(x)"""
    return x * e.minimum(e.maximum(x + 3, 0), 6) / 6


@hardswish.gradient
def hardswish(g, x):
    return where(x <= -3, e.const(0, g.dtype), where(x < 3, g * (x / 3 + 0.5), g))


@pointwise(SAME, inplace=False, check=_floats("hardshrink"))
def hardshrink(x, *, lambd=0.5):
    """0 between -lambd and lambd, else x"""
    return where((x >= -lambd) & (x <= lambd), e.const(0, x.dtype), x)


def _check_lambda(operands, attributes) -> None:
    lambd = attributes.get("lambd", 0.5)
    if not lambd >= 0:
        kind = operands[0].dtype
        raise RuntimeError(f"lambda must be in range [0, {dt.finfo(kind).max:g}] for input dtype "
                           f"{spoken(kind)}, but found {lambd}")
    _floats("softshrink")(operands, attributes)


@pointwise(SAME, where=FUNCTIONAL, inplace=False, check=_check_lambda)
def softshrink(x, *, lambd=0.5):
    """x moved towards 0 by lambd, and 0 if it is nearer"""
    inside = (x >= -lambd) & (x <= lambd)
    return where(inside, e.const(0, x.dtype), where(x > 0, x - lambd, x + lambd))
