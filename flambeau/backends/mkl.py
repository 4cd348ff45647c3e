"""Whether mkl computes here: kernels are generated instead."""

__all__ = ["is_available"]


def is_available():
    """Whether mkl is there: no."""
    return False
