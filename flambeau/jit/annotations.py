"""torch.jit's names around scripting: code runs as it is, so most hand back what they get."""

from __future__ import annotations

import builtins
from typing import Any, Dict, Final, List, NamedTuple, Optional, Tuple  # noqa: UP035

from flambeau import nn
from flambeau.export.record import recording

__all__ = ["Attribute", "Dict", "Error", "Final", "Future", "List", "Optional", "ScriptModule",
           "TracerWarning", "Tuple", "annotate", "export", "fork", "freeze",
           "ignore", "interface", "is_scripting", "is_tracing", "isinstance",
           "onednn_fusion_enabled", "optimize_for_inference", "run_frozen_optimizations",
           "script_if_tracing", "script_method", "set_fusion_strategy", "unused", "wait"]


class ScriptModule(nn.Module):
    """A module; its methods are Python, as those of any other."""


class Error(RuntimeError):
    """What goes wrong while a program runs."""


class TracerWarning(Warning):
    """Of what a recorded program will not see; see also TracingCheckError."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """None comes from within the library."""


class Attribute(NamedTuple):
    """A value and the type it is said to have."""

    value: Any
    type: Any


def script_method(function):
    """The method itself."""
    return function


def script_if_tracing(function):
    """The function itself: it is traced like any other."""
    return function


def export(function):
    """Marks a method that is kept when a module is scripted: all are."""
    return function


def ignore(drop=False, **kwargs):
    """Marks a function that is left to Python: all are."""
    return drop if callable(drop) else (lambda function: function)


def unused(function):
    """Marks a function that is not called when scripted."""
    return function


def interface(cls):
    """The class itself."""
    return cls


def annotate(the_type, the_value):
    """The value."""
    return the_value


def isinstance(obj, target_type) -> bool:
    """Whether a value is of a type, parameters of generic types aside."""
    kinds = target_type if builtins.isinstance(target_type, tuple) else (target_type,)
    plain: tuple[Any, ...] = tuple(getattr(k, "__origin__", k) for k in kinds)
    return builtins.isinstance(obj, plain)


def is_scripting() -> bool:
    """Whether this code is being compiled to TorchScript: never."""
    return False


def is_tracing() -> bool:
    """Whether a program is being traced."""
    return recording()


class Future:
    """A result that is there already."""

    def __init__(self, value):
        self._value = value

    def wait(self):
        return self._value

    def value(self):
        return self._value

    def done(self) -> bool:
        return True

    def then(self, callback):
        return Future(callback(self))


def fork(func, *args, **kwargs) -> Future:
    """Call a function; its result as a future."""
    return Future(func(*args, **kwargs))


def wait(future: Future):
    """The result of a future."""
    return future.wait()


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """The module in eval mode."""
    if mod.training:
        raise RuntimeError("Freezing is currently only implemented for modules in eval mode. "
                           "Please call .eval() on your module before freezing.")
    return mod


def optimize_for_inference(mod, other_methods=None):
    """The module in eval mode."""
    return mod.eval()


def run_frozen_optimizations(mod, optimize_numerics=True, preserved_methods=None) -> None:
    """There is nothing left to do."""


def set_fusion_strategy(strategy):
    """Accepted: what is fused is decided by the compiler."""
    return list(strategy)


def onednn_fusion_enabled() -> bool:
    """Whether oneDNN fuses: it is not used."""
    return False


class TensorType:
    """The type of tensors, in annotations."""

    @staticmethod
    def get():
        return TensorType()


class BroadcastingListCls:
    """Annotations of a list of so many numbers, for which one number may be given."""

    def __getitem__(self, kind):
        return list[kind]


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingListCls()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingListCls()
