"""Whether Apple's GPUs can be used."""

__all__ = ["is_available", "is_built", "is_macos13_or_newer", "is_macos_or_newer"]


def is_available():
    """Whether there is such a device: no."""
    return False


def is_built():
    """Whether this library was built for such devices: no."""
    return False


def is_macos_or_newer(major, minor):
    """Whether this is a macOS with such devices that is new enough: no."""
    return False


def is_macos13_or_newer(minor=0):
    """Whether this is macOS 13 or newer with such devices: no."""
    return False
