"""Tensors pickled and copied; those that share memory go on sharing it among their copies."""

from __future__ import annotations

import copy
import ctypes

from ..core.device import META
from .fresh import empty
from .storage import allocate
from .storages import untyped_storage
from .tensor import LEAF, Tensor, make, room_of, signature


def rebuild(kind, storage, dtype, offset, size, stride, requires_grad, state=None):
    """What a pickled tensor is made from again; tensors of one pickle share storages."""
    mem = storage.mem
    x = make(signature(dtype, tuple(size), tuple(stride)), mem, mem.address + offset)
    x.__dict__["_room"] = (mem.address, storage.nbytes())
    return _with_type(x, kind, requires_grad, state)


def rebuild_meta(kind, dtype, size, stride, requires_grad, state=None):
    """A pickled tensor that has no elements."""
    return _with_type(empty(signature(dtype, tuple(size), tuple(stride), META)), kind,
                      requires_grad, state)


def _with_type(x: Tensor, kind, requires_grad: bool, state):
    out = x if kind is None else kind._make_subclass(kind, x, requires_grad)
    if requires_grad:
        out.node = LEAF
    if state:
        out.__dict__.update(state)
    return out


def reduce_ex(self, protocol):
    """How a tensor is pickled: what was computed comes back as a leaf that wants gradients."""
    sig, leaf = self.sig, self.node is not None
    kind, state = None if type(self) is Tensor else type(self), own_attributes(self)
    if sig.device is META:
        return rebuild_meta, (kind, sig.dtype, tuple(sig.shape), sig.strides, leaf, state)
    return rebuild, (kind, untyped_storage(self), sig.dtype, self.ptr - self.mem.address,
                     tuple(sig.shape), sig.strides, leaf, state)


#: what the library keeps in a tensor's dictionary
PRIVATE = frozenset(("_hooks", "_accumulated", "_retains", "_tangent", "_views", "_room"))


def own_attributes(x: Tensor) -> dict:
    """What the user, or a subclass, has put on a tensor."""
    return {k: v for k, v in x.__dict__.items() if k not in PRIVATE}


def deepcopy(self, memo):
    """A copy of a leaf; tensors copied together share what they shared before."""
    if self.node is not None and self.node is not LEAF:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the "
                           "deepcopy protocol at the moment. If you were attempting to deepcopy a "
                           "module, this may be because of a torch.nn.utils.weight_norm usage.")
    if id(self) in memo:
        return memo[id(self)]
    sig = self.sig
    if sig.device is META:
        copied = make(sig, allocate(0), 0)
    else:
        mem = _copied_memory(self, memo)
        copied = make(sig, mem, mem.address + self.ptr - self.mem.address)
    if type(self) is not Tensor:
        copied = copied.as_subclass(type(self))
    copied.node = self.node
    if sig.device is not META:
        copied.__dict__["_room"] = (mem.address, room_of(self))
    memo[id(self)] = copied
    copied.__dict__.update(copy.deepcopy(own_attributes(self), memo))
    if self.grad is not None:
        copied._grad = copy.deepcopy(self.grad, memo)
    return copied


def _copied_memory(x: Tensor, memo: dict):
    length = room_of(x)
    key = ("memory", id(x.mem), length)
    if key not in memo:
        mem = allocate(length)
        ctypes.memmove(mem.address, x.mem.address, length)
        memo[key] = mem
        memo["keep", key] = x.mem
    return memo[key]



def install() -> None:
    Tensor.__deepcopy__ = deepcopy
    Tensor.__reduce_ex__ = reduce_ex  # type: ignore[method-assign]
