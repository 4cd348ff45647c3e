"""Conditions that programs and libraries check, by torch's names: `_check` and its kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .tensor import Tensor


def _check_with(error_type: type[Exception], cond: bool, message: Callable[[], str] | None) -> None:
    """Raise an error of a type, with what `message()` says, unless the condition holds."""
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise error_type("Expected cond to be True, but got False. (Could this error message be "
                         "improved? If so, please report an enhancement request to PyTorch.)")
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(str(message()))


def _of_kind(name: str, error_type: type[Exception]) -> Any:
    def check(cond, message=None):
        _check_with(error_type, cond, message)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"Raise {error_type.__name__}, with what `message()` says, unless cond is True."
    return check


_check = _of_kind("_check", RuntimeError)
_check_index = _of_kind("_check_index", IndexError)
_check_value = _of_kind("_check_value", ValueError)
_check_type = _of_kind("_check_type", TypeError)
_check_not_implemented = _of_kind("_check_not_implemented", NotImplementedError)


def _check_is_size(i, message=None, *, max=None) -> None:
    """Raise unless i is no less than zero, and no more than `max`."""
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all_with(error_type: type[Exception], cond, message=None) -> None:
    """Raise an error of a type unless all elements of a boolean tensor are True."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.sig.dtype.kind != "b":
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.sig.dtype}")
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond, message=None) -> None:
    """Raise RuntimeError unless all elements of a boolean tensor are True."""
    _check_tensor_all_with(RuntimeError, cond, message)
