"""Every family of the CPU's routines, loaded for the sake of their registrations."""

from __future__ import annotations

from . import (
           convolution,
           counting,
           ctc,
           fourier,
           interpolation,
           lapack,
           orthogonal,
           pooling,
           scans,
           sorting,
           special,
)
from .routines import NATIVE, ROUTINES

__all__ = ["NATIVE", "ROUTINES", "convolution", "counting", "ctc", "fourier",
           "interpolation", "lapack", "orthogonal", "pooling", "scans", "sorting", "special"]
