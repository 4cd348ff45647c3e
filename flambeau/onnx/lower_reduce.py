"""Products, reductions, scans and sorting in ONNX."""

from __future__ import annotations

import numpy as np

import flambeau
from flambeau.export.graph import Extent, example

from .build import Builder, UnsupportedOperatorError
from .registry import Call, axes_of, axis_of, lowers

# -- products ------------------------------------------------------------------------------------


@lowers("matmul", "mm", "bmm", "mv", "dot")
def matmul(b: Builder, call: Call, x, y):
    return b.op("MatMul", x, y)


@lowers("nn.functional.linear")
def linear(b: Builder, call: Call, x, weight, bias):
    if x.rank == 2 and bias is not None and weight.rank == 2:
        return b.op("Gemm", x, weight, bias, transB=1)
    product = b.op("MatMul", x, b.transpose(weight, [1, 0]) if weight.rank == 2 else weight)
    return product if bias is None else b.op("Add", product, bias)


@lowers("addmm")
def addmm(b: Builder, call: Call, x, one, other, beta, alpha):
    return b.op("Gemm", one, other, x, alpha=float(alpha), beta=float(beta))


@lowers("einsum", raw=True)
def einsum(b: Builder, call: Call, equation, *tensors):
    if not isinstance(equation, str):
        raise UnsupportedOperatorError("einsum is exported in its form with an equation")
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    return b.op("Einsum", *tensors, equation=equation.replace(" ", ""))


# -- reductions ----------------------------------------------------------------------------------


def _reduced(kind: str, booleans: bool = False):
    def lower(b: Builder, call: Call, x, dim, keepdim, dtype=None, *rest):
        if booleans:
            counted = b.cast(b.cast(x, flambeau.bool), flambeau.int32)
            made = b.reduce(kind, counted, axes_of(dim, x.rank), keepdim)
            return b.op("Cast", made, to=9)
        return b.reduce(kind, b.cast(x, call.out.dtype), axes_of(dim, x.rank), keepdim)
    return lower


REDUCTIONS = {"sum": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "amax": "ReduceMax",
              "amin": "ReduceMin", "max_all": "ReduceMax", "min_all": "ReduceMin",
              "norm_one": "ReduceL1", "norm_two": "ReduceL2"}
for _key, _kind in REDUCTIONS.items():
    lowers(_key)(_reduced(_kind))
lowers("any")(_reduced("ReduceMax", True))
lowers("all")(_reduced("ReduceMin", True))


@lowers("norm_largest", "norm_smallest")
def extreme_norm(b: Builder, call: Call, x, dim, keepdim, *rest):
    kind = "ReduceMax" if call.key == "norm_largest" else "ReduceMin"
    return b.reduce(kind, b.op("Abs", x), axes_of(dim, x.rank), keepdim)


@lowers("norm_power")
def norm_power(b: Builder, call: Call, x, dim, keepdim, dtype, p):
    powers = b.op("Pow", b.op("Abs", x), b.const(p, x.dtype))
    total = b.reduce("ReduceSum", powers, axes_of(dim, x.rank), keepdim)
    return b.op("Pow", total, b.const(1.0 / p, x.dtype))


@lowers("count_nonzero", "norm_zero")
def count_nonzero(b: Builder, call: Call, x, dim, keepdim, *rest):
    ones = b.op("Cast", b.cast(x, flambeau.bool), to=7)
    return b.op("Cast", b.reduce("ReduceSum", ones, axes_of(dim, x.rank), keepdim),
                to=7 if call.key == "count_nonzero" else 1)


@lowers("shifted_logsumexp", "logsumexp")
def logsumexp(b: Builder, call: Call, x, dim, keepdim, *rest):
    return b.reduce("ReduceLogSumExp", x, axes_of(dim, x.rank), keepdim)


