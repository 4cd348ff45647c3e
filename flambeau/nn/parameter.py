"""Tensors that a module owns: parameters, buffers, and both before their shape is known."""

from collections import OrderedDict

import flambeau
from flambeau import Tensor
from flambeau.overrides import disabled_torch_function

__all__ = [
    "Parameter",
    "UninitializedParameter",
    "is_lazy",
    "Buffer",
    "UninitializedBuffer",
    "UninitializedTensorMixin",
]


class ParameterType(type(Tensor)):  # type: ignore[misc]
    """Counts tensors of other subclasses as parameters once they have been made one."""

    def __instancecheck__(cls, instance):
        if type.__instancecheck__(cls, instance):
            return True
        return (
            cls is Parameter
            and isinstance(instance, Tensor)
            and getattr(instance, "_is_param", False)
        )


class Parameter(Tensor, metaclass=ParameterType):
    """A tensor that is learned: assigned to a module, it joins the module's parameters."""

    __module__ = "torch.nn.parameter"
    __torch_function__ = disabled_torch_function

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = flambeau.empty(0)
        if type(data) in (Tensor, Parameter, Buffer):
            return Tensor._make_subclass(cls, data.detach(), requires_grad)
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter: data must be a Tensor, not {type(data).__name__}")
        parameter = data.detach().requires_grad_(requires_grad)
        if type(data) is Tensor:  # in a compiled call it had not been computed until now
            return Tensor._make_subclass(cls, data.detach(), requires_grad)
        if type(parameter) is not type(data):
            raise RuntimeError(
                f"Parameter: detach() of {type(data).__name__} gives {type(parameter).__name__}; "
                "a tensor subclass must keep its type to become a parameter"
            )
        parameter._is_param = True
        return parameter

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        return memo[id(self)]

    def __repr__(self):
        return f"Parameter containing:\n{self.detach().requires_grad_(self.requires_grad)!r}"

    def __reduce_ex__(self, protocol):
        return _rebuild_parameter, (self.detach(), self.requires_grad, OrderedDict())


class Buffer(Tensor):
    """A tensor that a module owns without learning it, such as a running mean."""

    __torch_function__ = disabled_torch_function

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = flambeau.empty(0)
        buffer = Tensor._make_subclass(cls, data.detach(), data.requires_grad)
        buffer.persistent = persistent
        return buffer

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            copied = type(self)(self.detach().clone(), persistent=self.persistent)
            memo[id(self)] = copied.requires_grad_(self.requires_grad)
        return memo[id(self)]

    def __repr__(self):
        return repr(self.detach().requires_grad_(self.requires_grad))

    def __reduce_ex__(self, protocol):
        return _rebuild_buffer, (self.detach(), self.requires_grad, self.persistent)


def _rebuild_parameter(data, requires_grad, backward_hooks):
    return Parameter(data, requires_grad)


def _rebuild_buffer(data, requires_grad, persistent):
    return Buffer(data, persistent=persistent).requires_grad_(requires_grad)


# -- before the shape is known -----------------------------------------------------------------

_ALLOWED_WITHOUT_SHAPE = {
    "__get__", "__set__", "__hash__", "__repr__", "bfloat16", "copy_", "cpu", "cuda", "detach",
    "device", "double", "dtype", "float", "half", "is_complex", "is_floating_point",
    "requires_grad_", "to", "type",
}  # fmt: skip


class UninitializedTensorMixin:
    """What a parameter and a buffer share until their shape is known."""

    _becomes: type

    def materialize(self, shape, device=None, dtype=None):
        """Take a shape, and with it the class of an ordinary parameter or buffer."""
        device = self.data.device if device is None else device
        dtype = self.data.dtype if dtype is None else dtype
        self.__class__ = self._becomes  # before its data: that is signed by the class it is of
        self.data = flambeau.empty(shape, device=device, dtype=dtype)

    @property
    def shape(self):
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. "
            "Call the module once, so that it sees its input, before reading shapes."
        )

    def share_memory_(self):
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. "
            "Call the module once before `module.share_memory()`."
        )

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol):
        return type(self), (self.requires_grad, self.data.device, self.data.dtype)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in _ALLOWED_WITHOUT_SHAPE:
            return super().__torch_function__(func, types, args, kwargs or {})
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. Lazy modules take their "
            "shapes from the first input: call the module once before using its parameters."
        )


def is_lazy(param):
    """Whether the shape of this parameter or buffer is still unknown."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter whose shape is decided by the first input."""

    _becomes = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        data = flambeau.empty(0, device=device, dtype=dtype)
        return Tensor._make_subclass(cls, data, requires_grad)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        return memo[id(self)]


class UninitializedBuffer(UninitializedTensorMixin, Buffer):  # type: ignore[misc]
    """A buffer whose shape is decided by the first input."""

    _becomes = Buffer

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        data = flambeau.empty(0, device=device, dtype=dtype)
        buffer = Tensor._make_subclass(cls, data, requires_grad)
        buffer.persistent = persistent
        return buffer

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            arguments = (self.requires_grad, self.data.device, self.data.dtype, self.persistent)
            memo[id(self)] = type(self)(*arguments)
        return memo[id(self)]
