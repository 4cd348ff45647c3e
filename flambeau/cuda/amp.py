"""Mixed precision under its older name: flambeau.amp, with CUDA as the default device."""

from flambeau import amp

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):
    """flambeau.amp.autocast for CUDA."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """flambeau.amp.GradScaler for CUDA."""

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5,
                 growth_interval=2000, enabled=True):
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval,
                         enabled)
