"""What ops do with tensors in coordinates: on values alone, by index, or not at all.

Each function takes the op's arguments. What has no entry is refused, as torch does; to_dense()
comes first then.
"""

from __future__ import annotations

from ..core import dtype as dt
from ..core import shape as sh
from ..core.lazily import np
from ..ops.declare import Pointwise, registry
from . import inplace
from .coo import (
    IN_PLACE,
    CooTensor,
    coo,
    dense,
    empty_coo,
    indices_at,
    keys_of,
    picked,
    summed,
    united,
    values_of,
)
from .eager import engine
from .modes import modes
from .tensor import Tensor

#: ops that leave zero as it is: they act on the values
ON_VALUES = (
    "abs", "angle", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1",
    "floor", "frac", "isinf", "isnan", "isneginf", "isposinf", "log1p", "nan_to_num", "rad2deg",
    "relu", "round", "sgn", "sign", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)
NUMBERS = (bool, int, float, complex)


def with_values(x: CooTensor, values: Tensor) -> CooTensor:
    """Other values at the same indices."""
    return coo(x.at, values, x.sig.shape, x.united)


def is_number(value) -> bool:
    return isinstance(value, NUMBERS) or (
        isinstance(value, Tensor) and not isinstance(value, CooTensor) and not value.sig.rank)


def _on_values(name: str):
    run = None

    def on_values(x, *args, **kwargs):
        nonlocal run
        if run is None:
            run = (registry.get(name) or registry[f"nn.functional.{name}"]).run
        x = united(x)
        return with_values(x, run(values_of(x), *args, **kwargs))

    return on_values


# -- sums ------------------------------------------------------------------------------------------


def add(x, y, *, alpha=1):
    """x + alpha y: sparse where both are, strided where the first is."""
    if not isinstance(x, CooTensor):
        if isinstance(x, NUMBERS):
            raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) "
                               "instead.")
        return x + (dense(y) if alpha == 1 else dense(y) * alpha)
    if not isinstance(y, CooTensor):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if x.sig.shape != y.sig.shape:
        raise RuntimeError(f"add: expected sizes of 'self' and 'other' to match, but "
                           f"{list(x.sig.shape)} != {list(y.sig.shape)}")
    if x.sparse_dim() != y.sparse_dim():
        raise RuntimeError(f"add: expected 'self' and 'other' to have same number of sparse "
                           f"dimensions, but {x.sparse_dim()} != {y.sparse_dim()}")
    other = values_of(y) if alpha == 1 else values_of(y) * alpha
    if x.at is y.at or (x._nnz() == y._nnz() and np.array_equal(
            engine.to_array(x.at), engine.to_array(y.at))):
        return with_values(x, values_of(x) + other)
    kind = dt.promote(x.sig.dtype, other.sig.dtype)
    out = coo(engine.cat([x.at, y.at], 1),
              engine.cat([engine.cast(values_of(x), kind), engine.cast(other, kind)], 0),
              x.sig.shape)
    return united(out) if x.united and y.united else out


def sub(x, y, *, alpha=1):
    """x - alpha y"""
    return add(x, y, alpha=-alpha)


def into_strided(op, target: Tensor, args, attributes):
    """An op that writes to a strided tensor what it reads of a sparse one: a sum, or an error."""
    if op.name not in ("add", "sub") or args[0] is not target:
        found = next(a for a in args if isinstance(a, CooTensor))
        what = "copy_() between dense and sparse Tensors" if op is engine.identity else (
            f"{op.name}_() of a dense and a sparse Tensor")
        raise RuntimeError(f"{what} is not implemented! Found self type = {target.type()} and src "
                           f"type = {found.type()}")
    x = args[1]
    if modes.grad and x.node is not None:
        raise RuntimeError(f"{op.name}_: the gradient of a sparse tensor added in place is not "
                           f"recorded; use {op.name}() instead")
    if x.sig.shape != target.sig.shape:
        raise RuntimeError(f"{op.name}_: expected 'self' and 'other' to have same size, but self "
                           f"has size {list(target.sig.shape)} while other has size "
                           f"{list(x.sig.shape)}")
    alpha = attributes.get("alpha", 1) * (1 if op.name == "add" else -1)
    scatter_into(target, x, alpha)


def scatter_into(target: Tensor, x: CooTensor, alpha=1) -> None:
    """target += alpha x, unrecorded."""
    def scatter():
        values = x.held if alpha == 1 else x.held * alpha
        values = engine.cast(values, target.sig.dtype)
        if x.sparse_dim() == 1:
            target.index_add_(0, x.at[0], values)
        elif x.sparse_dim():
            target.index_put_(tuple(x.at), values, True)
        elif x._nnz():
            target.add_(summed(values, np.zeros(x._nnz(), np.int64), 1)[0])

    if x._nnz():
        engine.without_grad(scatter)


