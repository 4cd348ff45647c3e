"""How einsum chooses the order of its products."""

__all__ = ["enabled", "get_opt_einsum", "is_available", "strategy"]

enabled = True
strategy = "auto"


def is_available():
    """Whether the opt_einsum package is used: no."""
    return False


def get_opt_einsum():
    """The opt_einsum package: None."""
    return None
