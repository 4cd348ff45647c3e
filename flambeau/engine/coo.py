"""Tensors in coordinates: the indices of the elements that may differ from zero, and their values.

Their ops are in coo_ops.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..core import dtype as dt
from ..core import formats as fm
from ..core.device import META, resolve
from ..core.lazily import np
from . import convert, inplace, legacy, options
from .eager import engine
from .modes import modes
from .node import edge_of, new_node
from .tensor import LEAF, Tensor
from .unstrided import SparseTensor, in_place, marked, recorded, shown, unstrided
from .views import Step


class CooTensor(SparseTensor):
    """A tensor of layout torch.sparse_coo."""

    __slots__ = ("at", "united")

    at: Tensor     # [sparse dimensions, elements]: the indices
    held: Tensor   # [elements, *dense dimensions]: the values, outside the graph
    united: bool   # whether indices are in order and none comes twice

    __module__ = "torch"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return engine.sparse_call(func, args, kwargs or {})

    @classmethod
    def into(cls, op, target: Tensor, args, attributes):
        """What happens when an op writes to a strided tensor what it reads of a sparse one."""
        return engine.sparse_into(op, target, args, attributes)

    # -- what it is -------------------------------------------------------------------------------

    is_sparse: Any = property(lambda x: True)
    layout: Any = property(lambda x: fm.sparse_coo)

    @property
    def nbytes(self):
        raise RuntimeError("nbytes is not defined for sparse tensors.  If you want the size of the "
                           "constituent tensors, add the nbytes of the indices and values.")

    def _nnz(self) -> int:
        return self.at.sig.shape[1]

    def sparse_dim(self) -> int:
        return self.at.sig.shape[0]

    def dense_dim(self) -> int:
        return self.held.sig.rank - 1

    def is_coalesced(self) -> bool:
        return self.united

    def _coalesced_(self, coalesced: bool) -> CooTensor:
        self.united = coalesced
        return self

    def _indices(self) -> Tensor:
        return self.at

    def _values(self) -> Tensor:
        return self.held

    def indices(self) -> Tensor:
        """The indices, in order."""
        self._require_united("indices")
        return self.at

    def values(self) -> Tensor:
        """The values, in the order of the indices; gradients flow through them."""
        self._require_united("values")
        return values_of(self)

    def _require_united(self, name: str) -> None:
        if not self.united:
            raise RuntimeError(f"Cannot get {name} on an uncoalesced tensor, please call "
                               ".coalesce() first")

    # -- in other forms ---------------------------------------------------------------------------

    def coalesce(self) -> CooTensor:
        """The same tensor with indices in order and values at one place added up."""
        return united(self)

    def to_dense(self, dtype=None, *, masked_grad=None) -> Tensor:
        """The same tensor with all its zeros."""
        out = dense(self)
        return out if dtype is None else out.to(dtype)

    def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
        if layout not in (None, fm.sparse_coo):
            return in_layout(self, layout, blocksize, dense_dim)
        if sparse_dim in (None, self.sparse_dim()):
            return self
        return to_sparse(dense(self), sparse_dim)

    def clone(self, *, memory_format=None) -> CooTensor:
        """A copy with its own memory."""
        out = coo(self.at.clone(), values_of(self).clone(), self.sig.shape, self.united)
        return marked(out, "CloneBackward0")

    def type(self, dtype=None, non_blocking=False):
        if dtype is None:
            name = legacy.legacy_names[self.sig.dtype]
            return name.replace("torch.", "torch.sparse.")
        return coo(self.at, values_of(self).type(dtype), self.sig.shape, self.united)

    def is_contiguous(self, memory_format=None) -> bool:
        return False

    def __repr__(self, *, tensor_contents=None) -> str:
        return shown(self, {"indices": self.at})

    __str__ = __repr__

    @staticmethod
    def made(at, held, shape, coalesced) -> CooTensor:
        return coo(at, held, shape, coalesced)

    def _parts(self) -> tuple:
        return self.at, self.held, tuple(self.sig.shape), self.united

    def _with(self, values: Tensor) -> CooTensor:
        return coo(self.at, values, self.sig.shape, self.united)

    def _picked(self, other: Tensor) -> Tensor:
        return picked(other, self.at)

    def _become(self, other) -> CooTensor:
        return become(self, other)

    # -- changes ----------------------------------------------------------------------------------

    def sparse_resize_(self, size, sparse_dim, dense_dim) -> CooTensor:
        """Another shape, with the same elements."""
        if (sparse_dim, dense_dim) != (self.sparse_dim(), self.dense_dim()) and self._nnz():
            raise RuntimeError("sparse_resize_: changing the number of sparse or dense dimensions "
                               "of a non-empty sparse tensor is not supported")
        if not self._nnz():
            return become(self, empty_coo(size, self.sig.dtype, sparse_dim))
        return become(self, coo(self.at, self.held, size, self.united))

    def sparse_resize_and_clear_(self, size, sparse_dim, dense_dim) -> CooTensor:
        """Another shape, without elements."""
        return become(self, empty_coo(size, self.sig.dtype, sparse_dim))

    def resize_as_sparse_(self, other) -> CooTensor:
        return self.sparse_resize_(other.sig.shape, other.sparse_dim(), other.dense_dim())

    def zero_(self) -> CooTensor:
        return become(self, empty_coo(self.sig.shape, self.sig.dtype, self.sparse_dim()))

    def copy_(self, source, non_blocking=False) -> CooTensor:
        if not isinstance(source, CooTensor):
            raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Found "
                               f"self type = {self.type()} and src type = {source.type()}")
        return become(self, source.clone().to(self.sig.dtype))


#: in-place form -> the op whose result the tensor becomes
IN_PLACE = {"add_": "add", "sub_": "sub", "mul_": "mul", "div_": "div", "neg_": "neg",
            "__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "div"}


for _name, _op in IN_PLACE.items():
    setattr(CooTensor, _name, in_place(_name, _op))


# -- making one ------------------------------------------------------------------------------------


def coo(at: Tensor, values: Tensor, shape, coalesced: bool = False) -> CooTensor:
    """The tensor of these indices and values, which are known to fit; recorded if values are."""
    x = unstrided(CooTensor, values, shape)
    x.at, x.united = at, bool(coalesced)
    return recorded(x, values, "SparseCooTensorWithDimsAndTensorsBackward0",
                    lambda g: picked(g, at))


def become(x: CooTensor, other: CooTensor) -> CooTensor:
    """Change a sparse tensor in place into another."""
    x.sig, x.at, x.held, x.united = other.sig, other.at, other.held, other.united
    if x.node is not LEAF:
        x.node = other.node
    x.mem.version += 1
    return x


def empty_coo(shape, dtype, sparse_dim: int | None = None) -> CooTensor:
    """All zeros."""
    shape = tuple(shape)
    count = len(shape) if sparse_dim is None else sparse_dim
    return coo(engine.empty((count, 0), dt.int64), engine.empty((0, *shape[count:]), dtype), shape,
               True)


def sparse_coo_tensor(indices=None, values=None, size=None, *, dtype=None, device=None,
                      pin_memory=False, requires_grad=False, check_invariants=None,
                      is_coalesced=None):
    """A tensor that is zero except at `indices`, where it has `values` (added up)."""
    if values is None:  # called with a size alone
        shape = tuple(indices) if size is None else tuple(size)
        out = empty_coo(shape, dtype or dt.default_float())
    else:
        values = values if isinstance(values, Tensor) else engine.tensor(values)
        if dtype is not None:
            values = values.to(options.as_dtype("sparse_coo_tensor", dtype))
        values = values if values.sig.rank else values.reshape((1,))
        indices = indices if isinstance(indices, Tensor) else engine.tensor(indices)
        indices = inplace.detached(indices.to(dt.int64))
        at = indices if indices.sig.rank == 2 else indices.reshape((indices.sig.shape or (1,))[0],
                                                                    -1)
        shape = _fitting(at, values, size)
        out = coo(at, values, shape, bool(is_coalesced))
    if device is not None and resolve(device) is META:
        raise RuntimeError("sparse_coo_tensor: sparse tensors on meta are not available")
    return options.finish("sparse_coo_tensor", out, None, pin_memory, requires_grad)


def _fitting(at: Tensor, values: Tensor, size) -> tuple:
    """The shape of a tensor, given or found; RuntimeError if indices and values do not fit it."""
    (sparse, count), inner = at.sig.shape, tuple(values.sig.shape[1:])
    if values.sig.shape[0] != count:
        raise RuntimeError("indices and values must have same nnz, but got nnz from indices: "
                           f"{count}, nnz from values: {values.sig.shape[0]}")
    found = convert.to_array(at)
    if size is None:
        return (*(int(row.max()) + 1 if count else 0 for row in found), *inner)
    shape = options.sizes("sparse_coo_tensor", (tuple(size),))
    if len(shape) != sparse + len(inner):
        raise RuntimeError("'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = "
                           f"{len(shape)}, sparse_dim = {sparse}, dense_dim = {len(inner)}")
    if shape[sparse:] != inner:
        raise RuntimeError(f"values has incorrect size, expected {[count, *shape[sparse:]]}, got "
                           f"{list(values.sig.shape)}")
    for d, row in enumerate(found if count else ()):
        if row.min() < 0:
            raise RuntimeError(f"found negative index {row.min()} for dim {d}")
        if row.max() >= shape[d]:
            raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is "
                               f"{shape[d]} but found index {row.max()}")
    return shape


def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None) -> CooTensor:
    """This tensor in coordinates of its first `sparse_dim` dimensions, by default of all."""
    if isinstance(sparse_dim, fm.layout):
        sparse_dim, layout = None, sparse_dim
    if layout not in (None, fm.sparse_coo):
        return in_layout(self, layout, blocksize, dense_dim)
    shape = tuple(self.sig.shape)
    count = len(shape) if sparse_dim is None else sparse_dim
    if not (0 < count <= len(shape) or count == len(shape)):
        raise RuntimeError(f"to_sparse: sparse_dim argument must be in >=0 and <= {len(shape)}, "
                           f"but got {count}")
    # dense dimensions are looked at together: an element is a whole of them
    array = convert.to_array(inplace.detached(self))
    used = (array != 0).reshape(*shape[:count], -1).any(-1)
    at = np.stack(np.nonzero(used)) if count else np.empty((0, int(used)), np.int64)
    flat = np.flatnonzero(used)
    rows = self.reshape(used.size, *shape[count:])
    values = rows.index_select(0, engine.tensor(flat)) if used.size else rows
    out = coo(engine.tensor(at.astype(np.int64)), values, shape, True)
    return marked(out, "ToSparseBackward0")


def in_layout(x: Tensor, layout, blocksize, dense_dim):
    """The same tensor in compressed rows or columns, by the method that is named for the layout."""
    if layout not in fm.COMPRESSED:
        raise RuntimeError(f"to_sparse: conversion from {x.layout} to {layout} is not available")
    blocks = layout in fm.BLOCKED
    if blocks != (blocksize is not None):
        given = "without" if blocks else "with"
        raise RuntimeError(f"dense_to_sparse: conversion from {fm.spoken(x.layout)} to "
                           f"{fm.spoken(layout)} {given} blocksize argument given is not supported")
    method = getattr(x, f"to_{layout.name}")
    return method(*([blocksize] if blocks else []), dense_dim=dense_dim)


# -- what all ops on them need ---------------------------------------------------------------------


def values_of(x: CooTensor) -> Tensor:
    """The values as part of the graph: their gradient is one of the whole, at the same indices."""
    return x._kept()


def keys_of(at: Tensor, shape) -> np.ndarray:
    """One number per element that says where it is: its place among all in row-major order."""
    found = convert.to_array(at)
    keys = np.zeros(found.shape[1], np.int64)
    for row, n in zip(found, shape, strict=False):
        keys = keys * n + row
    return keys


def indices_at(keys: np.ndarray, shape) -> Tensor:
    """The indices of elements from their places in row-major order."""
    found = np.empty((len(shape), keys.size), np.int64)
    for d in range(len(shape) - 1, -1, -1):
        keys, found[d] = np.divmod(keys, max(shape[d], 1))
    return engine.tensor(found)


def united(x: CooTensor) -> CooTensor:
    """Indices in order, values at one place added up."""
    if x.united:
        return x
    leading = x.sig.shape[:x.sparse_dim()]
    keys, group = np.unique(keys_of(x.at, leading), return_inverse=True)
    out = coo(indices_at(keys, leading), summed(x.held, group, keys.size), x.sig.shape, True)
    if x.node is not None and modes.grad:
        out.node = new_node(Step("CoalesceBackward0", lambda g: [g]), (edge_of(x),), (),
                            (out.sig,))
    return out


def summed(values: Tensor, group: np.ndarray, count: int) -> Tensor:
    """Rows of values added up by the number of their group; for booleans, whether any is true."""
    numbers = engine.tensor(group.reshape(-1).astype(np.int64))
    kind = values.sig.dtype
    wide = engine.cast(values, dt.int64) if kind is dt.bool_ else values
    out = engine.full((count, *values.sig.shape[1:]), 0, wide.sig.dtype).index_add(0, numbers, wide)
    return out != 0 if kind is dt.bool_ else out


def dense(x: CooTensor) -> Tensor:
    """All elements, zeros among them."""
    held = inplace.detached(x.held)
    shape, count = x.sig.shape, x.sparse_dim()
    rows = 1
    for n in shape[:count]:
        rows *= n
    out = summed(held, keys_of(x.at, shape), rows).reshape(tuple(shape))
    if x.node is not None and modes.grad:
        at = united(x).at
        out.node = new_node(Step("ToDenseBackward0", lambda g: [coo(at, picked(g, at), shape,
                                                                    True)]),
                            (edge_of(x),), (), (out.sig,))
    return out


def picked(g: Tensor, at: Tensor) -> Tensor:
    """The elements of a tensor, sparse or not, at indices."""
    if isinstance(g, CooTensor):
        if g.at is at:
            return values_of(g)
        g = dense(g)
    count = at.sig.shape[0]
    rows = g.reshape(-1, *g.sig.shape[count:])
    return rows.index_select(0, engine.tensor(keys_of(at, g.sig.shape)))


def rows_of(shape, flat: Tensor, values: Tensor) -> CooTensor:
    """The gradient of a table of which rows were looked up: those rows, each as often as it was."""
    return coo(engine.reshape(flat, (1, -1)).to(dt.int64), values, tuple(shape))


engine.sparse_rows = rows_of


# -- strided tensors -------------------------------------------------------------------------------


def _only_sparse(name: str, wanted: str = "sparse coordinate"):
    def refuse(self, *_args):
        raise RuntimeError(f"{name} expected {wanted} tensor layout but got "
                           f"{fm.spoken(self.layout)}")

    refuse.__name__, refuse.__doc__ = name, f"{name} of a tensor of layout torch.sparse_coo."
    return refuse


def to_dense(self, dtype=None, *, masked_grad=None):
    """This tensor, with all its zeros."""
    return self if dtype is None else self.to(dtype)


def sparse_mask(self, mask: SparseTensor) -> SparseTensor:
    """The elements of this tensor where a sparse one has its own."""
    if not isinstance(mask, SparseTensor):
        raise RuntimeError("sparse_mask(): expected mask to be sparse, but got Strided")
    if self.sig.shape != mask.sig.shape:
        raise RuntimeError("sparse_mask(): operands have incompatible sizes; self has size "
                           f"{list(self.sig.shape)} but mask has size {list(mask.sig.shape)}")
    return marked(mask._with(mask._picked(self)), "SparseMaskBackward0")


def _only_compressed(name: str):
    def refuse(self):
        wanted = "row" if name.startswith(("crow", "col")) else "column"
        raise RuntimeError(f"{name} expected sparse {wanted} compressed tensor layout but got "
                           f"{fm.spoken(self.layout)}")

    refuse.__name__, refuse.__doc__ = name, f"{name} of a tensor in compressed rows or columns."
    return refuse


def _quantized_only(name: str):
    def refuse(self):
        raise NotImplementedError(f"Could not run 'aten::{name}' with arguments from the 'CPU' "
                                  f"backend: {name} is for quantized tensors")

    refuse.__name__, refuse.__doc__ = name, f"{name} of a quantized tensor."
    return refuse


METHODS: dict[str, Any] = {
    "to_sparse": to_sparse, "to_sparse_coo": lambda x: x.to_sparse(), "to_dense": to_dense,
    "sparse_mask": sparse_mask,
    "sparse_dim": lambda x: 0, "dense_dim": lambda x: x.sig.rank,
    "values": _only_sparse("values", "sparse"),
    **{name: _only_sparse(name) for name in ("indices", "coalesce", "is_coalesced", "_nnz",
                                             "_indices", "_values", "sparse_resize_",
                                             "sparse_resize_and_clear_", "resize_as_sparse_")},
    "dequantize": lambda x: x, **{name: _quantized_only(name) for name in (
        "int_repr", "q_scale", "q_zero_point", "qscheme", "q_per_channel_scales",
        "q_per_channel_zero_points", "q_per_channel_axis")},
    **{name: _only_compressed(name) for name in ("crow_indices", "col_indices", "ccol_indices",
                                                 "row_indices")},
}


def install() -> None:
    for name, method in METHODS.items():
        if method.__name__ == "<lambda>":
            method.__name__ = name
        setattr(Tensor, name, method)
    CooTensor.sparse_mask = sparse_mask
    options.layouts[fm.sparse_coo] = lambda x: to_sparse(x)
    for kind in fm.COMPRESSED:
        blocksize = (1, 1) if kind in fm.BLOCKED else None
        options.layouts[kind] = partial(in_layout, layout=kind, blocksize=blocksize,
                                        dense_dim=None)
