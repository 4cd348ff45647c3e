"""Every family of the CPU's routines, loaded for the sake of their registrations."""

from __future__ import annotations

from . import bessel, special
from . import counting, scans, sorting
from . import fourier, lapack
from . import ctc
from . import convolution, interpolation, pooling
from .routines import NATIVE, ROUTINES

__all__ = ["NATIVE", "ROUTINES", "bessel", "convolution", "counting", "ctc", "interpolation", "pooling",
           "scans", "sorting", "special"]
