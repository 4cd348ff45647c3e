"""Functions of sparse tensors, under torch.sparse's names."""

from __future__ import annotations

import contextlib

import flambeau
from flambeau import Tensor, sparse_coo_tensor, stack, tensor
from flambeau.assemble import coo_ops

__all__ = ["addmm", "check_sparse_tensor_invariants", "log_softmax", "mm", "softmax", "spdiags",
           "sum"]


def mm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse matrix and another, sparse or strided.

    >>> import flambeau as torch
    >>> x = torch.eye(2).to_sparse()
    >>> torch.sparse.mm(x, torch.tensor([[1., 2.], [3., 4.]]))
    tensor([[1., 2.],
            [3., 4.]])
    """
    return coo_ops.mm(mat1, mat2)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta=1.0, alpha=1.0) -> Tensor:
    """beta mat + alpha mat1 @ mat2, where mat1 is sparse."""
    return coo_ops.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sum(input: Tensor, dim=None, dtype=None) -> Tensor:
    """The sum of all elements, or along dimensions: sparse while sparse dimensions remain."""
    return coo_ops.sum_(_sparse("sum", input), dim, dtype=dtype)


def softmax(input: Tensor, dim: int, *, dtype=None) -> Tensor:
    """Softmax over the elements that are there, as if all others were minus infinity."""
    return coo_ops.softmax(_sparse("softmax", input), dim, dtype)


def log_softmax(input: Tensor, dim: int, *, dtype=None) -> Tensor:
    """The logarithm of `softmax`."""
    return coo_ops.log_softmax(_sparse("log_softmax", input), dim, dtype)


def spdiags(diagonals: Tensor, offsets: Tensor, shape, layout=None) -> Tensor:
    """A sparse matrix with the rows of `diagonals` as its diagonals at `offsets`."""
    rows, columns = shape
    diagonals = diagonals.reshape(-1, diagonals.shape[-1])
    if len(set(offsets.reshape(-1).tolist())) != offsets.numel():
        raise RuntimeError(f"spdiags: offsets must be unique, got {offsets.tolist()}")
    places, found = [], []
    for k, offset in enumerate(offsets.reshape(-1).tolist()):
        for column in range(max(offset, 0), min(columns, rows + offset, diagonals.shape[1])):
            places.append((column - offset, column))
            found.append(diagonals[k, column])
    if not places:
        return sparse_coo_tensor(size=tuple(shape), dtype=diagonals.dtype)
    at = tensor(places).t().contiguous()
    return sparse_coo_tensor(at, stack(found), tuple(shape)).coalesce()


class check_sparse_tensor_invariants(contextlib.ContextDecorator):
    """Indices are checked whenever a tensor is made from them, so this changes nothing."""

    def __init__(self, enable: bool = True):
        self.enabled = enable

    @staticmethod
    def is_enabled() -> bool:
        return True

    @staticmethod
    def enable() -> None:
        """Checks are always made."""

    @staticmethod
    def disable() -> None:
        """Checks cost little and stay."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def _sparse(name: str, x: Tensor) -> Tensor:
    if not (isinstance(x, Tensor) and x.is_sparse):
        raise RuntimeError(f"sparse.{name}: a tensor of layout torch.sparse_coo is wanted, got "
                           f"{getattr(x, 'layout', type(x).__name__)}")
    return x


class _LegacyType(type):
    """The type of torch.sparse.FloatTensor and its kin: constructors from places and values."""

    dtype: flambeau.dtype

    def __call__(cls, *args, device=None) -> Tensor:
        if args and isinstance(args[0], Tensor):
            indices, values, *known = args
            if values.dtype is not cls.dtype:
                raise TypeError(f"expected values of dtype {cls.dtype} (got {values.dtype})")
            return sparse_coo_tensor(indices, values, *known, device=device)
        size = args[0] if args and not isinstance(args[0], int) else args or (0,)
        return sparse_coo_tensor(size=tuple(size), dtype=cls.dtype, device=device)

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, Tensor) and instance.is_sparse and instance.dtype is cls.dtype


globals().update({name: _LegacyType(name, (), {
    "__module__": "torch.sparse", "dtype": getattr(flambeau, name).dtype, "is_sparse": True,
    "__doc__": f"Constructor of sparse tensors of {getattr(flambeau, name).dtype}."})
    for name in ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "ByteTensor",
                 "CharTensor", "ShortTensor", "IntTensor", "LongTensor")})


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False):
    """Where each row begins, of the sorted rows of elements."""
    return flambeau.searchsorted(input.contiguous(), flambeau.arange(size + 1, dtype=input.dtype),
                                 out_int32=out_int32)


def _convert_indices_from_csr_to_coo(crow_indices: Tensor, col_indices: Tensor, *,
                                     out_int32: bool = False, transpose: bool = False):
    """Rows and columns of elements, of where rows begin and of the columns."""
    rows = flambeau.repeat_interleave(crow_indices.diff())
    both = [col_indices.to(rows.dtype), rows] if transpose else [rows, col_indices.to(rows.dtype)]
    return flambeau.stack(both).to(flambeau.int32 if out_int32 else flambeau.int64)
