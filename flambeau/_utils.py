"""Tensors joined into one and taken apart again, as programs that average gradients do it."""

from __future__ import annotations

from collections.abc import Sequence

import flambeau
from flambeau import Tensor
from flambeau.serialization.rebuild import parameter, tensor_v1, tensor_v2

__all__ = ["_element_size", "_flatten_dense_tensors", "_get_device_index", "_rebuild_parameter",
           "_rebuild_tensor", "_rebuild_tensor_v2", "_unflatten_dense_tensors"]

_rebuild_tensor, _rebuild_tensor_v2, _rebuild_parameter = tensor_v1, tensor_v2, parameter


def _element_size(dtype: flambeau.dtype) -> int:
    """How many bytes an element has."""
    return dtype.itemsize


def _get_device_index(device, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device: -1 of the CPU, where that is allowed."""
    if isinstance(device, int):
        return device
    place = flambeau.device(device) if isinstance(device, str) else device
    if not isinstance(place, flambeau.device):
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: "
                         f"{device}")
    if place.type == "cpu" and not allow_cpu:
        raise ValueError(f"Expected a non cpu device, but got: {place}")
    if place.index is None:
        return -1 if place.type == "cpu" else 0
    return place.index


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of all tensors in one dimension; a copy, unless there is one tensor only."""
    flat = [x.contiguous().view(-1) for x in tensors]
    return flat[0] if len(flat) == 1 else flambeau.cat(flat)


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of what was joined, in the shapes of these tensors."""
    parts, start = [], 0
    for x in tensors:
        parts.append(flat.narrow(0, start, x.numel()).view_as(x))
        start += x.numel()
    return tuple(parts)
