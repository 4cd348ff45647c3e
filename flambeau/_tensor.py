"""The tensor, where programs that reach behind its public name look for it."""

from flambeau import Tensor

__all__ = ["Tensor"]
