"""Whether rows of elements are equal, or their elements among others: one native call each."""

from __future__ import annotations

import functools

from .foundry import machine_code

#: dtypes whose elements can be compared as they lie in memory
KINDS = frozenset(("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "uint16",
                   "uint32", "uint64", "bool"))


@functools.cache
def equal(dtype: str):
    """The callable (x, y, count): 1 if all elements are equal, else 0."""
    name = f"equal_{dtype}"
    return machine_code("likeness", (name,), dtype)[name]


@functools.cache
def among(dtype: str):
    """The callable (out, x, others, count, absent, n): whether each is one of the others, or not
    one of them."""
    name = f"among_{dtype}"
    return machine_code("membership", (name,), "among", dtype)[name]


@functools.cache
def fractions(dtype: str):
    """The callable (x, n): 1 if all are in [0, 1], else 0."""
    name = f"fractions_{dtype}"
    return machine_code("membership", (name,), "fractions", dtype)[name]
