"""Tensors in compressed rows or columns, of elements or of blocks: CSR, CSC, BSR and BSC.

All other forms are reached by way of coordinates: rows, columns and values. Their ops are in
compressed_ops.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..assemble import convert, coo, engine
from ..core import dtype as dt
from ..core import formats as fm
from ..engine import options
from ..engine.inplace import detached
from ..engine.modes import modes
from ..engine.node import edge_of, new_node
from ..engine.tensor import Tensor
from ..engine.unstrided import SparseTensor, in_place, marked, recorded, shown, unstrided
from ..engine.views import Step
from .pattern import Pattern

#: op -> what it does with a tensor of such a layout; compressed_ops fills it
TABLE: dict[str, Any] = {}


class CompressedTensor(SparseTensor):
    """A tensor of layout torch.sparse_csr, sparse_csc, sparse_bsr or sparse_bsc."""

    __slots__ = ("kind", "pattern")

    pattern: Pattern   # of rows, or of columns as if they were rows
    kind: fm.layout

    __module__ = "torch"
    layout: Any = property(lambda x: x.kind)
    is_sparse: Any = property(lambda x: False)
    is_sparse_csr: Any = property(lambda x: x.kind is fm.sparse_csr)
    SPOKEN: Any = property(lambda x: fm.spoken(x.kind))
    _short: Any = property(lambda x: x.kind.name[-3:].upper())

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return call(func, args, kwargs or {})

    @classmethod
    def into(cls, op, target: Tensor, args, attributes):
        """What happens when an op writes to a strided tensor what it reads of such a one."""
        if op.name not in ("add", "sub") or args[0] is not target:
            raise RuntimeError(f"{op.name}_: a tensor of layout {args[-1].layout} cannot be "
                               "written to a strided one; to_dense() first")
        target.add_(args[1].to_dense(), alpha=attributes.get("alpha", 1) * (
            1 if op.name == "add" else -1))

    @staticmethod
    def made(pattern, held, shape, kind) -> CompressedTensor:
        return compressed(pattern, held, shape, kind)

    def _parts(self) -> tuple:
        return self.pattern, self.held, tuple(self.sig.shape), self.kind

    def _with(self, values: Tensor) -> CompressedTensor:
        return compressed(self.pattern, values, self.sig.shape, self.kind)

    def _picked(self, other: Tensor) -> Tensor:
        return picked(other, self)

    def _become(self, other) -> CompressedTensor:
        self.sig, self.held, self.pattern, self.kind = (
            other.sig, other.held, other.pattern, other.kind)
        self.mem.version += 1
        if not self.is_leaf or self.node is None:
            self.node = other.node
        return self

    # -- what it is -------------------------------------------------------------------------------

    @property
    def by_rows(self) -> bool:
        return self.kind in fm.BY_ROWS

    @property
    def batch(self) -> int:
        """How many dimensions come before the matrix."""
        return self.pattern.starts.dim() - 1

    @property
    def block(self) -> tuple[int, int]:
        """The size of a block; an element is one of (1, 1)."""
        at = self.batch + 1
        return tuple(self.held.shape[at:at + 2]) if self.kind in fm.BLOCKED else (1, 1)

    def _nnz(self) -> int:
        return self.pattern.count

    def sparse_dim(self) -> int:
        return 2

    def dense_dim(self) -> int:
        return self.held.dim() - self.batch - (3 if self.kind in fm.BLOCKED else 1)

    def values(self) -> Tensor:
        """The values; gradients flow through them."""
        return self._kept()

    def _places(self, name: str, rows: bool, starts: bool) -> Tensor:
        if self.by_rows is not rows:
            wanted = "row" if rows else "column"
            raise RuntimeError(f"{name} expected sparse {wanted} compressed tensor layout but got "
                               f"{self.SPOKEN}")
        return self.pattern.starts if starts else self.pattern.places

    def crow_indices(self) -> Tensor:
        """Where each row begins."""
        return self._places("crow_indices", True, True)

    def col_indices(self) -> Tensor:
        """The column of each element."""
        return self._places("col_indices", True, False)

    def ccol_indices(self) -> Tensor:
        """Where each column begins."""
        return self._places("ccol_indices", False, True)

    def row_indices(self) -> Tensor:
        """The row of each element."""
        return self._places("row_indices", False, False)

    def stride(self, dim=None):
        raise RuntimeError(f"Sparse {self._short} tensors do not have strides")

    def is_contiguous(self, memory_format=None) -> bool:
        raise RuntimeError(f"Sparse {self._short} tensors do not have is_contiguous")

    def type(self, dtype=None, non_blocking=False):
        if dtype is None:
            raise RuntimeError(f"Unimplemented backend {self.SPOKEN}CPU")
        return self._with(self._kept().type(dtype))

    def clone(self, *, memory_format=None) -> CompressedTensor:
        """A copy with its own memory."""
        p = self.pattern
        own = Pattern(p.starts.clone(), p.places.clone(), p.rows, p.columns)
        return marked(compressed(own, self._kept().clone(), self.sig.shape, self.kind),
                      "CloneBackward0")

    def __repr__(self, *, tensor_contents=None) -> str:
        names = ("crow_indices", "col_indices") if self.by_rows else (
            "ccol_indices", "row_indices")
        return shown(self, dict(zip(names, (self.pattern.starts, self.pattern.places),
                                    strict=True)))

    __str__ = __repr__

    # -- in other forms ---------------------------------------------------------------------------

    def to_dense(self, dtype=None, *, masked_grad=None) -> Tensor:
        """The same tensor with all its zeros."""
        out = dense(self)
        return out if dtype is None else out.to(dtype)

    def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
        if layout in (None, fm.sparse_coo):
            return in_coordinates(self)
        return coo.in_layout(self, layout, blocksize, dense_dim)


def compressed(pattern: Pattern, values: Tensor, shape, kind: fm.layout) -> CompressedTensor:
    """The tensor of this pattern and these values, which fit; recorded if values are."""
    x = unstrided(CompressedTensor, values, shape)
    x.pattern, x.kind = pattern, kind
    return recorded(x, values, "SparseCompressedTensorBackward0", lambda g: picked(g, x))


def call(func, args, kwargs):
    """Answer an op of which an argument is such a tensor."""
    name = getattr(func, "__name__", str(func))
    found = TABLE.get(name)
    if found is None:
        raise NotImplementedError(
            f"Could not run 'aten::{name}' with arguments from the 'SparseCsrCPU' backend: {name} "
            "is not defined for tensors in compressed rows or columns. Call to_dense() or "
            "to_sparse() first, or work on values().")
    if "other" in kwargs:
        args = (*args, kwargs.pop("other"))
    return found(*args, **kwargs)


for _name, _op in coo.IN_PLACE.items():
    setattr(CompressedTensor, _name, in_place(_name, _op))


# -- by way of coordinates -------------------------------------------------------------------------


def pieces(x: CompressedTensor) -> list[CompressedTensor]:
    """The matrices of a batch, one by one."""
    starts, places = (t.reshape(-1, t.shape[-1]) for t in (x.pattern.starts, x.pattern.places))
    held = x._kept()
    held = held.reshape(-1, *held.shape[x.batch:])
    p, shape = x.pattern, x.sig.shape[x.batch:]
    return [compressed(Pattern(s, at, p.rows, p.columns), v, shape, x.kind)
            for s, at, v in zip(starts, places, held, strict=True)]


def places_of(x: CompressedTensor) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of all elements of a matrix, those of a block one after the other."""
    along, across = x.pattern.row_numbers(), convert.to_array(x.pattern.places)
    rows, columns = (along, across) if x.by_rows else (across, along)
    tall, broad = x.block
    if x.kind not in fm.BLOCKED:
        return rows, columns
    count = rows.size
    inside = np.arange(tall)[:, None], np.arange(broad)[None, :]
    spread = (np.broadcast_to(at[:, None, None] * n + i, (count, tall, broad)).reshape(-1)
              for at, n, i in zip((rows, columns), x.block, inside, strict=True))
    return tuple(spread)  # type: ignore[return-value]


