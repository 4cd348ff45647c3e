"""Tensors cut into parts, and views as copies."""

from __future__ import annotations

from itertools import pairwise

from ..core import dtype as dt
from ..core import shape as sh
from ..core.numbers import plain
from .complex import view_as_complex, view_as_real
from .declare import composite, engine
from .shape import (
    alias,
    as_strided,
    detach,
    diagonal,
    expand,
    narrow,
    permute,
    select,
    slice,
    squeeze,
    t,
    transpose,
    unfold,
    unsqueeze,
    view,
    whole,
)


@composite(method=True)
def unbind(x, dim=0):
    """All places along a dimension, each as a tensor without it."""
    if not x.sig.rank:
        raise IndexError("unbind: Dimension specified as 0 but tensor has no dimensions")
    d = sh.wrap_dim(dim, x.sig.rank, "unbind")
    return engine.parts(x, "UnbindBackward0", d, None)


@composite
def split_with_sizes(x, split_sizes, dim=0):
    """Consecutive parts of the given lengths along a dimension."""
    if not x.sig.rank:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = sh.wrap_dim(dim, x.sig.rank, "split_with_sizes")
    sizes = whole("split_with_sizes", "split_sizes", split_sizes)
    if any(s < 0 for s in sizes):
        raise RuntimeError("split_with_sizes expects split_sizes have only non-negative entries, "
                           f"but got split_sizes={list(sizes)}")
    if sum(sizes) != x.sig.shape[d]:
        raise RuntimeError("split_with_sizes expects split_sizes to sum exactly to "
                           f"{x.sig.shape[d]} (input tensor's size at dimension {d}), but got "
                           f"split_sizes={list(sizes)}")
    return engine.parts(x, "SplitWithSizesBackward0", d, sizes)


@composite
def split(tensor, split_size_or_sections=None, dim=0, *, split_size=None):
    """Consecutive parts of one length, or of the given lengths, along a dimension."""
    x, size = tensor, plain(split_size_or_sections if split_size is None else split_size)
    if size is None:
        raise TypeError("split() missing 1 required positional argument: 'split_size_or_sections'")
    if not isinstance(size, int):
        return split_with_sizes(x, size, dim)
    if not x.sig.rank:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = sh.wrap_dim(dim, x.sig.rank, "split")
    n = x.sig.shape[d]
    if size < 0 or (size == 0 and n):
        raise RuntimeError("split expects split_size be non-negative" if size < 0 else
                           "split_size can only be 0 if dimension size is 0, but got dimension "
                           f"size of {n}")
    sizes = [min(size, n - start) for start in range(0, n, size)] if n else [0]
    return engine.parts(x, "SplitBackward0", d, tuple(sizes))


@composite
def chunk(x, chunks, dim=0):
    """At most `chunks` parts of equal length (the last may be shorter) along a dimension."""
    if not x.sig.rank:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = x.sig.shape[sh.wrap_dim(dim, x.sig.rank, "chunk")]
    if n == 0:
        return split_with_sizes(x, (0,) * chunks, dim)
    return split(x, -(-n // chunks), dim)


@composite
def tensor_split(x, indices_or_sections=None, dim=0, *, indices=None, sections=None):
    """Parts between the given places, or a number of parts as equal as can be."""
    if not x.sig.rank:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a "
                           "tensor with 0 dims")
    cuts = next((c for c in (indices_or_sections, indices, sections) if c is not None), None)
    d = sh.wrap_dim(dim, x.sig.rank, "tensor_split")
    n = x.sig.shape[d]
    if hasattr(cuts, "sig"):
        cuts = _cuts_of(cuts)
    if isinstance(cuts, int):
        if cuts <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {cuts}")
        small, extra = divmod(n, cuts)
        sizes = [small + 1] * extra + [small] * (cuts - extra)
        cuts = [sum(sizes[:k]) for k in range(1, len(sizes))]
    edges = [0, *whole("tensor_split", "indices_or_sections", cuts), n]
    return tuple(slice(x, d, a, b) for a, b in pairwise(edges))


def _cuts_of(cuts):
    if cuts.sig.dtype is not dt.int64 or cuts.sig.rank > 1:
        raise RuntimeError("tensor_split expected tensor_indices_or_sections to be a "
                           "zero-dimensional or one-dimensional int64 tensor, but got "
                           f"{cuts.sig!r}")
    found = cuts.tolist()
    return tuple(found) if isinstance(found, list) else found


def _split_along(name: str, least: int, dim_of):
    def along(x, indices_or_sections=None, *, indices=None, sections=None):
        cuts = next((c for c in (indices_or_sections, indices, sections) if c is not None), None)
        rank = x.sig.rank
        if rank < least:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {least} dimension, "
                               f"but got a tensor with {rank} dimensions!")
        if isinstance(cuts, str):
            raise TypeError(f"{name}() received an invalid combination of arguments - got (Tensor, "
                            "str), but expected an int of sections or a tuple of ints of indices")
        d = dim_of(rank)
        if isinstance(cuts, int) and (cuts <= 0 or x.sig.shape[d] % cuts):
            raise RuntimeError(f"torch.{name} attempted to split along dimension {d}, but the size "
                               f"of the dimension {x.sig.shape[d]} is not divisible by the "
                               f"split_size {cuts}!")
        return tensor_split(x, cuts, d)

    along.__name__ = name
    along.__doc__ = f"tensor_split for tensors of at least {least} dimensions."
    return composite(along)


hsplit = _split_along("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
vsplit = _split_along("vsplit", 2, lambda rank: 0)
dsplit = _split_along("dsplit", 3, lambda rank: 2)


#: views that also exist as copies
COPIES = (alias, as_strided, detach, diagonal, expand, narrow, permute, select, slice, split,
          split_with_sizes, squeeze, t, transpose, unbind, unfold, unsqueeze, view,
          view_as_complex, view_as_real)


def _copying(op):
    def copy(*args, **kwargs):
        try:
            found = op(*args, **kwargs)
        except IndexError as error:
            told = str(error)
            if op is not narrow or not told.startswith("narrow: Dim") or "got -" in told:
                raise
            raise RuntimeError(told) from error  # of this copy alone torch has it so
        if isinstance(found, tuple):
            return tuple(engine.clone(f) for f in found)
        return engine.contiguous(found) if not found.sig.contiguous else engine.clone(found)

    copy.__name__ = f"{op.name}_copy"
    copy.__doc__ = f"`{op.name}`, with memory of its own."
    return composite(method=op.name == "narrow")(copy)


for _op in COPIES:
    _copying(_op)
