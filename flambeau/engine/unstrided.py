"""What tensors of sparse layouts have in common: values that are kept, and no memory of their own.

One is a subclass of Tensor whose signature no plan knows, so every op asks its layout's table. Its
strides are all 0 over one element that is 0: whatever reads its bytes by mistake finds zeros. Its
own place in the graph is where gradients of its values go, as sparse tensors of the same places.
"""

from __future__ import annotations

import copy
from typing import Any

from ..core import dtype as dt
from ..core.device import CPU
from ..core.sparse_text import sparse_text
from . import convert, inplace, protocol
from .eager import engine
from .modes import modes
from .node import edge_of, new_node
from .tensor import LEAF, Tensor, make, signature
from .views import Step


class SparseTensor(Tensor):
    """A tensor of which only some elements are kept. A layout says which, in slots of its own."""

    __slots__ = ("held",)

    held: Tensor   # the values, outside the graph
    SPOKEN = "Sparse"

    __module__ = "torch"

    @staticmethod
    def made(*parts) -> SparseTensor:
        """The tensor of these parts, outside the graph."""
        raise NotImplementedError

    def _parts(self) -> tuple:
        """What `made` makes the same tensor from."""
        raise NotImplementedError

    def _with(self, values: Tensor) -> SparseTensor:
        """Other values at the same places, recorded if values are."""
        raise NotImplementedError

    def _picked(self, other: Tensor) -> Tensor:
        """The elements of another tensor at these places."""
        raise NotImplementedError

    def _become(self, other) -> SparseTensor:
        """Change in place into another."""
        raise NotImplementedError

    def _kept(self) -> Tensor:
        """The values as part of the graph: their gradient is one of the whole, at these places."""
        if self.node is None or not modes.grad:
            return self.held
        held, like = self.held, outside(self)
        out = make(held.sig, held.mem, held.ptr)
        out.node = new_node(Step("ValuesBackward0", lambda g: [like._with(g)]), (edge_of(self),),
                            (), (held.sig,))
        return out

    # -- what it is -------------------------------------------------------------------------------

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, value) -> None:
        self._become(value)

    def numpy(self, *, force=False):
        raise TypeError(f"can't convert {self.SPOKEN} layout tensor to numpy. Use "
                        "Tensor.to_dense() first.")

    def __array__(self, dtype=None, copy=None):
        return self.numpy()

    def tolist(self):
        return self.to_dense().tolist()

    def item(self):
        if self.sig.numel != 1:
            raise RuntimeError(f"a Tensor with {self.sig.numel} elements cannot be converted to "
                               "Scalar")
        return self.to_dense().item()

    def data_ptr(self):
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def untyped_storage(self):
        raise NotImplementedError(f"Cannot access storage of {self.SPOKEN}TensorImpl")

    storage = untyped_storage

    def __iter__(self):
        return iter([self[k] for k in range(len(self))])

    # -- copies -----------------------------------------------------------------------------------

    def detach(self):
        return outside(self)

    def detach_(self):
        self.node = None
        return self

    def to(self, *args, **kwargs):
        values = self.held.to(*args, **kwargs)
        return self if values is self.held else self._with(self._kept().to(*args, **kwargs))

    def __format__(self, spec: str) -> str:
        return object.__format__(self, spec) if spec else repr(self)

    def __reduce_ex__(self, protocol):
        require_leaf(self)
        return rebuilt, (self.made, self._parts(), self.node is LEAF)

    def __deepcopy__(self, memo):
        require_leaf(self)
        out = rebuilt(self.made, copy.deepcopy(self._parts(), memo), self.node is LEAF)
        memo[id(self)] = out
        if self.grad is not None:
            out._grad = copy.deepcopy(self.grad, memo)
        return out


def unstrided(cls: type, values: Tensor, shape) -> Any:
    """A tensor of a sparse layout around values, outside the graph, that has no places yet."""
    x: Any = object.__new__(cls)
    x.sig = signature(values.sig.dtype, tuple(shape), (0,) * len(shape), CPU, cls)
    nothing = engine.full((), 0, values.sig.dtype)
    x.mem, x.ptr, x.node = nothing.mem, nothing.ptr, None
    x.held = inplace.detached(values)
    return x


def recorded(x, values: Tensor, label: str, back):
    """The sparse tensor made of values, as a step of the graph if they are part of it."""
    if values.node is not None and modes.grad:
        x.node = new_node(Step(label, lambda g: [back(g)]), (edge_of(values),), (), (x.sig,))
    return x


def shown(x, places: dict[str, Tensor]) -> str:
    """A sparse tensor as text, with its places by name."""
    node = x.node
    return sparse_text(
        {name: convert.to_array(at) for name, at in places.items()}, convert.to_array(x.held),
        tuple(x.sig.shape), x._nnz(), x.sig.dtype.name, x.layout.name,
        options=protocol.Printing.options, default_dtype_name=dt.default_float().name,
        requires_grad=node is LEAF,
        grad_fn_name=None if node is None or node is LEAF else x.grad_fn.name())


def marked(out, label: str):
    """The step that made a tensor, under the name torch has for it."""
    if out.node is not None and out.node is not LEAF:
        out.node.back = Step(label, out.node.back.function)
    return out


def outside(x):
    """The same tensor outside the graph."""
    return x.made(*x._parts())


def rebuilt(made, parts: tuple, requires_grad: bool):
    """What copies and pickles are made by."""
    x = made(*parts)
    x.node = LEAF if requires_grad else None
    return x


def require_leaf(x) -> None:
    if x.node is not None and x.node is not LEAF:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the "
                           "deepcopy protocol at the moment, nor can others be pickled; detach() "
                           "this one first")


def in_place(name: str, op: str):
    """The form of an op that changes a sparse tensor."""
    def form(self, *args, **kwargs):
        if self.node is LEAF and modes.grad:
            raise RuntimeError(f"{name}: a leaf Variable that requires grad is being used in an "
                               "in-place operation.")
        return self._become(getattr(self, op)(*args, **kwargs))

    form.__name__, form.__doc__ = name, f"In-place form of `{op}`."
    return form
