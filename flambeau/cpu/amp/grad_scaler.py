"""GradScaler of the CPU."""

import functools

from flambeau import amp

__all__ = ["GradScaler"]


class GradScaler(amp.GradScaler):
    """As `amp.GradScaler("cpu", ...)`."""

    __init__ = functools.partialmethod(amp.GradScaler.__init__, "cpu")
