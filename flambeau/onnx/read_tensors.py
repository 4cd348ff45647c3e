"""ONNX operators on elements, shapes and places, as functions of tensors."""

from __future__ import annotations

import math

import flambeau as fb
from flambeau.nn import functional as F

from .build import DTYPES
from .reading import READERS, axes_of, ints, number, reads

#: operators that are one function of their inputs
SAME = {
    "Abs": fb.abs, "Acos": fb.acos, "Acosh": fb.acosh, "Add": fb.add, "And": fb.logical_and,
    "Asin": fb.asin, "Asinh": fb.asinh, "Atan": fb.atan, "Atanh": fb.atanh,
    "BitwiseAnd": fb.bitwise_and, "BitwiseNot": fb.bitwise_not, "BitwiseOr": fb.bitwise_or,
    "BitwiseXor": fb.bitwise_xor, "Ceil": fb.ceil, "Cos": fb.cos, "Cosh": fb.cosh,
    "Equal": fb.eq, "Erf": fb.erf, "Exp": fb.exp, "Floor": fb.floor, "Greater": fb.gt,
    "GreaterOrEqual": fb.ge, "HardSwish": F.hardswish, "IsNaN": fb.isnan, "Less": fb.lt,
    "LessOrEqual": fb.le, "Log": fb.log, "MatMul": fb.matmul, "Mish": F.mish, "Mul": fb.mul,
    "Neg": fb.neg, "Not": fb.logical_not, "Or": fb.logical_or, "Reciprocal": fb.reciprocal,
    "Relu": fb.relu, "Round": fb.round, "Sigmoid": fb.sigmoid, "Sign": fb.sign, "Sin": fb.sin,
    "Sinh": fb.sinh, "Softsign": F.softsign, "Sqrt": fb.sqrt, "Sub": fb.sub, "Tan": fb.tan,
    "Tanh": fb.tanh, "Where": fb.where, "Xor": fb.logical_xor, "Det": fb.linalg.det,
}  # fmt: skip


def _same(function):
    return lambda *given, results=1, opset=0, **attributes: function(*given)


for _kind, _function in SAME.items():
    READERS[_kind] = _same(_function)


@reads("Identity")
def identity(x, **_):
    return x


@reads("Dropout")
def dropout(x, *rest, results=1, **_):
    return (x, fb.ones_like(x, dtype=fb.bool)) if results == 2 else x


@reads("Pow")
def power(x, y, **_):
    return fb.pow(x, y).to(x.dtype)


@reads("Div")
def div(x, y, **_):
    whole = not x.dtype.is_floating_point and not y.dtype.is_floating_point
    return fb.div(x, y, rounding_mode="trunc") if whole else fb.div(x, y)


@reads("Mod")
def mod(x, y, fmod=0, **_):
    return fb.fmod(x, y) if fmod else fb.remainder(x, y)


@reads("Cast")
def cast(x, to, **_):
    return x.to(DTYPES[to])


@reads("CastLike")
def cast_like(x, y, **_):
    return x.to(y.dtype)


@reads("IsInf")
def isinf(x, detect_negative=1, detect_positive=1, **_):
    if not detect_negative:
        return fb.isposinf(x)
    return fb.isinf(x) if detect_positive else fb.isneginf(x)


def _fold(function, mean=False):
    def read(*given, results=1, opset=0):
        total = given[0]
        for x in given[1:]:
            total = function(total, x)
        return total / len(given) if mean else total
    return read


READERS.update({"Max": _fold(fb.maximum), "Min": _fold(fb.minimum), "Sum": _fold(fb.add),
                "Mean": _fold(fb.add, True)})


@reads("Clip")
def clip(x, low=None, high=None, min=None, max=None, **_):
    low, high = (min if low is None else low), (max if high is None else high)
    if low is None and high is None:
        return x
    return fb.clamp(x, None if low is None else number(low), None if high is None else number(high))


# -- shapes --------------------------------------------------------------------------------------


@reads("Shape")
def shape(x, start=0, end=None, **_):
    return fb.tensor(list(x.shape)[start:end], dtype=fb.int64)


@reads("Size")
def size(x, **_):
    return fb.tensor(x.numel())


@reads("Reshape")
def reshape(x, target, allowzero=0, **_):
    sizes = ints(target)
    if not allowzero:
        sizes = [x.shape[k] if n == 0 else n for k, n in enumerate(sizes)]
    return x.reshape(sizes)


@reads("Flatten")
def flatten(x, axis=1, **_):
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), -1)


@reads("Transpose")
def transpose(x, perm=None, **_):
    return x.permute(tuple(range(x.dim()))[::-1] if perm is None else tuple(perm))


