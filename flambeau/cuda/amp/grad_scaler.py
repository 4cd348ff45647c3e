"""GradScaler of CUDA."""

import functools

from flambeau import amp

__all__ = ["GradScaler"]


class GradScaler(amp.GradScaler):
    """As `amp.GradScaler("cuda", ...)`."""

    __init__ = functools.partialmethod(amp.GradScaler.__init__, "cuda")