def elements(x) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """Rows, columns and values of a matrix of any layout, in no order."""
    if isinstance(x, CompressedTensor):
        values = x._kept()
        if x.kind in fm.BLOCKED:
            values = values.reshape(-1, *values.shape[3:])
        return *places_of(x), values
    at = convert.to_array(x._indices())
    return at[0], at[1], x._kept()


def in_coordinates(x: CompressedTensor):
    """The same tensor of layout torch.sparse_coo."""
    if x.batch:
        return engine.stack([in_coordinates(p) for p in pieces(x)]) if x.batch == 1 else (
            dense(x).to_sparse(x.batch + 2))
    rows, columns, values = elements(x)
    at = engine.tensor(np.stack([rows, columns]).astype(np.int64))
    return coo.coo(at, values, x.sig.shape, x.kind is fm.sparse_csr)


def dense(x: CompressedTensor) -> Tensor:
    """All elements, zeros among them."""
    outside = x.detach()
    if x.batch:
        out = engine.stack([dense(p) for p in pieces(outside)]).reshape(tuple(x.sig.shape))
    else:
        rows, columns, values = elements(outside)
        height, width = x.sig.shape[:2]
        out = coo.summed(values, rows * width + columns, height * width)
        out = out.reshape(tuple(x.sig.shape))
    if x.node is not None and modes.grad:
        out.node = new_node(Step("ToDenseBackward0", lambda g: [outside._with(picked(g, outside))]),
                            (edge_of(x),), (), (out.sig,))
    return out


