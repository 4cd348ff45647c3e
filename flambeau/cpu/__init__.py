"""The CPU seen as a device among others: what programs ask of any device."""

import contextlib

from . import amp

__all__ = ["Stream", "amp", "current_device", "current_stream", "device_count", "is_available",
           "is_initialized", "set_device", "stream", "synchronize"]


def is_available():
    """Whether there is a CPU: yes."""
    return True


def is_initialized():
    """Whether the CPU was started: yes."""
    return True


def device_count():
    """How many CPUs are told apart: one."""
    return 1


def current_device():
    """The current device: the CPU."""
    return "cpu"


def set_device(device):
    """Choose the current device: there is only one."""


def synchronize(device=None):
    """Wait for work to be done: it is, whenever a call returns."""


class Stream:
    """A queue of work; on a CPU, work is done at once."""

    def __init__(self, priority=-1):
        pass

    def wait_stream(self, stream):
        """Wait for another queue: it is empty."""


_current = Stream()


def current_stream(device=None):
    """The queue that is used now."""
    return _current


def stream(stream):
    """A context in which a queue is used."""
    return contextlib.nullcontext(stream)
