"""Inputs cut for several devices and results joined, under the name of PyTorch's file for it."""

from flambeau.nn.parallel.pieces import gather, scatter, scatter_kwargs

__all__ = ["gather", "scatter", "scatter_kwargs"]
