"""The place of PyTorch's code generator: only its switches, for programs that set them."""

from . import config

__all__ = ["config"]
