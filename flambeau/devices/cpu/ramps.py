"""Numbers in even steps, written by one native call: what arange and linspace are made of."""

from __future__ import annotations

import functools

from .foundry import machine_code


@functools.cache
def whole():
    """ramp(to, start, step, count): start, start + step, ... as int64."""
    return machine_code("ramps", ("whole_ramp",), "whole", "int64")["whole_ramp"]


@functools.cache
def counted(dtype: str):
    """ramp(to, start, step, first, even, end): see assembly/ramps.py."""
    name = f"counted_ramp_{dtype}"
    return machine_code("ramps", (name,), "counted", dtype)[name]


@functools.cache
def even(dtype: str):
    """ramp(to, start, end, count): two or more numbers from start to end, both included."""
    name = f"even_ramp_{dtype}"
    return machine_code("ramps", (name,), "even", dtype)[name]


@functools.cache
def triangle():
    """triangle(to, rows, columns, offset, lower, count): see assembly/ramps.py."""
    return machine_code("ramps", ("triangle_places",), "triangle", "int64")["triangle_places"]
