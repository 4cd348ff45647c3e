"""Tensors that have a shape and no numbers are those of the device meta; see fake_tensor."""

from .fake_tensor import FakeTensor

__all__ = ["FakeTensor"]
