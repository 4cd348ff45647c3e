"""Whether mkldnn computes here: kernels are generated instead."""

__all__ = ["allow_tf32", "deterministic", "enabled", "is_available"]


def is_available():
    """Whether mkldnn is there: no."""
    return False


enabled = False
deterministic = False
allow_tf32 = True
