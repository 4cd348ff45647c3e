"""Inverses and factors of small matrices, by one native call: LAPACK from generated code."""

from __future__ import annotations

import functools

from .blas import address
from .bridge import jit
from .foundry import machine_code

#: dtypes that there is code for
KINDS = ("float32", "float64")
#: rows up to which one thread is sooner done than numpy with several
MOST = 512


@functools.cache
def inverse(dtype: str):
    """The callable (out, infos, x, two, pivots, n, count, work): how many had no inverse."""
    jit().publish("flambeau_dgesv", address("dgesv_"))
    name = f"inverse_{dtype}"
    return machine_code("inverse", (name,), dtype)[name]


@functools.cache
def cholesky(dtype: str):
    """The callable (out, infos, x, one, upper, n, count, work): how many had no factor."""
    jit().publish("flambeau_dpotrf", address("dpotrf_"))
    name = f"cholesky_{dtype}"
    return machine_code("factors", (name,), "cholesky", dtype)[name]


@functools.cache
def triangle(dtype: str):
    """The callable that substitutes, see assembly/factors.py."""
    name = f"triangle_{dtype}"
    return machine_code("factors", (name,), "triangle", dtype)[name]
