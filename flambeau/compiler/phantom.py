"""Traced tensors: a signature that is in no plan, and tensors that are not computed yet."""

from __future__ import annotations

from ..engine import interception, subclass
from ..engine.node import PROMISED as GRAPH
from ..engine.tensor import LEAF, Signature, Tensor, signature

TRACE = "traced"
__all__ = ["GRAPH", "HAS_NODE", "IS_LEAF", "NO_NODE", "TRACE", "Phantom", "extent_of", "plain",
           "state_of", "traced"]

NO_NODE, IS_LEAF, HAS_NODE = 0, 1, 2


def traced(sig: Signature) -> Signature:
    """The signature of a traced tensor, so that every front asks."""
    try:
        return sig.traced
    except AttributeError:
        found = sig
        if sig.tag is None:
            found = signature(sig.dtype, tuple(sig.shape), tuple(sig.strides), sig.device, TRACE)
            found.plain, found.traced = sig, found
        sig.traced = found
        return found


def plain(sig: Signature) -> Signature:
    """The signature behind that of a traced tensor."""
    return sig.plain


class Phantom(Tensor):
    """A traced tensor that is not computed yet: whoever needs its memory ends the segment."""

    __slots__ = ()
    __module__ = "torch"

    def __getattr__(self, name: str):
        if name in ("ptr", "mem"):
            if interception.tracers:
                interception.tracers[-1].make_real(self)
                return getattr(self, name)
            if self.__class__ is not Phantom:  # another thread has computed it in the meantime
                return getattr(self, name)
        raise AttributeError(f"'Tensor' object has no attribute '{name}'")


subclass._plain.add(Phantom)


def state_of(x: Tensor) -> int:
    """What a tensor is in the graph."""
    node = x.node
    return NO_NODE if node is None else IS_LEAF if node is LEAF else HAS_NODE


def extent_of(x: Tensor) -> tuple[int, int]:
    """The addresses that a tensor's elements lie between."""
    sig = x.sig
    if sig.numel == 0:
        return x.ptr, x.ptr
    reach = [(n - 1) * s for n, s in zip(sig.shape, sig.strides, strict=True)]
    low = sum(r for r in reach if r < 0) * sig.dtype.itemsize
    high = (sum(r for r in reach if r > 0) + 1) * sig.dtype.itemsize
    return x.ptr + low, x.ptr + high
