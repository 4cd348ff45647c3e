"""Numbers of tensors as JSON can carry them, and as people read them."""

from __future__ import annotations

import math
from typing import Any

import flambeau


def plain(value: Any) -> Any:
    """Numbers, lists of them, or None; what JSON has no number for becomes a word."""
    if isinstance(value, flambeau.Tensor):
        value = value.detach().tolist()
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def short(value: Any) -> str:
    """A number with at most six digits; lists in brackets."""
    if value is None:
        return "None"
    if isinstance(value, list):
        return f"[{', '.join(short(part) for part in value)}]"
    if isinstance(value, float):
        return f"{value:.6g}" if value else "0"
    return str(value)


def size(count: int) -> str:
    """Bytes, in the unit that suits."""
    amount, units = float(count), ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{count:,} byte{'s' * (count != 1)}" if count < 1000 else f"{amount:.3g} {units[0]}"


def shape_text(shape: Any) -> str:
    """A shape as Python writes a tuple."""
    return str(tuple(shape))