# -- products --------------------------------------------------------------------------------------


def mul(x, y):
    """x y, of which one may be a number, a strided tensor or sparse as well."""
    if not isinstance(x, CooTensor):
        x, y = y, x
    if is_number(y):
        return with_values(x, values_of(x) * y)
    if not isinstance(y, CooTensor):
        if tuple(y.sig.shape) != tuple(x.sig.shape):
            sh.broadcast("mul", x.sig.shape, y.sig.shape)
            y = y.expand(x.sig.shape)
        return with_values(x, values_of(x) * picked(y, x.at))
    x, y = united(x), united(y)
    leading = x.sig.shape[:x.sparse_dim()]
    keys, here, there = np.intersect1d(keys_of(x.at, leading), keys_of(y.at, leading),
                                       assume_unique=True, return_indices=True)
    left, right = (values_of(t).index_select(0, engine.tensor(k.astype(np.int64)))
                   for t, k in ((x, here), (y, there)))
    return coo(indices_at(keys, leading), left * right, x.sig.shape, True)


def div(x, y, *, rounding_mode=None):
    """x / y, where y is a number."""
    if not isinstance(x, CooTensor) or not is_number(y):
        shape = list(y.sig.shape) if isinstance(y, Tensor) else []
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor "
                           f"(got shape {shape} for divisor)")
    x = x if rounding_mode is None else united(x)
    return with_values(x, values_of(x).div(y, rounding_mode=rounding_mode))


def floor_divide(x, y):
    return div(x, y, rounding_mode="floor")


def power(x, exponent):
    """x to the power of a number; anything to the power 0 would be 1, also where x is zero."""
    if not isinstance(x, CooTensor) or not is_number(exponent) or exponent == 0:
        raise NotImplementedError(refusal("pow"))
    x = united(x)
    return with_values(x, values_of(x) ** exponent)


def _matrix(name: str, x) -> None:
    if isinstance(x, CooTensor) and (x.sparse_dim() != 2 or x.dense_dim()):
        raise RuntimeError(f"{name}: a sparse matrix with 2 sparse and 0 dense dimensions is "
                           f"wanted, got {x.sparse_dim()} sparse and {x.dense_dim()} dense")


def mm(x, y):
    """The product of matrices, of which one or both are sparse."""
    _matrix("mm", x)
    _matrix("mm", y)
    if x.sig.rank != 2 or y.sig.rank != 2 or x.sig.shape[1] != y.sig.shape[0]:
        raise RuntimeError(f"mm: mat1 and mat2 shapes cannot be multiplied "
                           f"({tuple(x.sig.shape)} and {tuple(y.sig.shape)})")
    if not isinstance(x, CooTensor):
        return mm(transpose(y, 0, 1), x.transpose(0, 1)).transpose(0, 1)
    x = united(x)
    if isinstance(y, CooTensor):
        return _sparse_product(x, united(y))
    rows = values_of(x).reshape(-1, 1) * y.index_select(0, x.at[1])
    out = engine.full((x.sig.shape[0], y.sig.shape[1]), 0, rows.sig.dtype)
    return out.index_add(0, x.at[0], rows)


def _sparse_product(x: CooTensor, y: CooTensor) -> CooTensor:
    """Each element of x meets the elements of y in the row that its column names."""
    (rows, middle), (starts, columns) = engine.to_array(x.at), engine.to_array(y.at)
    first = np.searchsorted(starts, middle, "left")
    count = np.searchsorted(starts, middle, "right") - first
    mine = np.repeat(np.arange(middle.size), count)
    before = np.repeat(np.cumsum(count) - count, count)
    theirs = np.arange(mine.size) - before + np.repeat(first, count)
    values = values_of(x).index_select(0, engine.tensor(mine)) * (
        values_of(y).index_select(0, engine.tensor(theirs)))
    at = engine.tensor(np.stack([rows[mine], columns[theirs]]))
    return united(coo(at, values, (x.sig.shape[0], y.sig.shape[1])))


def matmul(x, y):
    """x @ y for matrices and vectors."""
    if not isinstance(y, CooTensor) and y.sig.rank == 1:
        return mm(x, y.reshape(-1, 1)).reshape(-1)
    if not isinstance(x, CooTensor) and x.sig.rank == 1:
        return mm(x.reshape(1, -1), y).reshape(-1)
    return mm(x, y)


