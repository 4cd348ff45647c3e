"""The few names of torch's compiled core that programs reach for directly."""

from __future__ import annotations

import contextlib

from flambeau import Generator, _function_mode
from flambeau.assemble import subclass as _protocol
from flambeau.library.operator import below_autograd as _AutoDispatchBelowAutograd

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator",
           "_AutoDispatchBelowAutograd", "_DisableFuncTorch", "_disabled_torch_function_impl",
           "_get_tracing_state", "_is_torch_function_enabled", "_is_torch_function_mode_enabled",
           "_len_torch_function_stack"]

_disabled_torch_function_impl = _protocol.disabled_torch_function


@contextlib.contextmanager
def DisableTorchFunctionSubclass():
    """Inside, subclasses of Tensor do not answer, and results are plain tensors."""
    before, _protocol.asking.on = _protocol.asking.on, False
    try:
        yield
    finally:
        _protocol.asking.on = before


@contextlib.contextmanager
def DisableTorchFunction():
    """Inside, neither subclasses of Tensor nor modes answer."""
    with DisableTorchFunctionSubclass(), _function_mode.without_modes():
        yield


def _is_torch_function_enabled() -> bool:
    """Whether subclasses answer in this thread."""
    return _protocol.asking.on


def _is_torch_function_mode_enabled() -> bool:
    """Whether a mode is on in this thread."""
    return bool(_function_mode.stack.modes)


def _len_torch_function_stack() -> int:
    """How many modes are on in this thread."""
    return len(_function_mode.stack.modes)


@contextlib.contextmanager
def _DisableFuncTorch():
    """No transform is ever under way below Python, so there is none to suspend."""
    yield


def _get_tracing_state() -> None:
    """The trace being recorded: there is none, since operations are never traced."""
    return None
