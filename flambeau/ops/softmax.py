"""softmax and its relatives: exponentials shifted by the largest, so that nothing overflows."""

from __future__ import annotations

import warnings

from ..core import dtype as dt
from ..core import expr as e
from ..core import shape as sh
from ..core.rows import each, row_program
from .arithmetic import exp
from .declare import FLOAT, T, composite, engine, reduction, registry
from .extremes import amax
from .reduce import restored, sum
from .refusal import no_kernel

_HALVES = (dt.float16, dt.bfloat16)


def _operand(name: str, input, dtype):
    """The input in the dtype it is computed in, and the dtype of the result."""
    result = dtype or input.dtype
    if result.kind != "f":
        raise no_kernel(f"{name}_kernel_impl", result)
    return engine.cast(input, dt.float32 if result in _HALVES else result), result


@row_program
def shares(rows, x: each):
    """Each exponential's share of a row's sum of them."""
    raised = rows.draft(e.call("exp_falling", x - rows.top(x)))
    return rows.each(raised / rows.sum(raised))


@row_program
def shares_slopes(rows, g: each, out: each):
    """The gradient of what shares were taken of."""
    return rows.each(out * (g - rows.sum(g * out)))


@row_program
def log_shares(rows, x: each):
    """The logarithms of the shares, without dividing."""
    shifted = x - rows.top(x)
    return rows.each(shifted - registry["log"](rows.sum(e.call("exp_falling", shifted))))


@row_program
def log_shares_slopes(rows, g: each, out: each):
    """The gradient of what logarithms of shares were taken of."""
    return rows.each(g - e.call("exp_falling", out) * rows.sum(g))


def _rows(program, *tensors, dim):
    """A row program along one dimension."""
    rank = tensors[0].dim()
    return program(*tensors, dims=(sh.wrap_dim(dim, rank),) if rank else ())


@composite
def softmax(input: T, dim, dtype=None):
    """exp(x) / sum(exp(x)) along `dim`."""
    x, result = _operand("softmax", input, dtype)
    if not x.numel():
        return engine.cast(engine.clone(x), result)
    return engine.cast(_rows(shares, x, dim=dim), result)


@softmax.gradient
def softmax(g, out, input_meta, dim):
    if out.numel() and not engine.recording() and out.dtype not in _HALVES:
        return engine.cast(_rows(shares_slopes, g, out, dim=dim), input_meta.dtype)
    part = g * out
    return engine.cast(part - out * sum(part, dim, keepdim=True), input_meta.dtype)


softmax.rows = shares, shares_slopes


@composite
def log_softmax(input: T, dim, dtype=None):
    """x - log(sum(exp(x))) along `dim`."""
    x, result = _operand("log_softmax", input, dtype)
    if not x.numel():
        return engine.cast(engine.clone(x), result)
    return engine.cast(_rows(log_shares, x, dim=dim), result)


@log_softmax.gradient
def log_softmax(g, out, input_meta, dim):
    if out.numel() and not engine.recording() and out.dtype not in _HALVES:
        return engine.cast(_rows(log_shares_slopes, g, out, dim=dim), input_meta.dtype)
    return engine.cast(g - exp(out) * sum(g, dim, keepdim=True), input_meta.dtype)


log_softmax.rows = log_shares, log_shares_slopes


def _implicit_dim(name: str, input, dim, stacklevel: int) -> int:
    if dim is not None:
        return dim
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to "
                  "include dim=X as an argument.", stacklevel=stacklevel)
    return 0 if input.dim() in (0, 1, 3) else 1


@composite(name="softmax", where="nn.functional")
def functional_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """exp(x) / sum(exp(x)) along `dim`."""
    dim = dim if type(dim) is int else _implicit_dim("softmax", input, dim, _stacklevel + 2)
    return softmax(input, dim) if dtype is None else softmax(input, dim, dtype)


@composite(name="log_softmax", where="nn.functional")
def functional_log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """x - log(sum(exp(x))) along `dim`."""
    dim = dim if type(dim) is int else _implicit_dim("log_softmax", input, dim, _stacklevel + 2)
    return log_softmax(input, dim) if dtype is None else log_softmax(input, dim, dtype)


@composite(where="nn.functional")
def softmin(input, dim=None, _stacklevel=3, dtype=None):
    """softmax of -x along `dim`."""
    return softmax(-input, _implicit_dim("softmin", input, dim, _stacklevel + 2), dtype)


# -- logsumexp -----------------------------------------------------------------------------------


def _finite(largest):
    """What to shift by: an infinite largest would make NaN of itself."""
    return e.where(e.call("abs", largest) == float("inf"), e.const(0, largest.dtype), largest)


@reduction(FLOAT, start=0, after=amax, merge=lambda a, b: a + b, method=False, function_form=False,
           finish=lambda total, amax: e.call("log", total) + _finite(amax),
           backward="LogsumexpBackward0", said="logsumexp")
def shifted_logsumexp(total, x, largest):
    """log(sum(exp(x))) of real numbers."""
    return total + e.call("exp", x - _finite(largest))


@shifted_logsumexp.gradient
def shifted_logsumexp(g, x, out, x_meta, dim, keepdim):
    g, out = (restored(v, x_meta, dim, keepdim) for v in (g, out))
    return engine.cast(g * exp(x - out), x_meta.dtype)


@composite
def logsumexp(input, dim, keepdim=False):
    """log(sum(exp(x))) over `dim`, without overflow."""
    if input.dtype.kind != "c":
        return shifted_logsumexp(input, dim, keepdim)
    largest = amax(registry["real"](input.detach()), dim, keepdim=True)
    largest = largest.masked_fill(largest.abs() == float("inf"), 0)
    total = registry["log"](sum(exp(input - largest), dim, keepdim=True)) + largest
    return total if keepdim else registry["squeeze"](total, dim)
