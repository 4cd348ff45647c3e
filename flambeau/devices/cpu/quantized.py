"""Layers whose weights are signed bytes: inputs become bytes, too (see assembly/quantized.py)."""

from __future__ import annotations

import functools
from ctypes import addressof, c_char
from typing import Any

import numpy as np

from .bridge import jit
from .foundry import machine_code

_LANES, _DEPTH = 16, 4
_RANGE = 1 << 20   # so many products are worth a range of their own


@functools.cache
def _code() -> dict:
    fast = jit().bits == 512 and "avx512vnni" in jit().linker.has
    return machine_code("quantized", ("quantized_rows", "byte_products"), fast)


class Packed:
    """A matrix of signed bytes [columns, width] in panels, with what is asked of it beside."""

    def __init__(self, weight: np.ndarray, scales: np.ndarray, bias: np.ndarray | None):
        columns, width = weight.shape
        self.columns, self.width = columns, width
        self.deep, self.panels = -(-width // _DEPTH), -(-columns // _LANES)
        whole = np.zeros((self.panels * _LANES, self.deep * _DEPTH), np.int8)
        whole[:columns, :width] = weight
        parts = whole.reshape(self.panels, _LANES, self.deep, _DEPTH).transpose(0, 2, 1, 3)
        self.bytes = np.ascontiguousarray(parts)
        self.sums = whole.sum(1, dtype=np.int64)
        self.scales = np.zeros(self.panels * _LANES, np.float32)
        self.scales[:columns] = scales
        self.bias = np.zeros(self.panels * _LANES, np.float32)
        if bias is not None:
            self.bias[:columns] = bias
        self.known = _at(self.bytes), _at(self.bias)

    def times(self, out: int, x: int, rows: int, scale: float, zero: int) -> None:
        """out = x @ weight.T + bias; addresses of float32, x in bytes of this scale."""
        code, padded, (weights, bias) = _code(), self.deep * _DEPTH, self.known
        left = np.empty((rows, padded), np.uint8)
        code["quantized_rows"](_at(left), x, 1.0 / scale, zero, rows, self.width, padded,
                               rows * padded)
        scales = self.scales * np.float32(scale)
        offsets = (self.sums * zero).astype(np.int32)
        work = rows * padded * self.panels * _LANES // 16
        grain = max(2, _RANGE // max(rows * padded * _LANES, 1))
        code["byte_products"](out, _at(left), weights, _at(scales), _at(offsets),
                              bias, rows, self.columns, self.deep, self.panels, grain,
                              work)


def _at(array: np.ndarray) -> int:
    buffer: Any = array
    return addressof(c_char.from_buffer(buffer)) if array.size else 0
