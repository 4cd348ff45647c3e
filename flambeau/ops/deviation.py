"""Variance and standard deviation: two folds over the same elements, in one kernel."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import expr as e
from .declare import REAL, SAME, composite, reduction, registry
from .reduce import count_of, dims_listed, mean, restored


def _real_zero(d: dt.dtype) -> e.Expr:
    return e.const(0, d.to_real())


def _square(x: e.Expr) -> e.Expr:
    if x.dtype.kind != "c":
        return x * x
    real, imag = e.real(x), e.imag(x)
    return real * real + imag * imag


def _variance(total, count, correction):
    return total / e.maximum(count - correction, e.const(0, count.dtype))


def _deviation(total, count, correction):
    return e.call("sqrt", _variance(total, count, correction))


def _accepts(given: dt.dtype, chosen: bool = False) -> None:
    if given.kind in "biu":
        raise RuntimeError("std and var only support floating point and complex dtypes, not "
                           f"{given}")


def _declared(name: str, said: str, finish, step: str, results=None):
    """One of the four: squared distances from the mean, added up and finished."""
    def distances(total, x, centre, *, correction=1.0):
        """Squared distances from the mean, divided by how many they are less `correction`."""
        return total + _square(x - centre)

    return reduction(REAL, name=name, start=_real_zero, after=mean, merge=lambda a, b: a + b,
                     finish=finish, accepts=_accepts, wide=True, results=results, method=False,
                     function_form=False, backward=step, said=said)(distances)


_PAIR = {"spread": REAL, "mean": SAME}
variance = _declared("variance", "var", _variance, "VarBackward0")
deviation = _declared("deviation", "std", _deviation, "StdBackward0")
variance_and_mean = _declared(
    "variance_and_mean", "var_mean", lambda total, count, mean, correction:
    (_variance(total, count, correction), mean), "VarMeanBackward0", _PAIR)
deviation_and_mean = _declared(
    "deviation_and_mean", "std_mean", lambda total, count, mean, correction:
    (_deviation(total, count, correction), mean), "StdMeanBackward0", _PAIR)


def _variance_back(g, x, meta, dim, keepdim, correction):
    dims = dims_listed(dim, meta.rank)
    freedom = count_of(meta, dim) - correction
    apart = x - (mean(x, tuple(dims), True) if dims else x)
    g = restored(g, meta, dim, keepdim)
    if freedom > 0:
        return g * apart * (2.0 / freedom)
    if dim is not None:
        return g * apart * (float("inf") if freedom == 0 else 2.0 / freedom)
    return g * registry["where"](apart == 0, float("nan"), float("inf"))


def _through_root(g, out):
    """The gradient before a square root; none where the root is zero."""
    return registry["where"](out == 0, 0.0, g / (2 * out))


def _mean_back(g, meta, dim, keepdim):
    return restored(g, meta, dim, keepdim) / count_of(meta, dim)


def _summed(parts, meta):
    parts = [p for p in parts if p is not None]
    total = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return registry["expand"](total, tuple(meta.shape))


@variance.gradient
def variance(g, x, x_meta, dim, keepdim, correction):
    return _variance_back(g, x, x_meta, dim, keepdim, correction)


@deviation.gradient
def deviation(g, x, out, x_meta, dim, keepdim, correction):
    return _variance_back(_through_root(g, out), x, x_meta, dim, keepdim, correction)


@variance_and_mean.gradient
def variance_and_mean(g, x, x_meta, dim, keepdim, correction):
    return _summed([None if g[0] is None else _variance_back(
        g[0], x, x_meta, dim, keepdim, correction),
        None if g[1] is None else _mean_back(g[1], x_meta, dim, keepdim)], x_meta)


@deviation_and_mean.gradient
def deviation_and_mean(g, x, out, x_meta, dim, keepdim, correction):
    return _summed([None if g[0] is None else _variance_back(
        _through_root(g[0], out[0]), x, x_meta, dim, keepdim, correction),
        None if g[1] is None else _mean_back(g[1], x_meta, dim, keepdim)], x_meta)


def _public(name: str, op, doc: str):
    """torch's three ways to ask: `unbiased` alone, dimensions with `unbiased`, or `correction`."""
    def ask(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        elif unbiased is not None:
            raise TypeError(f"{name}() takes unbiased or correction, not both")
        return op(input, dim, keepdim, correction=correction)

    ask.__name__, ask.__doc__ = name, doc
    return composite(name=name)(ask)


var = _public("var", variance, "Variance over `dim`.")
std = _public("std", deviation, "Standard deviation over `dim`.")
var_mean = _public("var_mean", variance_and_mean, "Variance and mean over `dim`.")
std_mean = _public("std_mean", deviation_and_mean, "Standard deviation and mean over `dim`.")
