"""autocast of CUDA."""

import functools

import flambeau
from flambeau import amp

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):
    """As `amp.autocast("cuda", ...)`."""

    def __init__(self, enabled=True, dtype=flambeau.float16, cache_enabled=True):
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")
