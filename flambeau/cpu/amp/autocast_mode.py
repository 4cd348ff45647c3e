"""autocast of the CPU."""

import flambeau
from flambeau import amp

__all__ = ["autocast"]


class autocast(amp.autocast):
    """As `amp.autocast("cpu", ...)`."""

    def __init__(self, enabled=True, dtype=flambeau.bfloat16, cache_enabled=True):
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)