@reads("Squeeze")
def squeeze(x, given=None, axes=None, **_):
    found = axes_of(given, axes)
    return x.squeeze() if found is None else x.squeeze(tuple(found))


@reads("Unsqueeze")
def unsqueeze(x, given=None, axes=None, **_):
    found = axes_of(given, axes) or []
    rank = x.dim() + len(found)
    for axis in sorted(a + rank if a < 0 else a for a in found):
        x = x.unsqueeze(axis)
    return x


@reads("Expand")
def expand(x, target, **_):
    return x.expand(fb.broadcast_shapes(tuple(x.shape), tuple(ints(target))))


@reads("Concat")
def concat(*given, axis, **_):
    return fb.cat(list(given), axis)


@reads("Split")
def split(x, sizes=None, axis=0, split=None, num_outputs=None, results=1, **_):
    found = axes_of(sizes, split)
    if found is None:
        n = x.shape[axis]
        part = -(-n // (num_outputs or results))
        found = [min(part, n - k) for k in range(0, n, part)]
    return x.split(found, axis)


@reads("Tile")
def tile(x, repeats, **_):
    return x.repeat(ints(repeats))


@reads("Slice")
def slice_(x, starts=None, ends=None, axes=None, steps=None, **named):
    starts = ints(named["starts"] if starts is None else starts)
    ends = ints(named["ends"] if ends is None else ends)
    axes = list(range(len(starts))) if axes is None else ints(axes)
    for start, end, axis, step in zip(starts, ends, axes, [1] * len(starts) if steps is None
                                      else ints(steps), strict=True):
        n = x.shape[axis]
        first, last, step = slice(start, end, step).indices(n) if step > 0 else (
            *_backwards(start, end, n), step)
        if step > 0:
            x = x.narrow(axis, first, max(0, last - first)) if step == 1 else x[
                (slice(None),) * (axis % x.dim()) + (slice(first, last, step),)]
        else:
            x = x.index_select(axis, fb.tensor(list(range(first, last, step)), dtype=fb.int64))
    return x


def _backwards(start: int, end: int, n: int) -> tuple[int, int]:
    first = max(-1, min(n - 1, start + n if start < 0 else start))
    last = max(-1, min(n - 1, end + n if end < 0 else end))
    return first, last


@reads("Pad")
def pad(x, pads=None, value=None, axes=None, mode="constant", **named):
    given = ints(named["pads"] if pads is None else pads)
    over = list(range(x.dim())) if axes is None else [a % x.dim() for a in ints(axes)]
    count = len(over)
    pairs = [(0, 0)] * x.dim()
    for k, axis in enumerate(over):
        pairs[axis] = (given[k], given[count + k])
    if mode == "constant":
        flat = [n for pair in reversed(pairs) for n in pair]
        number_ = named.get("value", 0) if value is None else number(value)
        return F.pad(x, flat, value=number_)
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            x = x.index_select(axis, _mirrored(x.shape[axis], before, after, mode))
    return x


def _mirrored(n: int, before: int, after: int, mode: str):
    """Places that padding in these modes repeats."""
    def place(k: int) -> int:
        if mode == "edge":
            return min(max(k, 0), n - 1)
        if mode == "wrap":
            return k % n
        period = max(1, 2 * (n - 1))
        k %= period
        return k if k < n else period - k
    return fb.tensor([place(k) for k in range(-before, n + after)], dtype=fb.int64)


# -- places --------------------------------------------------------------------------------------


@reads("Gather")
def gather(x, index, axis=0, **_):
    axis = axis + x.dim() if axis < 0 else axis
    n = x.shape[axis]
    flat = index.reshape(-1).to(fb.int64)
    flat = fb.where(flat < 0, flat + n, flat)
    found = x.index_select(axis, flat)
    return found.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1:]))


@reads("GatherElements")
def gather_elements(x, index, axis=0, **_):
    index = fb.where(index < 0, index + x.shape[axis], index)
    return x.gather(axis, index)


@reads("GatherND")
def gather_nd(x, index, batch_dims=0, **_):
    if batch_dims:
        raise RuntimeError("GatherND with batch_dims is not known")
    return x[tuple(index.unbind(-1))]


@reads("ScatterElements")
def scatter_elements(x, index, updates, axis=0, reduction="none", **_):
    index = fb.where(index < 0, index + x.shape[axis], index)
    if reduction == "none":
        return x.scatter(axis, index, updates)
    kinds = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    return x.scatter_reduce(axis, index, updates, kinds[reduction])


@reads("ScatterND")
def scatter_nd(x, index, updates, reduction="none", **_):
    if reduction not in ("none", "add"):
        raise RuntimeError(f"ScatterND with reduction={reduction} is not known")
    return x.index_put(tuple(index.unbind(-1)), updates, accumulate=reduction == "add")


