"""Intel's GPUs, which there is no support for: what programs ask before they use one."""

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all", "seed",
           "seed_all", "synchronize"]


def is_available():
    """Whether there is such a device: no."""
    return False


def device_count():
    """How many such devices there are: none."""
    return 0


def empty_cache():
    """Return unused memory: there is none."""


def manual_seed(seed):
    """Seed the device: there is none."""


def manual_seed_all(seed):
    """Seed all devices: there are none."""


def seed():
    """Seed the device: there is none."""


def seed_all():
    """Seed all devices: there are none."""


def synchronize(device=None):
    """Wait for the device: there is none."""
    raise AssertionError("Torch not compiled with XPU enabled")
