"""Tensors that become views of themselves: t_, squeeze_, resize_, set_ and the like."""

from __future__ import annotations

from ..core import formats as fm
from ..core import shape as sh
from ..core.device import META
from ..ops import shape as views
from ..ops.declare import View
from .eager import check_writable, engine
from .modes import modes
from .tensor import LEAF, Tensor, empty, offset_of, signature
from .views import check_strided, reach


def _in_place(op: View):
    """The form of a view op that changes the tensor's own shape and strides."""
    name = f"{op.name}_"

    def form(self, *args, **kwargs):
        check_writable(self, name)
        shown = op.run(self, *args, **kwargs)
        return become(self, shown)

    form.__name__ = form.__qualname__ = name
    form.__doc__ = f"In-place form of `{op.name}`: no data moves."
    return form


def become(x: Tensor, view: Tensor) -> Tensor:
    """Let a tensor take over the shape, strides and history of a view of it."""
    x.sig, x.ptr = view.sig, view.ptr
    if view.node is not None and x.node is not LEAF:
        x.node = view.node
    return x


def as_strided_(self, size, stride, storage_offset=None):
    """In-place form of `as_strided`."""
    check_writable(self, "as_strided_")
    return become(self, engine.as_strided(self, tuple(size), tuple(stride), storage_offset))


def resize_(self, *sizes, memory_format=fm.contiguous_format):
    """Another shape; the memory grows if it must, and new elements are not initialised."""
    if self.node is not None:
        raise RuntimeError("cannot resize variables that require grad")
    shape = views.ints(sizes)
    if any(n < 0 for n in shape):
        raise RuntimeError(f"resize_: Trying to create tensor with negative dimension in {shape}")
    if tuple(self.sig.shape) == shape and memory_format is fm.contiguous_format:
        return self
    if memory_format is fm.preserve_format:
        raise RuntimeError("Unsupported memory format for resize_: preserve_format")
    sig = signature(self.sig.dtype, shape, fm.strides_of(shape, memory_format), self.sig.device)
    room = self.mem.nbytes - (self.ptr - self.mem.address)
    if sig.nbytes > room and sig.device is not META:
        fresh = empty(signature(sig.dtype, (reach(sig),), None, sig.device))
        kept = min(reach(self.sig), sig.numel)
        old, new = (engine.as_strided(t.detach(), (kept,), (1,), offset_of(t))
                    for t in (self, fresh))
        engine.copy_into(new, old)
        self.mem, self.ptr = fresh.mem, fresh.ptr
    self.sig = sig
    return self


def resize_as_(self, the_template, *, memory_format=fm.contiguous_format):
    """resize_ to the shape of another tensor."""
    if memory_format is fm.preserve_format:
        memory_format = next((f for f in fm.ORDERS if fm.lies_in(
            the_template.sig.shape, the_template.sig.strides, f)), fm.contiguous_format)
    return resize_(self, tuple(the_template.sig.shape), memory_format=memory_format)


def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Let a tensor use another's storage, sizes and strides."""
    if self.node is not None and modes.grad and self.node is not LEAF:
        raise RuntimeError("set_: cannot change the storage of a tensor that is part of a graph")
    if source is None:
        other = empty(signature(self.sig.dtype, (0,), None, self.sig.device))
        self.sig, self.mem, self.ptr = other.sig, other.mem, other.ptr
        return self
    tensor = source if isinstance(source, Tensor) else source._tensor()
    if tensor.sig.dtype is not self.sig.dtype:
        raise RuntimeError(f"Could not set tensor of type {tensor.sig.dtype} to a tensor of type "
                           f"{self.sig.dtype}")
    if size is None:
        self.sig, self.mem, self.ptr = tensor.sig, tensor.mem, tensor.ptr
        return self
    size = (size,) if isinstance(size, int) else tuple(size)
    stride = sh.contiguous_strides(size) if stride is None else tuple(stride)
    check_strided(tensor, size, stride, storage_offset)
    self.sig = signature(self.sig.dtype, size, stride, self.sig.device)
    self.mem = tensor.mem
    self.ptr = tensor.mem.address + storage_offset * self.sig.dtype.itemsize
    return self


def install() -> None:
    for op in (views.squeeze, views.unsqueeze, views.t, views.transpose):
        setattr(Tensor, f"{op.name}_", _in_place(op))
    for method in (as_strided_, resize_, resize_as_, set_):
        setattr(Tensor, method.__name__, method)


install()
