"""Joining tensors: one plan for each list of signatures, one copy kernel for each part."""

from __future__ import annotations

from math import prod

from ..core import dtype as dt
from ..core import formats as fm
from ..core import shape as sh
from ..core.device import META
from ..devices.cpu import strips
from . import pointwise as pw
from .eager import engine, new_table, same_place
from .fresh import empty
from .modes import modes
from .node import edge_of, new_node
from .tensor import Signature, Tensor, signature
from .views import Step, released

#: what was planned: (signatures, dimension, whether it is a fresh one) -> plan
known = new_table()


def tensors_in(name: str, tensors) -> list[Tensor]:
    """The tensors of a sequence, or torch's TypeError."""
    if isinstance(tensors, Tensor) or not hasattr(tensors, "__iter__"):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not "
                        f"{type(tensors).__name__}")
    tensors = list(tensors)
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): expected Tensor as element {i} in argument 0, but got "
                            f"{type(x).__name__}")
    return tensors


def joined(name: str, tensors, dim: int, fresh: bool) -> Tensor:
    """Tensors put one after another along a dimension, or along a fresh one."""
    tensors = tensors_in(name, tensors)
    key = (tuple([x.sig for x in tensors]), dim, fresh)
    plan = known.get(key)
    if plan is None:
        if not tensors:
            error = RuntimeError if fresh else ValueError
            raise error(f"{name}(): expected a non-empty list of Tensors")
        same_place(_Named(name), tensors)
        plan = known[key] = _plan(name, key[0], dim, fresh)
    sig, whole, steps, dim, _ = plan
    out = empty(sig)
    start = out.ptr
    if whole is not None:
        whole[0](start, *[x.ptr for x in tensors], whole[1])
    for x, (run, last, move) in zip(tensors, steps, strict=False):
        run(start + move, x.ptr, last)
    if modes.grad and sig.dtype.kind in "fc" and any(x.node is not None for x in tensors):
        parents = tuple(edge_of(x) if x.node is not None else None for x in tensors)
        back = Step("StackBackward0" if fresh else "CatBackward0", JoinBack(key[0], dim, fresh,
                    [p is not None for p in parents]))
        out.node = new_node(back, parents, (), (sig,))
    return out


class _Named:
    def __init__(self, name: str):
        self.name = name


class JoinBack:
    """Gives each tensor its part of the gradient."""

    def __init__(self, sigs, dim: int, fresh: bool, wanted):
        self.sigs, self.dim, self.fresh, self.wanted = sigs, dim, fresh, wanted

    def __call__(self, g):
        found, start = [], 0
        for sig, wanted in zip(self.sigs, self.wanted, strict=True):
            skipped = not self.fresh and sig.rank == 1 and sig.shape[0] == 0 and g.sig.rank != 1
            length = 1 if self.fresh else 0 if skipped else sig.shape[self.dim]
            if not wanted:
                found.append(None)
            elif skipped:
                found.append(engine.zeros_of(sig))
            else:
                part = (engine.select(g, self.dim, start) if self.fresh else
                        engine.narrow(g, self.dim, start, length))
                if sig.dtype.kind != "c" and part.sig.dtype.kind == "c":
                    part = engine.real(part)
                found.append(released(engine.cast(part, sig.dtype)))
            start += length
        return found


def _plan(name: str, sigs: tuple[Signature, ...], dim: int, fresh: bool):
    """(signature of the result, one call for all parts or None, else a copy per part, the
    dimension counted from the front, what to keep)."""
    shapes = [s.shape for s in sigs]
    real = [s for s in sigs if fresh or s.shape != (0,)] or list(sigs)
    first = real[0]
    d = sh.wrap_dim(dim, first.rank + fresh, name)
    if fresh:
        for i, given in enumerate(shapes):
            if given != shapes[0]:
                raise RuntimeError(f"stack expects each tensor to be equal size, but got "
                                   f"{list(shapes[0])} at entry 0 and {list(given)} at entry {i}")
        shape: tuple = (*first.shape[:d], len(sigs), *first.shape[d:])
    else:
        shape = _cat_shape(name, sigs, first, d)
    dtype = _dtype_of(sigs)
    sig = signature(dtype, shape, _strides(real, shape, fresh), first.device)
    whole = _whole(sigs, sig, d)
    if whole is not None:
        return sig, whole[:2], [], d, whole
    steps: list[tuple] = []
    start, kept = 0, []
    for s in sigs:
        part, length = _part(sig, s, d, fresh)
        if part is None or s.numel == 0 or sig.device is META:
            steps.append((_nothing, 0, 0))
        else:
            run, last, made = _copy(s, part, sig, d)
            steps.append((run, last, start * sig.strides[d] * dtype.itemsize))
            kept.append(made)
        start += length
    return sig, None, steps, d, kept


