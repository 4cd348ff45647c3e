"""Every family of the CPU's routines, loaded for the sake of their registrations."""

from __future__ import annotations

from . import special
from . import counting, scans, sorting
from . import fourier, lapack
from .routines import NATIVE, ROUTINES

__all__ = ["NATIVE", "ROUTINES", "counting", "scans", "sorting", "special"]
