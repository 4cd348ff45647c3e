"""Sums over all alignments of sequences, by one native call: see assembly/alignments.py."""

from __future__ import annotations

import functools

from .foundry import machine_code

#: dtypes that there is code for
KINDS = ("float32", "float64")
_LANES = 8


@functools.cache
def alignments(dtype: str):
    """The callable (out, slopes, x, targets, inputs, lengths, spare, labels, ..., work)."""
    name = f"alignments_{dtype}"
    return machine_code("alignments", (name,), dtype)[name]


def stride_of(width: int) -> int:
    """Elements of a row: places, and a vector before and after."""
    return -(-width // _LANES) * _LANES + 2 * _LANES
