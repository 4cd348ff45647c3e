"""The few names of torch's compiled core that programs reach for directly."""

from __future__ import annotations

import contextlib
import importlib

import flambeau
from flambeau import Generator, Tensor, _function_mode, set_grad_enabled
from flambeau.assemble import subclass as _protocol
from flambeau.library.keys import DispatchKey, DispatchKeySet
from flambeau.library.keys import ExcludeDispatchKeyGuard as _ExcludeDispatchKeyGuard
from flambeau.library.operator import below_autograd as _AutoDispatchBelowAutograd
from flambeau.linalg import LinAlgError as _LinAlgError

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "DispatchKey", "DispatchKeySet",
           "Generator", "_AutoDispatchBelowAutograd", "_ExcludeDispatchKeyGuard", "_TensorMeta",
           "_are_functorch_transforms_active", "_DisableFuncTorch", "_LinAlgError",
           "_disabled_torch_function_impl", "_fft", "_get_tracing_state",
           "_is_torch_function_enabled", "_is_torch_function_mode_enabled",
           "_len_torch_function_stack", "_linalg", "_log_api_usage_once", "_nn",
           "_set_grad_enabled", "_special"]

_disabled_torch_function_impl = _protocol.disabled_torch_function
_set_grad_enabled = set_grad_enabled
_TensorMeta = type(Tensor)


class _Functions:
    """The functions of a public namespace, under the names that the compiled core has for them."""

    def __init__(self, space: str, prefix: str) -> None:
        self._space, self._prefix = space, prefix

    def __getattr__(self, name: str):
        space = importlib.import_module(f"flambeau.{self._space}")
        return getattr(space, name.removeprefix(self._prefix))


class _OfLayers(_Functions):
    """What layers are computed with."""

    @staticmethod
    def _parse_to(*args, **kwargs):
        """The device, dtype, ... meant by any of the forms that `to` accepts."""
        return importlib.import_module("flambeau.nn.modules.module")._parse_to(*args, **kwargs)


_nn = _OfLayers("nn.functional", "")
_linalg, _fft, _special = (_Functions(space, f"{space}_") for space in ("linalg", "fft", "special"))


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


def _log_api_usage_once(event: str) -> None:
    """Counts a use, for those who run PyTorch in a fleet: nobody counts here."""


def _are_functorch_transforms_active() -> bool:
    """Whether values stand for many, as under vmap, so that nothing can be asked of them."""
    return flambeau.func.batched.under_way()
