"""Whether there is anything for CUDA's mixed precision to run on."""

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available():
    """Whether there is surely no CUDA device: yes."""
    return True
