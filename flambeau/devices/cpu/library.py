"""Every family of the CPU's routines, loaded for the sake of their registrations."""

from __future__ import annotations

from .routines import NATIVE, ROUTINES

__all__ = ["NATIVE", "ROUTINES"]