def bmm(x, y):
    """Products of matrices one by one."""
    return engine.stack([mm(a, b) for a, b in zip(x, y, strict=True)])


def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta input + alpha mat1 @ mat2"""
    found = mm(mat1, mat2)
    found = found if alpha == 1 else found * alpha
    if beta == 0:
        return found
    input = input if beta == 1 else input * beta
    return input + found if not isinstance(input, CooTensor) else found + input


def hspmm(mat1, mat2):
    """A sparse matrix times a strided one: sparse rows, each of them whole."""
    _require_strided("hspmm", mat2)
    product = mm(mat1, mat2)
    rows = engine.tensor(np.unique(engine.to_array(united(mat1).at[0])))
    return coo(rows.reshape(1, -1), product.index_select(0, rows), product.sig.shape, True)


def smm(input, mat):
    """A sparse matrix times a strided one, sparse: all elements of the rows that have any."""
    _require_strided("sspaddmm", mat)
    rows = hspmm(input, mat)
    width = rows.sig.shape[1]
    rows_at = engine.to_array(rows.at[0])
    at = np.stack([np.repeat(rows_at, width), np.tile(np.arange(width), rows_at.size)])
    return coo(engine.tensor(at), values_of(rows).reshape(-1), rows.sig.shape)


def sspaddmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta input + alpha mat1 @ mat2, sparse; elements of both stay side by side."""
    if not isinstance(input, CooTensor) or not isinstance(mat1, CooTensor):
        raise RuntimeError("sspaddmm: expected 'input' and 'mat1' to be sparse matrices")
    product = smm(mat1, mat2)
    if input.sig.shape != product.sig.shape:
        raise RuntimeError(f"sspaddmm: input of shape {list(input.sig.shape)} cannot be added to a "
                           f"product of shape {list(product.sig.shape)}")
    values = engine.cat([values_of(input) * beta, values_of(product) * alpha])
    return coo(engine.cat([input.at, product.at], 1), values, input.sig.shape)


def _require_strided(name: str, mat) -> None:
    if isinstance(mat, CooTensor):
        raise RuntimeError(f"{name}: expected 'mat2' to have strided layout, got 'mat2' with layout"
                           " Sparse")


def linear(input, weight, bias=None):
    """input @ weight.T + bias"""
    found = mm(input, transpose(weight, 0, 1) if isinstance(weight, CooTensor) else
               weight.transpose(0, 1))
    return found if bias is None else found + bias


# -- reductions ------------------------------------------------------------------------------------


def sum_(x, dim=None, keepdim=False, *, dtype=None):
    """The sum of all elements, or along dimensions: sparse while sparse dimensions remain."""
    if dtype is not None:
        x = with_values(x, values_of(x).to(dtype))
    rank, sparse = x.sig.rank, x.sparse_dim()
    if dim is None or dim == () or dim == []:
        return values_of(x).sum()
    dims = sorted({sh.wrap_dim(d, rank) for d in (dim if isinstance(dim, (tuple, list)) else
                                                  (dim,))})
    inner = [d - sparse + 1 for d in dims if d >= sparse]
    values = values_of(x).sum(inner) if inner else values_of(x)
    kept = [d for d in range(sparse) if d not in dims]
    shape = [n for d, n in enumerate(x.sig.shape) if d not in dims]
    if not kept:
        out = values.sum(0)
        return out if not keepdim else out.reshape(
            [1 if d in dims else n for d, n in enumerate(x.sig.shape)])
    at = x.at.index_select(0, engine.tensor(np.array(kept)))
    out = coo(at, values, shape, x.united and len(kept) == sparse)
    out = united(out)
    for d in dims if keepdim else ():
        out = unsqueeze(out, d)
    return out


def norm(x, p=2, dim=None, keepdim=False, dtype=None):
    """The norm of all elements as one vector."""
    if dim is not None:
        raise NotImplementedError(refusal("norm along dimensions"))
    values = values_of(united(x))
    return values.norm(p) if dtype is None else values.norm(p, dtype=dtype)


def any_(x):
    return values_of(united(x)).any()


