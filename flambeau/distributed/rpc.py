"""Calls in other processes, which flambeau has not: programs ask first, as of builds without it."""

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether functions can be called in other processes: never."""
    return False