def picked(g, x: CompressedTensor) -> Tensor:
    """The elements of a tensor where another one has its own, in the order that it has them."""
    if isinstance(g, CompressedTensor):
        if g.kind is x.kind and g.pattern.same_as(x.pattern):
            return g._kept()
        g = dense(g)
    elif isinstance(g, SparseTensor):
        g = g.to_dense()
    if x.batch:
        parts = g.reshape(-1, *g.shape[x.batch:])
        found = [picked(part, p) for part, p in zip(parts, pieces(x.detach()), strict=True)]
        return engine.stack(found).reshape(tuple(x.held.shape))
    rows, columns = places_of(x)
    flat = g.reshape(-1, *g.shape[2:]).index_select(0, engine.tensor(rows * g.shape[1] + columns))
    return flat.reshape(tuple(x.held.shape))


# -- making one ------------------------------------------------------------------------------------


def from_elements(rows, columns, values: Tensor, shape, kind: fm.layout, blocksize=None):
    """A matrix of these elements, none of which comes twice."""
    tall, broad = blocksize or (1, 1)
    height, width = -(-shape[0] // tall), -(-shape[1] // broad)
    along, across = rows // tall, columns // broad
    if kind not in fm.BY_ROWS:
        along, across, height, width = across, along, width, height
    keys = along * width + across
    if kind in fm.BLOCKED:
        keys, group = np.unique(keys, return_inverse=True)
        flat = (group.reshape(-1) * tall + rows % tall) * broad + columns % broad
        values = coo.summed(values, flat, keys.size * tall * broad)
        values = values.reshape(keys.size, tall, broad, *values.shape[1:])
        along, across = np.divmod(keys, max(width, 1))
    elif keys.size and (np.diff(keys) < 0).any():
        order = np.argsort(keys, kind="stable")
        along, across = along[order], across[order]
        values = values.index_select(0, engine.tensor(order))
    starts = np.zeros(height + 1, np.int64)
    np.cumsum(np.bincount(along, minlength=height), out=starts[1:])
    pattern = Pattern(engine.tensor(starts), engine.tensor(across.astype(np.int64)), height, width)
    return compressed(pattern, values, shape, kind)


def _converted(x, kind: fm.layout, blocksize, dense_dim):
    name = f"to_{kind.name}"
    if isinstance(x, SparseTensor):
        if x.layout is kind and blocksize in (None, getattr(x, "block", None)):
            return x
        rank = x.sparse_dim() + x.dense_dim() + getattr(x, "batch", 0)
        dense_dim = x.dense_dim()
    else:
        rank, dense_dim = x.dim(), dense_dim or 0
    if rank - dense_dim < 2:
        raise RuntimeError(f"{name}: a tensor of at least 2 sparse dimensions is wanted, got one of"
                           f" shape {tuple(x.shape)} with {dense_dim} dense dimensions")
    _check_blocks(name, x.shape[rank - dense_dim - 2:][:2], blocksize)
    if rank - dense_dim > 2:
        return _batched(x.to_dense(), rank - dense_dim - 2, kind, blocksize, dense_dim)
    if not isinstance(x, SparseTensor):
        x = x.to_sparse(2)
    elif x.layout is fm.sparse_coo:
        x = x.coalesce()
    out = from_elements(*elements(x), tuple(x.shape), kind, blocksize)
    return marked(out, f"{''.join(p.capitalize() for p in name.split('_'))}Backward0")


def _check_blocks(name: str, size, blocksize) -> None:
    if blocksize is None:
        return
    if len(blocksize) != 2 or min(blocksize) < 1:
        raise RuntimeError(f"{name}: blocksize needs to be a tuple of two positive sizes, but got "
                           f"{tuple(blocksize)}")
    if any(n % b for n, b in zip(size, blocksize, strict=True)):
        raise RuntimeError(f"dense_{name}: tensor sparse size ({size[0]},{size[1]}) must be "
                           f"divisible by given blocksize ({blocksize[0]},{blocksize[1]})")


def _batched(x: Tensor, batch: int, kind, blocksize, dense_dim) -> CompressedTensor:
    """A batch of matrices, all with the same number of elements."""
    lead = tuple(x.shape[:batch])
    parts = [_converted(p, kind, blocksize, dense_dim)
             for p in x.reshape(math.prod(lead), *x.shape[batch:])]
    if len({p._nnz() for p in parts}) > 1:
        raise RuntimeError("Expect the same number of specified elements per batch.")

    def together(tensors):
        joined = engine.stack(tensors)
        return joined.reshape(*lead, *joined.shape[1:])

    first = parts[0].pattern
    pattern = Pattern(together([p.pattern.starts for p in parts]),
                      together([p.pattern.places for p in parts]), first.rows, first.columns)
    return compressed(pattern, together([p._kept() for p in parts]), tuple(x.shape), kind)


def to_sparse_csr(self, dense_dim=None):
    """This tensor in compressed rows."""
    return _converted(self, fm.sparse_csr, None, dense_dim)


def to_sparse_csc(self, dense_dim=None):
    """This tensor in compressed columns."""
    return _converted(self, fm.sparse_csc, None, dense_dim)


def to_sparse_bsr(self, blocksize, dense_dim=None):
    """This tensor in compressed rows of blocks."""
    return _converted(self, fm.sparse_bsr, tuple(blocksize), dense_dim)


def to_sparse_bsc(self, blocksize, dense_dim=None):
    """This tensor in compressed columns of blocks."""
    return _converted(self, fm.sparse_bsc, tuple(blocksize), dense_dim)


METHODS = (to_sparse_csr, to_sparse_csc, to_sparse_bsr, to_sparse_bsc)


def empty_compressed(shape, dtype, kind: fm.layout = fm.sparse_csr) -> CompressedTensor:
    """All zeros."""
    none = np.empty(0, np.int64)
    blocksize = (1, 1) if kind in fm.BLOCKED else None
    return from_elements(none, none, engine.empty((0, *shape[2:]), dtype), tuple(shape), kind,
                         blocksize)


def _strided(x, dtype=None) -> Tensor:
    x = x if isinstance(x, Tensor) else engine.tensor(x)
    return x if dtype is None else x.to(dtype)


def sparse_compressed_tensor(compressed_indices, plain_indices, values, size=None, *, dtype=None,
                             layout=None, device=None, pin_memory=False, requires_grad=False,
                             check_invariants=None) -> Tensor:
    """A tensor in compressed rows or columns, of where each begins, places and values."""
    if layout not in fm.COMPRESSED:
        raise RuntimeError("sparse_compressed_tensor expected sparse compressed tensor layout but "
                           f"got {'none' if layout is None else fm.spoken(layout)}")
    values = _strided(values, dtype)
    starts, places = (detached(_strided(t)) for t in (compressed_indices, plain_indices))
    for t in (starts, places):
        if t.dtype not in (dt.int32, dt.int64) or t.dtype is not starts.dtype:
            raise RuntimeError("sparse_compressed_tensor: compressed and plain indices must be "
                               f"Int or Long, and of one dtype, got {starts.dtype} and "
                               f"{places.dtype}")
    size = _fitting(starts, places, values, size, layout)
    x = compressed(_pattern(starts, places, values, size, layout, bool(check_invariants)), values,
                   size, layout)
    return options.finish("sparse_compressed_tensor", x, None, pin_memory, requires_grad)


def _blocksize(starts, values, kind) -> tuple[int, int]:
    batch, inner = starts.dim() - 1, 2 if kind in fm.BLOCKED else 0
    if values.dim() <= batch + inner:
        raise RuntimeError("values must have dimensionality > sum of batch and block "
                           f"dimensionalities (={batch} + {inner}) but got {values.dim()}")
    return tuple(values.shape[batch + 1:batch + 3]) if inner else (1, 1)


def _fitting(starts, places, values, size, kind) -> tuple[int, ...]:
    """The shape of the whole, given or found."""
    block = _blocksize(starts, values, kind)
    if size is not None:
        return options.sizes("sparse_compressed_tensor", (tuple(size),))
    batch = starts.dim() - 1
    across = int(places.max()) + 1 if places.numel() else 0
    along = starts.shape[-1] - 1
    grid = (along, across) if kind in fm.BY_ROWS else (across, along)
    inner = values.shape[batch + (3 if kind in fm.BLOCKED else 1):]
    return (*starts.shape[:-1], grid[0] * block[0], grid[1] * block[1], *inner)


def _pattern(starts, places, values, size, kind, strict: bool) -> Pattern:
    """The pattern of a tensor that was given in parts; RuntimeError if they do not fit it."""
    batch, names = starts.dim() - 1, (("crow", "col") if kind in fm.BY_ROWS else ("ccol", "row"))
    one, other = f"{names[0]}_indices", f"{names[1]}_indices"
    block = _blocksize(starts, values, kind)
    grid = [n // b for n, b in zip(size[batch:batch + 2], block, strict=True)]
    rows, columns = grid if kind in fm.BY_ROWS else grid[::-1]
    count, what = places.shape[-1], ("nrows", "ncols") if kind in fm.BY_ROWS else ("ncols", "nrows")
    if starts.shape[-1] != rows + 1:
        raise RuntimeError(f"{one}.shape[-1] must be equal to the number of {what[0][1:]} + 1 "
                           f"(={rows + 1}), but got {starts.shape[-1]}")
    if values.shape[batch] != count:
        raise RuntimeError(f"{other}.shape[-1] must be equal to nnz (={values.shape[batch]}) as "
                           f"defined by values.shape[{batch}], but got {count}")
    at, where = convert.to_array(starts), convert.to_array(places)
    lengths = np.diff(at, axis=-1)
    rules = (
        (f"{one}[..., 0] == 0", (at[..., 0] == 0).all()),
        (f"{one}[..., -1] == nnz", (at[..., -1] == count).all()),
        (f"0 <= {one}[..., 1:] - {one}[..., :-1] <= {what[1]}",
         ((lengths >= 0) & (lengths <= columns)).all()),
        (f"0 <= {other} < {what[1]}", ((where >= 0) & (where < columns)).all()),
    )
    for rule, holds in rules:
        if not holds:
            raise RuntimeError(f"`{rule}` is not satisfied.")
    pattern = Pattern(starts, places, rows, columns)
    if strict and not batch and count and (
            np.diff(pattern.row_numbers() * (columns + 1) + where) <= 0).any():
        raise RuntimeError(
            f"`{other}[..., {one}[..., i - 1]:{one}[..., i]] for all i = 1, ..., {what[0]} are "
            "sorted and distinct along the last dimension values` is not satisfied.")
    return pattern


def _constructor(name: str, kind: fm.layout, words: str):
    def construct(starts, places, values, size=None, *, dtype=None, device=None, pin_memory=False,
                  requires_grad=False, check_invariants=None) -> Tensor:
        return sparse_compressed_tensor(
            starts, places, values, size, dtype=dtype, layout=kind, device=device,
            pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants)

    construct.__name__ = construct.__qualname__ = name
    construct.__doc__ = f"A tensor in compressed {words}."
    return construct


sparse_csr_tensor = _constructor("sparse_csr_tensor", fm.sparse_csr, "rows")
sparse_csc_tensor = _constructor("sparse_csc_tensor", fm.sparse_csc, "columns")
sparse_bsr_tensor = _constructor("sparse_bsr_tensor", fm.sparse_bsr, "rows of blocks")
sparse_bsc_tensor = _constructor("sparse_bsc_tensor", fm.sparse_bsc, "columns of blocks")
