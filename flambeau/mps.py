"""Apple's GPUs, which there is no support for: what programs ask before they use one."""

__all__ = ["current_allocated_memory", "device_count", "driver_allocated_memory", "empty_cache",
           "is_available", "manual_seed", "recommended_max_memory", "seed", "synchronize"]


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


def seed():
    """Seed the device: there is none."""


def synchronize():
    """Wait for the device: there is none."""
    raise RuntimeError("mps.synchronize: there is no MPS device")


def current_allocated_memory():
    """Bytes in tensors on the device."""
    return 0


def driver_allocated_memory():
    """Bytes held by the driver."""
    return 0


def recommended_max_memory():
    """Bytes one may use."""
    return 0