@reads("NonZero")
def nonzero(x, **_):
    return x.nonzero().t()


@reads("Compress")
def compress(x, condition, axis=None, **_):
    places = condition.nonzero().reshape(-1)
    return x.reshape(-1).index_select(0, places) if axis is None else x.index_select(axis, places)


@reads("OneHot")
def one_hot(index, depth, values, axis=-1, **_):
    n = int(number(depth))
    hot = index.remainder(n).unsqueeze(axis) == fb.arange(n).reshape(
        [n if d == axis % (index.dim() + 1) else 1 for d in range(index.dim() + 1)])
    return fb.where(hot, values[1], values[0])


@reads("Range")
def range_(start, end, step, **_):
    return fb.arange(number(start), number(end), number(step), dtype=start.dtype)


@reads("Constant")
def constant(value=None, value_float=None, value_int=None, value_floats=None, value_ints=None, **_):
    found = next(v for v in (value, value_float, value_int, value_floats, value_ints)
                 if v is not None)
    return found if isinstance(found, fb.Tensor) else fb.tensor(found)


@reads("ConstantOfShape")
def constant_of_shape(target, value=None, **_):
    if value is None:
        return fb.zeros(ints(target))
    return fb.full(ints(target), number(value.reshape(())), dtype=value.dtype)


@reads("EyeLike")
def eye_like(x, dtype=None, k=0, **_):
    ones = fb.ones(*x.shape, dtype=x.dtype if dtype is None else DTYPES[dtype])
    return ones.tril(k).triu(k)


@reads("Trilu")
def trilu(x, k=None, upper=1, **_):
    offset = 0 if k is None else int(number(k))
    return x.triu(offset) if upper else x.tril(offset)


# -- reductions, products, sorting -----------------------------------------------------------------


def _reduction(function):
    def read(x, given=None, axes=None, keepdims=1, noop_with_empty_axes=0, results=1, opset=0):
        found = axes_of(given, axes)
        if not found:
            if noop_with_empty_axes:
                return x
            found = list(range(x.dim()))
        return function(x, tuple(found), bool(keepdims))
    return read


def _product(x, dims, keepdim):
    for d in sorted((d % x.dim() for d in dims), reverse=True):
        x = x.prod(d, keepdim=keepdim)
    return x


REDUCTIONS = {
    "ReduceSum":       lambda x, d, k: x.sum(d, keepdim=k, dtype=x.dtype),
    "ReduceMean":      lambda x, d, k: x.mean(d, keepdim=k),
    "ReduceMax":       lambda x, d, k: x.amax(d, keepdim=k),
    "ReduceMin":       lambda x, d, k: x.amin(d, keepdim=k),
    "ReduceProd":      _product,
    "ReduceL1":        lambda x, d, k: x.abs().sum(d, keepdim=k),
    "ReduceL2":        lambda x, d, k: x.square().sum(d, keepdim=k).sqrt(),
    "ReduceSumSquare": lambda x, d, k: x.square().sum(d, keepdim=k),
    "ReduceLogSum":    lambda x, d, k: x.sum(d, keepdim=k).log(),
    "ReduceLogSumExp": lambda x, d, k: x.logsumexp(d, keepdim=k),
}
for _kind, _function in REDUCTIONS.items():
    READERS[_kind] = _reduction(_function)


@reads("ArgMax")
def argmax(x, axis=0, keepdims=1, **_):
    return x.argmax(axis, keepdim=bool(keepdims))


@reads("ArgMin")
def argmin(x, axis=0, keepdims=1, **_):
    return x.argmin(axis, keepdim=bool(keepdims))


@reads("CumSum")
def cumsum(x, axis, exclusive=0, reverse=0, **_):
    d = int(number(axis))
    x = x.flip(d) if reverse else x
    total = x.cumsum(d, dtype=x.dtype)
    total = total - x if exclusive else total
    return total.flip(d) if reverse else total


@reads("TopK")
def topk(x, k, axis=-1, largest=1, sorted=1, **_):
    return tuple(x.topk(int(number(k.reshape(()))), axis, bool(largest), bool(sorted)))


@reads("Einsum")
def einsum(*given, equation, **_):
    return fb.einsum(equation, *given)


@reads("Gemm")
def gemm(a, b, c=None, alpha=1.0, beta=1.0, transA=0, transB=0, **_):
    if not transA and transB and alpha == 1 and beta == 1 and (c is None or c.dim() == 1):
        return F.linear(a, b, c)
    out = (a.t() if transA else a) @ (b.t() if transB else b)
    out = out if alpha == 1 else out * alpha
    return out if c is None else out + (c if beta == 1 else c * beta)
