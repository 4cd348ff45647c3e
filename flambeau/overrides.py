"""The __torch_function__ protocol for those who write subclasses and duck-typed tensors."""

import contextlib
import functools
import inspect
from typing import Any

import flambeau
from flambeau import Tensor, _function_mode
from flambeau._function_mode import BaseTorchFunctionMode, TorchFunctionMode
from flambeau.assemble import subclass as _protocol

__all__ = ["BaseTorchFunctionMode", "TorchFunctionMode", "disabled_torch_function",
           "enable_reentrant_dispatch", "get_default_nowrap_functions", "get_ignored_functions",
           "get_overridable_functions", "handle_torch_function", "has_torch_function",
           "has_torch_function_unary", "has_torch_function_variadic", "is_tensor_like",
           "is_tensor_method_or_property", "resolve_name", "wrap_torch_function"]

disabled_torch_function: Any = _protocol.disabled_torch_function


def has_torch_function(relevant_args):
    """Whether one of the arguments answers ops itself, or a mode does."""
    return bool(_function_mode.stack.modes or _protocol.overloaded(relevant_args))


def has_torch_function_unary(arg):
    """Whether the argument answers ops itself."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args):
    """Whether one of the arguments answers ops itself."""
    return has_torch_function(args)


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """Let the arguments answer a call of a public function."""
    name = getattr(public_api, "__name__", str(public_api))
    taking_part = _protocol.overloaded(relevant_args)
    if _function_mode.stack.modes:
        return _function_mode.ask(public_api, tuple(map(type, taking_part)), args, kwargs)
    return _protocol.dispatch(public_api, taking_part, args, kwargs, name)


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
    spaces = {space: vars(space) for space in (*_function_mode.spaces().values(), Tensor)}
    return {space: [f for f in map(_original, names.values()) if id(f) in answered]
            for space, names in spaces.items()}


@functools.cache
def get_ignored_functions():
    """Public functions that no argument can answer: those that make tensors, or set something."""
    overridable = {id(f) for fs in get_overridable_functions().values() for f in fs}
    return {f for name, f in ((name, _original(f)) for name, f in vars(flambeau).items())
            if inspect.isroutine(f) and not name.startswith("_") and id(f) not in overridable}


def _original(value):
    """What a public name means while no mode is on."""
    return value.original if isinstance(value, (
        _function_mode.Seen, _function_mode.SeenAttribute)) else value


def is_tensor_method_or_property(func):
    """Whether a function is a method of Tensor, or reads or writes an attribute of it."""
    return getattr(func, "__name__", None) in ("__get__", "__set__") or any(
        _original(func) is _original(value) for value in vars(Tensor).values())


def resolve_name(f):
    """The name of an overridable function, with where it lives."""
    return _function_mode.name_of(f)


@contextlib.contextmanager
def enable_reentrant_dispatch():
    """Accepted: calls made by handlers are dispatched in any case."""
    yield


def _get_current_function_mode():
    modes = _function_mode.stack.modes
    return modes[-1] if modes else None


def _get_current_function_mode_stack():
    return list(_function_mode.stack.modes)
