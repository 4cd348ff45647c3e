"""Variable: what tensors that are differentiated were called once."""

from flambeau import Tensor


class _VariableType(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableType):
    """A tensor; Variable(x) is x itself, outside the graph."""

    def __new__(cls, data, requires_grad=False, volatile=None):
        return data.detach().requires_grad_(requires_grad)


__all__ = ["Variable"]
