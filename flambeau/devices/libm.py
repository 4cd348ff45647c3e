"""The C library's functions that kernels call, one lane at a time: name -> number of arguments."""

from __future__ import annotations

LIBM = {
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "sin": 1,
    "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1,
    "asinh": 1, "acosh": 1, "atanh": 1, "erf": 1, "erfc": 1, "lgamma": 1, "pow": 2, "atan2": 2,
    "fmod": 2, "hypot": 2, "nextafter": 2,
}
