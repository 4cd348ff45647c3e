"""The CPU's own abilities."""

from functools import cache

__all__ = ["get_cpu_capability"]

#: name of an instruction set -> the flag that tells of it, best first
_SETS = {"AVX512": "avx512f", "AVX2": "avx2"}


@cache
def get_cpu_capability():
    """The widest instruction set there is: AVX512, AVX2 or DEFAULT."""
    try:
        with open("/proc/cpuinfo") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "").split()
    except OSError:
        return "DEFAULT"
    return next((name for name, flag in _SETS.items() if flag in flags), "DEFAULT")