@lowers("variance", "deviation", "variance_and_mean", "deviation_and_mean")
def variance(b: Builder, call: Call, x, dim, keepdim, dtype, correction):
    axes = axes_of(dim, x.rank)
    kind = x.dtype
    mean = b.reduce("ReduceMean", x, axes, True)
    apart = b.op("Sub", x, mean)
    total = b.reduce("ReduceSum", b.op("Mul", apart, apart), axes, keepdim)
    over = axes if axes is not None else range(x.rank)
    sizes = [x.shape[d] for d in over]
    if any(isinstance(n, Extent) for n in sizes):
        count = b.op("Cast", b.op("ReduceProd", b.ints(sizes), keepdims=0), to=1)
        count = b.op("Sub", b.cast(count, kind) if kind is not flambeau.float32 else count,
                     b.const(correction, kind))
    else:
        count = b.const(max(0.0, float(np.prod(sizes)) - correction), kind)
    found = b.op("Div", total, count)
    if call.key.startswith("deviation"):
        found = b.op("Sqrt", found)
    if not call.key.endswith("mean"):
        return found
    return [found, mean if keepdim else b.reduce("ReduceMean", x, axes, False)]


@lowers("argmax", "argmin")
def argmax(b: Builder, call: Call, x, dim, keepdim, *rest):
    kind = "ArgMax" if call.key == "argmax" else "ArgMin"
    if dim is None:
        flat = b.op("Reshape", x, b.ints([-1]))
        found = b.op(kind, flat, axis=0, keepdims=0)
        return b.reshape(found, [1] * x.rank) if keepdim else found
    return b.op(kind, x, axis=axis_of(dim, x.rank), keepdims=int(keepdim))


@lowers("max_along", "min_along")
def max_along(b: Builder, call: Call, x, dim, keepdim, *rest):
    kind = "Max" if call.key == "max_along" else "Min"
    axis = axis_of(dim, x.rank)
    return [b.reduce(f"Reduce{kind}", x, [axis], keepdim),
            b.op(f"Arg{kind}", x, axis=axis, keepdims=int(keepdim))]


@lowers("both_extremes")
def both_extremes(b: Builder, call: Call, x, dim, keepdim, *rest):
    return [b.reduce(kind, x, axes_of(dim, x.rank), keepdim) for kind in ("ReduceMin", "ReduceMax")]


@lowers("cumsum")
def cumsum(b: Builder, call: Call, x, dim, *rest):
    return b.op("CumSum", b.cast(x, call.out.dtype), b.const(axis_of(dim, x.rank), flambeau.int64))


@lowers("cumprod")
def cumprod(b: Builder, call: Call, x, dim, *rest):
    """Step by step: ONNX has sums that run, but no products."""
    axis = axis_of(dim, x.rank)
    if isinstance(x.shape[axis], Extent):
        raise UnsupportedOperatorError("cumprod along an axis whose size varies has no lowering")
    name = b.cast(x, call.out.dtype)
    parts: list[str] = []
    for k in range(x.shape[axis]):
        part = b.slice(name, axis, k, k + 1)
        parts.append(part if not parts else b.op("Mul", parts[-1], part))
    return b.op("Concat", *parts, axis=axis)


# -- sorting -------------------------------------------------------------------------------------


@lowers("topk")
def topk(b: Builder, call: Call, x, k, dim, largest, sorted_):
    return b.op("TopK", x, b.ints([k]), results=2, axis=axis_of(dim, x.rank), largest=int(largest),
                sorted=int(sorted_))


@lowers("sort")
def sort(b: Builder, call: Call, x, dim, descending, stable):
    axis = axis_of(dim, x.rank)
    return b.op("TopK", x, b.ints([x.shape[axis]]), results=2, axis=axis, largest=int(descending),
                sorted=1)


@lowers("kthvalue")
def kthvalue(b: Builder, call: Call, x, k, dim, keepdim):
    axis = axis_of(dim, x.rank)
    found = b.op("TopK", x, b.ints([k]), results=2, axis=axis, largest=0, sorted=1)
    last = [b.slice(f, axis, k - 1, k) for f in found]
    return last if keepdim else [b.squeeze(f, [axis]) for f in last]


@lowers("median_along")
def median_along(b: Builder, call: Call, x, dim, keepdim):
    axis = axis_of(dim, x.rank)
    return kthvalue(b, call, x, (example(x.shape[axis]) + 1) // 2, dim, keepdim)


@lowers("linalg.det")
def det(b: Builder, call: Call, x):
    return b.op("Det", x)
