"""Lists of tensors sorted by their kind, for optimizers that work on whole lists."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau import Tensor

__all__: list[str] = []


def _group_tensors_by_device_and_dtype(tensorlistlist: Sequence[Sequence[Tensor | None]],
                                       with_indices: bool = False) -> dict:
    """(device, dtype) of the tensors in the first list -> (the lists cut down to them, places)."""
    groups: dict = {}
    for place, first in enumerate(tensorlistlist[0]):
        if first is None:
            raise RuntimeError("_group_tensors_by_device_and_dtype: the first list has no gaps")
        lists, places = groups.setdefault((first.device, first.dtype),
                                          ([[] for _ in tensorlistlist], []))
        for target, source in zip(lists, tensorlistlist, strict=True):
            if source:
                target.append(source[place])
        if with_indices:
            places.append(place)
    return groups


def _get_fused_kernels_supported_devices() -> list[str]:
    """Where an optimizer's step is one kernel."""
    return ["cpu"]


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Where ops of lists are one kernel."""
    return ["cpu"]