def _nothing(*_) -> None:
    """Runs where there is nothing to copy."""


def _whole(sigs, sig: Signature, d: int):
    """(code, last argument, what to keep) of one call that joins all parts; None if they differ
    in how they lie, or are better copied one by one."""
    if not 1 < len(sigs) <= strips.MOST or sig.device is META or not sig.contiguous or not all(
            s.contiguous and s.dtype is sig.dtype and s.numel for s in sigs):
        return None
    rows, size = prod(sig.shape[:d]), sig.dtype.itemsize
    sizes = [prod(s.shape[d:]) * size for s in sigs]
    if sig.nbytes > _SMALL and rows == 1:
        return None
    joint = strips.Joint(rows, sizes)
    return strips.joining(len(sigs)), joint.address, joint


#: bytes below which one call is best however rows lie
_SMALL = 1 << 17


def _copy(s: Signature, part: Signature, sig: Signature, d: int):
    """(code, last argument, what to keep) of the copy of one part."""
    size = s.dtype.itemsize
    row = prod(s.shape[d:]) * size
    if row >= strips.LEAST and s.contiguous and sig.contiguous and s.dtype is sig.dtype:
        layout = strips.Layout(prod(s.shape[:d]), row, prod(sig.shape[d:]) * size, row)
        return strips.function(), layout.address, layout
    made = pw.plan(engine.identity, (s,), (), part)
    return made[2], made[3], made


def _cat_shape(name: str, sigs, first, d: int) -> tuple:
    total = 0
    for i, s in enumerate(sigs):
        if s.shape == (0,) and first.rank != 1:
            continue
        if s.rank == 0:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
        if s.rank != first.rank:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {first.rank} and "
                               f"{s.rank}")
        for k, (a, b) in enumerate(zip(first.shape, s.shape, strict=True)):
            if a != b and k != d:
                raise RuntimeError(f"{name}: Sizes of tensors must match except in dimension {d}. "
                                   f"Expected size {a} but got size {b} for tensor number {i} in "
                                   "the list.")
        total += s.shape[d]
    return (*first.shape[:d], total, *first.shape[d + 1:])


def _dtype_of(sigs) -> dt.dtype:
    return dt.result_type([s.dtype for s in sigs if s.rank], [s.dtype for s in sigs if not s.rank],
                          [])


def _strides(sigs, shape, fresh: bool):
    """Row-major, unless every part lies in memory with its channels last."""
    if fresh or all(s.contiguous for s in sigs):
        return None
    for wanted, (rank, _) in fm.ORDERS.items():
        if len(shape) == rank and all(fm.lies_in(s.shape, s.strides, wanted) for s in sigs):
            return fm.strides_of(shape, wanted)
    return None


def _part(sig: Signature, s: Signature, d: int, fresh: bool):
    if fresh:
        strides = (*sig.strides[:d], *sig.strides[d + 1:])
        return signature(sig.dtype, s.shape, strides, sig.device), 1
    if s.shape == (0,) and sig.rank != 1:
        return None, 0
    return signature(sig.dtype, s.shape, sig.strides, sig.device), s.shape[d]


engine.cat = lambda tensors, dim=0: joined("cat", tensors, dim, False)
engine.stack = lambda tensors, dim=0: joined("stack", tensors, dim, True)
engine.joined = joined
engine.result_type = lambda tensors: _dtype_of([x.sig for x in tensors])
