"""Names for kinds of values, for annotations."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from flambeau import Size, Tensor, device, dtype

__all__ = ["Device", "FileLike", "Number", "Storage", "Tensor", "TensorOrTensors"]

Number: TypeAlias = int | float | bool
Device: TypeAlias = device | str | int | None
FileLike: TypeAlias = Any
Storage: TypeAlias = Any
TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrTensors: TypeAlias = TensorOrTensors
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_dtype: TypeAlias = dtype
_device: TypeAlias = device
_int: TypeAlias = int
_float: TypeAlias = float
_bool: TypeAlias = bool
