"""PyTorch's rooms for quantization, of which there is what float models need."""

from . import quantization

__all__ = ["quantization"]
