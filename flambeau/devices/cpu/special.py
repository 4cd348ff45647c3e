"""What numpy answers of whole numbers."""

from __future__ import annotations

from ...core.lazily import np
from .routines import routine


@routine
def greatest_common_divisor(input, other):
    """The largest integer that divides both."""
    return np.gcd(input, other)
