"""The __torch_function__ protocol for those who write subclasses and duck-typed tensors."""

import functools
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.assemble import subclass as _protocol

__all__ = ["disabled_torch_function", "get_default_nowrap_functions", "get_overridable_functions",
           "handle_torch_function", "has_torch_function", "has_torch_function_unary",
           "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property",
           "resolve_name", "wrap_torch_function"]

disabled_torch_function: Any = _protocol.disabled_torch_function


def has_torch_function(relevant_args):
    """Whether one of the arguments answers ops itself."""
    return bool(_protocol.overloaded(relevant_args))


def has_torch_function_unary(arg):
    """Whether the argument answers ops itself."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args):
    """Whether one of the arguments answers ops itself."""
    return has_torch_function(args)


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """Let the arguments answer a call of a public function."""
    name = getattr(public_api, "__name__", str(public_api))
    return _protocol.dispatch(public_api, _protocol.overloaded(relevant_args), args, kwargs, name)


def wrap_torch_function(dispatcher):
    """Decorator: a function that arguments may answer; dispatcher names the arguments to ask."""

    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_like(inp):
    """Whether this is a tensor, or answers ops like one."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def get_default_nowrap_functions():
    """Functions whose results stay plain tensors: attributes that are tensors themselves."""
    return {Tensor.grad.fget, Tensor._base.fget}


@functools.cache
def get_overridable_functions():
    """Namespace -> the functions in it that arguments may answer."""
    answered = set(map(id, _protocol.functions.values()))
    spaces = {flambeau: vars(flambeau), Tensor: vars(Tensor)}
    return {space: [f for f in names.values() if id(f) in answered]
            for space, names in spaces.items()}


def is_tensor_method_or_property(func):
    """Whether a function is a method of Tensor."""
    return func in vars(Tensor).values()


def resolve_name(f):
    """The name of an overridable function, with where it lives."""
    for space, name in ((flambeau, "torch"), (Tensor, "torch.Tensor")):
        for key, value in vars(space).items():
            if value is f:
                return f"{name}.{key}"
    return None
