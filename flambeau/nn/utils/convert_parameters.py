"""Many parameters as one vector, and back."""

import flambeau
from flambeau import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _same_device(parameters):
    devices = {parameter.device for parameter in parameters}
    if len(devices) > 1:
        raise TypeError(
            "Found two parameters on different devices, this is currently not supported: "
            f"{sorted(map(str, devices))}"
        )


def parameters_to_vector(parameters):
    """All parameters, flattened and joined."""
    parameters = list(parameters)
    _same_device(parameters)
    return flambeau.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec, parameters):
    """Let each parameter take its part of the vector as its data."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected a Tensor, but got: {type(vec).__name__}")
    parameters = list(parameters)
    _same_device(parameters)
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        parameter.data = vec[start:end].view_as(parameter).data
        start = end
