"""Engines for quantized kernels, kept for programs that set one."""

__all__ = ["engine", "supported_engines"]

engine = "none"
supported_engines = ["none"]
