"""Whether openmp computes here: kernels are generated instead."""

__all__ = ["is_available"]


def is_available():
    """Whether openmp is there: no."""
    return False
