"""What ops do with tensors in compressed rows or columns: on values, by products, or not at all."""

from __future__ import annotations

import flambeau

from ..assemble import coo, coo_ops, engine
from ..core import formats as fm
from ..engine.modes import modes
from ..engine.tensor import LEAF, Tensor
from ..engine.unstrided import SparseTensor, marked
from ..ops.declare import registry
from .compressed import TABLE, CompressedTensor, compressed, dense, in_coordinates, picked
from .pattern import Pattern, recorded_product, sampled, times, times_turned


def _on_values(name: str):
    def on_values(x, *args, **kwargs):
        op = registry.get(name) or registry[f"nn.functional.{name}"]
        return marked(x._with(op.run(x._kept(), *args, **kwargs)), f"{name.capitalize()}Backward0")

    return on_values


def _in_layout(found, like: CompressedTensor):
    """A result in coordinates, in the layout of an operand."""
    return found.to_sparse(
        layout=like.kind, blocksize=like.block if like.kind in fm.BLOCKED else None)


def _coordinates(x):
    return in_coordinates(x) if isinstance(x, CompressedTensor) else x


def _alike(x, y) -> bool:
    return isinstance(x, CompressedTensor) and isinstance(y, CompressedTensor) and (
        x.kind is y.kind and x.sig.shape == y.sig.shape and x.pattern.same_as(y.pattern))


# -- sums and products by element ------------------------------------------------------------------


def add(x, y, *, alpha=1):
    """x + alpha y: sparse where both are."""
    if not isinstance(x, SparseTensor):
        y = dense(y)
        return x + (y if alpha == 1 else y * alpha)
    if not isinstance(y, SparseTensor):
        return dense(x) + (y if alpha == 1 else y * alpha)
    if _alike(x, y):
        other = y._kept()
        return x._with(x._kept() + (other if alpha == 1 else other * alpha))
    like = x if isinstance(x, CompressedTensor) else y
    return _in_layout(coo_ops.add(_coordinates(x), _coordinates(y), alpha=alpha), like)


def sub(x, y, *, alpha=1):
    """x - alpha y"""
    return add(x, y, alpha=-alpha)


def mul(x, y):
    """x y, of which one may be a number, a strided tensor or sparse as well."""
    if not isinstance(x, CompressedTensor):
        x, y = y, x
    if coo_ops.is_number(y):
        return x._with(x._kept() * y)
    if _alike(x, y):
        return x._with(x._kept() * y._kept())
    if isinstance(y, SparseTensor):
        return _in_layout(coo_ops.mul(_coordinates(x), _coordinates(y)), x)
    return x._with(x._kept() * picked(y.expand(x.sig.shape), x))


def div(x, y, *, rounding_mode=None):
    """x / y, where y is a number."""
    if not isinstance(x, CompressedTensor) or not coo_ops.is_number(y):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor")
    return x._with(x._kept().div(y, rounding_mode=rounding_mode))


# -- products of matrices --------------------------------------------------------------------------


def by_rows(x: CompressedTensor) -> tuple[Pattern, Tensor]:
    """A matrix as rows and values, whatever its layout."""
    if x.batch or x.dense_dim():
        raise RuntimeError("mm: a sparse matrix without batch and dense dimensions is wanted, got "
                           f"{x.batch} of the first and {x.dense_dim()} of the other")
    if x.by_rows:
        return x.pattern, x._kept()
    pattern, order = x.pattern.turned()
    return pattern, x._kept().index_select(0, order)


def _sparse_times(x: CompressedTensor, y: Tensor, label: str, sparse_gradient: bool) -> Tensor:
    if x.node is LEAF and modes.grad and not sparse_gradient:
        return _with_strided_gradient(x, y, label)
    if x.by_rows or x.kind in fm.BLOCKED or x.batch or x.dense_dim():
        return times(*by_rows(x), y, label)
    return times_turned(x.pattern, x._kept(), y)


def _with_strided_gradient(x: CompressedTensor, y: Tensor, label: str) -> Tensor:
    """A product whose gradient of a sparse leaf has all elements, as torch's `@` gives it."""
    plain, rows = x.detach(), y.detach()
    out = _sparse_times(plain, rows, label, True)
    return recorded_product(out, label, (x, y), lambda g: (
        lambda: g @ y.mT, lambda: mm(transpose(plain, 0, 1), g)))


def mm(x, y, label: str = "MmBackward0", sparse_gradient: bool = False):
    """The product of matrices, of which one or both are sparse."""
    shapes = tuple(x.shape), tuple(y.shape)
    if any(len(s) != 2 for s in shapes) or shapes[0][1] != shapes[1][0]:
        raise RuntimeError("mm: mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})".format(
            *(shapes[0] + (0, 0))[:2], *(shapes[1] + (0, 0))[:2]))
    if isinstance(x, SparseTensor) and isinstance(y, SparseTensor):
        like = x if isinstance(x, CompressedTensor) else y
        found = coo_ops.mm(_coordinates(x), _coordinates(y))
        return found.to_sparse(layout=like.kind if like.kind not in fm.BLOCKED else fm.sparse_csr)
    if isinstance(x, CompressedTensor):
        return _sparse_times(x, y, label, sparse_gradient)
    return mm(transpose(y, 0, 1), x.transpose(0, 1), label, sparse_gradient).transpose(0, 1)