def softmax(x, dim, dtype=None, *, logarithm=False):
    """exp(x) / sum exp(x) along a dimension, over the elements that are there."""
    x = united(x if dtype is None else with_values(x, values_of(x).to(dtype)))
    dim, sparse, values = sh.wrap_dim(dim, x.sig.rank), x.sparse_dim(), values_of(x)
    if dim >= sparse:
        run = registry["log_softmax" if logarithm else "softmax"].run
        return with_values(x, run(values, dim - sparse + 1))
    others = [d for d in range(sparse) if d != dim]
    at = x.at.index_select(0, engine.tensor(np.array(others, np.int64)))
    keys, group = np.unique(keys_of(at, [x.sig.shape[d] for d in others]), return_inverse=True)
    numbers = engine.tensor(group.reshape(-1).astype(np.int64))
    most = engine.full((keys.size, *values.sig.shape[1:]), -float("inf"), values.sig.dtype)
    most = most.index_reduce(0, numbers, values.detach(), "amax")
    shifted = values - most.index_select(0, numbers)
    total = summed(shifted.exp(), group, keys.size).index_select(0, numbers)
    return with_values(x, shifted - total.log() if logarithm else shifted.exp() / total)


def log_softmax(x, dim, dtype=None):
    return softmax(x, dim, dtype, logarithm=True)


# -- shapes and parts ------------------------------------------------------------------------------


def transpose(x, dim0, dim1):
    """Two dimensions swapped, both sparse or both dense."""
    rank = x.sig.rank
    order = list(range(rank))
    a, b = sh.wrap_dim(dim0, rank), sh.wrap_dim(dim1, rank)
    order[a], order[b] = order[b], order[a]
    return permute(x, order)


def permute(x, *dims):
    """Dimensions in another order; sparse ones stay before dense ones."""
    given = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    sparse, order = x.sparse_dim(), [sh.wrap_dim(d, x.sig.rank) for d in given]
    if sorted(order[:sparse]) != list(range(sparse)):
        raise RuntimeError("transpose: a sparse dimension and a dense one cannot be exchanged; "
                           "to_dense() first")
    at = x.at.index_select(0, engine.tensor(np.array(order[:sparse], np.int64)))
    values = values_of(x).permute(0, *(d - sparse + 1 for d in order[sparse:]))
    return coo(at, values, [x.sig.shape[d] for d in order],
               x.united and order[:sparse] == list(range(sparse)))


def t(x):
    """The matrix transposed."""
    if x.sparse_dim() > 2 or x.dense_dim():
        raise RuntimeError("t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got "
                           f"{x.sparse_dim()} sparse and {x.dense_dim()} dense dimensions")
    return x if x.sig.rank < 2 else transpose(x, 0, 1)


def unsqueeze(x, dim):
    """One more dimension, of size 1."""
    dim, sparse, shape = sh.wrap_dim(dim, x.sig.rank + 1), x.sparse_dim(), list(x.sig.shape)
    shape.insert(dim, 1)
    if dim > sparse:
        return coo(x.at, values_of(x).unsqueeze(dim - sparse + 1), shape, x.united)
    row = engine.full((1, x._nnz()), 0, dt.int64)
    at = engine.cat([x.at[:dim], row, x.at[dim:]], 0)
    return coo(at, values_of(x), shape, x.united)


def index_select(x, dim, index):
    """The slices along a dimension that an index names, in its order."""
    dim, sparse, shape = sh.wrap_dim(dim, x.sig.rank), x.sparse_dim(), list(x.sig.shape)
    size, shape[dim] = shape[dim], index.sig.numel
    if dim >= sparse:
        return coo(x.at, values_of(x).index_select(dim - sparse + 1, index), shape, x.united)
    wanted = engine.to_array(index.reshape(-1))
    if wanted.size and not 0 <= wanted.min() <= wanted.max() < size:
        raise IndexError(f"index_select(): index contains indices out of range for dimension {dim} "
                         f"of size {size}")
    x = united(x)
    found, place = np.nonzero(engine.to_array(x.at)[dim][:, None] == wanted[None])
    at = engine.to_array(x.at)[:, found].copy()
    at[dim] = place
    values = values_of(x).index_select(0, engine.tensor(found))
    return united(coo(engine.tensor(at), values, shape))


def select(x, dim, index):
    """One slice along a dimension; strided where no sparse dimension is left."""
    dim, sparse, shape = sh.wrap_dim(dim, x.sig.rank), x.sparse_dim(), list(x.sig.shape)
    size = shape.pop(dim)
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} out of range for tensor of size "
                         f"{list(x.sig.shape)} at dimension {dim}")
    index %= size
    if dim >= sparse:
        return coo(x.at, values_of(x).select(dim - sparse + 1, index), shape, x.united)
    found = engine.tensor(np.flatnonzero(engine.to_array(x.at)[dim] == index))
    values = values_of(x).index_select(0, found)
    if sparse == 1:
        return values.sum(0)
    kept = engine.tensor(np.array([d for d in range(sparse) if d != dim]))
    return coo(x.at.index_select(0, kept).index_select(1, found), values, shape, x.united)


