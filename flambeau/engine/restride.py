"""Tensors that become views of themselves: t_, squeeze_, as_strided_ and the like."""

from __future__ import annotations

from ..ops import shape as views
from ..ops.declare import View
from .eager import engine
from .interception import Named, tracers
from .tensor import LEAF, Tensor, room_of
from .writing import check_writable


def _in_place(op: View):
    """The form of a view op that changes the tensor's own shape and strides."""
    name = f"{op.name}_"
    own = Named(name, None)  # what a trace knows this form by

    def form(self, *args, **kwargs):
        if tracers:
            found = tracers[-1](own, (self, *args), kwargs)
            if found is not None:
                return found[0]
        check_writable(self, name)
        shown = op.run(self, *args, **kwargs)
        return become(self, shown)

    form.__name__ = form.__qualname__ = name
    form.__doc__ = f"In-place form of `{op.name}`: no data moves."
    own.run = form
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
    self.__dict__["_room"] = (self.mem.address, room_of(self))
    return become(self, engine.as_strided(self, tuple(size), tuple(stride), storage_offset))


def install() -> None:
    for op in (views.squeeze, views.unsqueeze, views.t, views.transpose):
        setattr(Tensor, f"{op.name}_", _in_place(op))
    Tensor.as_strided_ = as_strided_


install()