def matmul(x, y):
    """x @ y for matrices and vectors."""
    if not isinstance(y, SparseTensor) and y.dim() == 1:
        return mm(x, y.reshape(-1, 1), "MvBackward0").reshape(-1)
    if not isinstance(x, SparseTensor) and x.dim() != 2:
        return mm(x.reshape(-1, x.shape[-1]), y).reshape(*x.shape[:-1], y.shape[1])
    return mm(x, y)


def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta input + alpha mat1 @ mat2"""
    found = matmul(mat1, mat2)
    found = found if alpha == 1 else found * alpha
    if beta == 0:
        return found
    return (input if beta == 1 else input * beta) + found


def linear(input, weight, bias=None):
    """input @ weight.T + bias"""
    found = matmul(input, transpose(weight, 0, 1) if isinstance(weight, SparseTensor) else
                   weight.transpose(0, 1))
    return found if bias is None else found + bias


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0):
    """alpha mat1 @ mat2 where a matrix in compressed rows has elements, and beta of that matrix."""
    if not isinstance(input, CompressedTensor) or input.kind is not fm.sparse_csr or input.batch:
        raise RuntimeError("sampled_addmm: Expected self to have sparse csr layout, but got "
                           f"{fm.spoken(input.layout)}")
    if mat1.shape[1:] != mat2.shape[:1] or (mat1.shape[0], mat2.shape[1]) != tuple(input.shape):
        raise RuntimeError("sampled_addmm: mat1 and mat2 shapes cannot be multiplied "
                           f"({mat1.shape[0]}x{mat1.shape[1]} and {mat2.shape[0]}x{mat2.shape[1]})"
                           f" to {tuple(input.shape)}")
    found = sampled(input.pattern, mat1, mat2.transpose(0, 1))
    found = found if alpha == 1 else found * alpha
    return input._with(found if beta == 0 else found + input._kept() * beta)


# -- shapes, parts and reductions ------------------------------------------------------------------

_TURNED = {fm.sparse_csr: fm.sparse_csc, fm.sparse_csc: fm.sparse_csr,
           fm.sparse_bsr: fm.sparse_bsc, fm.sparse_bsc: fm.sparse_bsr}


def transpose(x, dim0, dim1):
    """Rows and columns exchanged: what was compressed in rows is so in columns."""
    if not isinstance(x, CompressedTensor):
        return x.transpose(dim0, dim1)
    rank, batch = x.sig.rank, x.batch
    pair = sorted((dim0 % rank, dim1 % rank))
    if pair[0] == pair[1]:
        return x
    if pair != [batch, batch + 1]:
        raise RuntimeError(f"transpose(): can only transpose the two sparse dimensions of a tensor "
                           f"of layout {x.kind}, got {dim0} and {dim1}")
    shape = list(x.sig.shape)
    shape[batch], shape[batch + 1] = shape[batch + 1], shape[batch]
    held = x._kept()
    if x.kind in fm.BLOCKED:
        held = held.transpose(batch + 1, batch + 2)
    return marked(compressed(x.pattern, held, shape, _TURNED[x.kind]), "TransposeBackward0")


def t(x):
    """The matrix transposed."""
    return transpose(x, 0, 1)


def _through_coordinates(name: str):
    def through(x, *args, **kwargs):
        return coo_ops.TABLE[name](in_coordinates(x), *args, **kwargs)

    return through


def sum_(x, dim=None, keepdim=False, *, dtype=None):
    """The sum of all elements, or along dimensions, which are kept."""
    if dim is None or dim == () or dim == []:
        return x._kept().sum(dtype=dtype)
    if not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    return _in_layout(coo_ops.sum_(in_coordinates(x), dim, keepdim, dtype=dtype).to_dense(), x)


def zeros_like(x, *, dtype=None, layout=None, device=None, memory_format=None):
    """All zeros, without elements."""
    none = x.held.narrow(x.batch, 0, 0).to(dtype or x.dtype)
    starts = x.pattern.starts
    pattern = Pattern(engine.full(tuple(starts.shape), 0, starts.dtype),
                      x.pattern.places.narrow(-1, 0, 0), x.pattern.rows, x.pattern.columns)
    return compressed(pattern, none, x.sig.shape, x.kind)


def _like(name: str):
    def like(x, **kwargs):
        return x.detach()._with(getattr(flambeau, name)(x.held, **kwargs))

    return like


TABLE.update({
    **{name: _on_values(name) for name in coo_ops.ON_VALUES},
    **{name: (lambda x, kind=kind: x._with(engine.cast(x._kept(), kind)))
       for name, kind in coo_ops.CONVERSIONS.items()},
    "add": add, "sub": sub, "mul": mul, "div": div, "true_divide": div,
    "neg": lambda x: x._with(-x._kept()), "conj": lambda x: x._with(x._kept().conj()),
    "mm": mm, "spmm": mm, "matmul": matmul, "mv": matmul, "addmm": addmm, "addmv": addmm,
    "linear": linear, "transpose": transpose, "t": t, "mT": t, "sum": sum_,
    "select": _through_coordinates("select"), "__getitem__": _through_coordinates("__getitem__"),
    "clone": lambda x, *, memory_format=None: x.clone(), "detach": lambda x: x.detach(),
    "zeros_like": zeros_like, "empty_like": _like("empty_like"), "ones_like": _like("ones_like"),
    "is_same_size": lambda x, y: x.shape == y.shape, "sparse_mask": coo.sparse_mask,
})
CompressedTensor.sparse_mask = coo.sparse_mask
