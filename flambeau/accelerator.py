"""Whatever accelerator there is, under one name: here there is none."""

import contextlib

import flambeau

__all__ = ["current_accelerator", "current_device_index", "device_count", "device_index",
           "empty_cache", "is_available", "memory_allocated", "memory_reserved",
           "set_device_index", "synchronize"]


def get_device_module(device=None):
    """The module of a kind of device, such as torch.cpu: the CPU's if none is given.

    >>> import flambeau as torch
    >>> torch.get_device_module("cpu") is torch.cpu
    True
    """
    if device is not None and not isinstance(device, (str, flambeau.device)):
        raise RuntimeError(f"Invalid value of device '{device}', expect torch.device, str, or None")
    name = "cpu" if device is None else flambeau.device(device).type
    found = getattr(flambeau, name, None)
    if found is None:
        raise RuntimeError(f"Device '{name}' does not have a corresponding module registered as "
                           f"'torch.{name}'.")
    return found


def is_available():
    """Whether there is an accelerator: no."""
    return False


def device_count():
    """How many accelerators there are: none."""
    return 0


def current_accelerator(check_available=False):
    """The kind of accelerator: None."""
    return None


def _refuse():
    raise RuntimeError("Cannot access accelerator device when none is available.")


def current_device_index():
    """The number of the current accelerator; raises, for there is none."""
    _refuse()


def set_device_index(device):
    """Choose the current accelerator; raises, for there is none."""
    _refuse()


def synchronize(device=None):
    """Wait for the accelerator; raises, for there is none."""
    _refuse()


def device_index(device):
    """A context in which an accelerator is current; None means no change."""
    if device is not None:
        _refuse()
    return contextlib.nullcontext()


def empty_cache():
    """Return unused memory: there is none."""


def memory_allocated(device_index=None):
    """Bytes in tensors on the accelerator."""
    return 0


def memory_reserved(device_index=None):
    """Bytes held on the accelerator."""
    return 0
