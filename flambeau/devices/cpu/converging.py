"""Special functions of two arguments that are summed up: see assembly/converging.py."""

from __future__ import annotations

import functools

from .foundry import machine_code

NAMES = ("lower_gamma_ratio", "upper_gamma_ratio", "hurwitz_zeta")


@functools.cache
def converging(name: str, dtype: str):
    """The callable (out, x, y, n) of arrays that lie one after the other."""
    return machine_code("converging", ("converging",), name, dtype)["converging"]