def getitem(x, index):
    """x[i], x[i, j]: numbers only."""
    items = index if isinstance(index, tuple) else (index,)
    if len(items) > x.sig.rank:
        raise IndexError(f"too many indices for tensor of dimension {x.sig.rank}")
    for item in items:
        if type(item) is not int:
            raise NotImplementedError(refusal("__getitem__ with slices or tensors"))
        x = select(x, 0, item) if isinstance(x, CooTensor) else x[item]
    return x


def cat(tensors, dim=0, *, axis=None):
    """Sparse tensors one after the other."""
    dim = sh.wrap_dim(dim if axis is None else axis, tensors[0].sig.rank)
    if not all(isinstance(x, CooTensor) for x in tensors):
        raise RuntimeError("cat: sparse and strided tensors cannot be joined; to_dense() first")
    first, shape = tensors[0], list(tensors[0].sig.shape)
    if dim >= first.sparse_dim():
        whole = engine.cat([dense(x) for x in tensors], dim)
        return whole.to_sparse(first.sparse_dim())
    parts, start = [], 0
    for x in tensors:
        others = [n for d, n in enumerate(x.sig.shape) if d != dim]
        if others != [n for d, n in enumerate(shape) if d != dim]:
            raise RuntimeError("cat: all tensors must have the same shape except along dimension "
                               f"{dim}: {shape} and {list(x.sig.shape)}")
        at = engine.to_array(x.at).copy()
        at[dim] += start
        start += x.sig.shape[dim]
        parts.append(at)
    shape[dim] = start
    return coo(engine.tensor(np.concatenate(parts, 1)),
               engine.cat([values_of(x) for x in tensors], 0), shape)


def stack(tensors, dim=0):
    """Sparse tensors along a new dimension."""
    return cat([unsqueeze(x, dim) for x in tensors], dim)


def zeros_like(x, *, dtype=None, layout=None, device=None, memory_format=None):
    """All zeros, of the same shape."""
    return empty_coo(x.sig.shape, dtype or x.sig.dtype, x.sparse_dim())


def neg(x):
    return with_values(x, -values_of(x))


def clone(x, *, memory_format=None):
    return x.clone()


def detach(x):
    return x.detach()


def equal_sizes(x, y):
    return x.sig.shape == y.sig.shape


#: op -> the dtype that it converts to
CONVERSIONS = {f"to_{kind.name}": kind for kind in dt.ALL}


def _conversion(kind: dt.dtype):
    return lambda x: with_values(x, engine.cast(values_of(x), kind))


#: op -> what it does with a sparse tensor
TABLE = {
    **{name: _conversion(kind) for name, kind in CONVERSIONS.items()},
    **{name: _on_values(name) for name in ON_VALUES},
    "add": add, "sub": sub, "mul": mul, "div": div, "true_divide": div, "neg": neg,
    "floor_divide": floor_divide, "pow": power,
    "mm": mm, "spmm": mm, "matmul": matmul, "mv": matmul, "bmm": bmm, "addmm": addmm,
    "hspmm": hspmm, "smm": smm, "sspaddmm": sspaddmm,
    "linear": linear, "sum": sum_, "norm": norm, "any": any_, "transpose": transpose,
    "permute": permute, "t": t, "unsqueeze": unsqueeze, "index_select": index_select,
    "select": select, "__getitem__": getitem, "cat": cat, "stack": stack, "clone": clone,
    "detach": detach, "zeros_like": zeros_like, "empty_like": zeros_like,
    "is_same_size": equal_sizes,
}


def refusal(name: str) -> str:
    return (f"Could not run 'aten::{name}' with arguments from the 'SparseCPU' backend: {name} is "
            "not defined for tensors of layout torch.sparse_coo. Call to_dense() first, or work "
            "on values().")


def call(func, args, kwargs):
    """Answer an op of which an argument is sparse."""
    name = getattr(func, "__name__", str(func))
    found = TABLE.get(name)
    if found is None and not isinstance(args[0], CooTensor) and name.endswith("_"):
        op = engine.identity if name == "copy_" else registry.get(IN_PLACE.get(name, name[:-1]))
        if isinstance(op, Pointwise):
            return inplace.pointwise_inplace(op, *args, **kwargs)
    if found is None:
        raise NotImplementedError(refusal(name))
    if "other" in kwargs:
        args = (*args, kwargs.pop("other"))
    return found(*args, **kwargs)


engine.sparse_call, engine.sparse_into = call, into_strided
