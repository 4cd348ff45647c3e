"""Padding: more values around the last one, two or three dimensions."""

from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import _ntuple

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d",
    "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d",
    "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d",
    "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _PadNd(Module):
    """Padding of the last `_ndim` dimensions.

    `padding` is one number, or two per dimension from the last: (left, right, top, bottom ...).
    """

    _ndim = 0
    _mode = "constant"

    def __init__(self, padding):
        super().__init__()
        self.padding = _ntuple(2 * self._ndim)(padding)

    def forward(self, input):
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self):
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    """Padding with one value."""

    def __init__(self, padding, value):
        super().__init__(padding)
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


class _ZeroPadNd(_ConstantPadNd):
    """Padding with zeros."""

    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    """Padding with the values of the other end."""

    _mode = "circular"

    def forward(self, input):
        low, high = self._ndim + 1, self._ndim + 2
        if input.dim() not in (low, high):
            raise ValueError(f"expected {low}D or {high}D input (got {input.dim()}D input)")
        return super().forward(input)


class _ReflectionPadNd(_PadNd):
    """Padding with the values mirrored at the edge."""

    _mode = "reflect"


class _ReplicationPadNd(_PadNd):
    """Padding with the value at the edge."""

    _mode = "replicate"


class ConstantPad1d(_ConstantPadNd):
    """Constant padding of the last dimension."""

    _ndim = 1


class ConstantPad2d(_ConstantPadNd):
    """Constant padding of the last two dimensions."""

    _ndim = 2


class ConstantPad3d(_ConstantPadNd):
    """Constant padding of the last three dimensions."""

    _ndim = 3


class ZeroPad1d(_ZeroPadNd):
    """Zero padding of the last dimension."""

    _ndim = 1


class ZeroPad2d(_ZeroPadNd):
    """Zero padding of the last two dimensions."""

    _ndim = 2


class ZeroPad3d(_ZeroPadNd):
    """Zero padding of the last three dimensions."""

    _ndim = 3


class CircularPad1d(_CircularPadNd):
    """Circular padding of the last dimension."""

    _ndim = 1


class CircularPad2d(_CircularPadNd):
    """Circular padding of the last two dimensions."""

    _ndim = 2


class CircularPad3d(_CircularPadNd):
    """Circular padding of the last three dimensions."""

    _ndim = 3


class ReflectionPad1d(_ReflectionPadNd):
    """Reflection padding of the last dimension."""

    _ndim = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Reflection padding of the last two dimensions."""

    _ndim = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Reflection padding of the last three dimensions."""

    _ndim = 3


class ReplicationPad1d(_ReplicationPadNd):
    """Replication padding of the last dimension."""

    _ndim = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Replication padding of the last two dimensions."""

    _ndim = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Replication padding of the last three dimensions."""

    _ndim = 3
