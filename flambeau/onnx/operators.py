"""Shapes as tensors, for models that compute with them."""

import flambeau

__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]


def shape_as_tensor(x):
    """The sizes of a tensor as a tensor of integers."""
    return flambeau.tensor(tuple(x.shape), dtype=flambeau.int64)


def reshape_from_tensor_shape(x, shape):
    """x in a shape that is given as a tensor."""
    return x.reshape(tuple(shape.tolist()))
