"""Bessel's functions and orthogonal polynomials: functions that have no derivative here."""

from __future__ import annotations

import math

from ..core import expr as e
from ..core.expr import where
from .declare import FLOAT, T, composite, library, pointwise
from .refusal import accepts
from .special import SPECIAL, _as_tensors, _floating_pair, _real, _undefined_at_infinity


@library(method=False, function_form=False)
def polynomial(input: T, n: T, family):
    """A polynomial of degree n."""
    return _floating_pair(family, input, n)


def _no_derivative(g, family):
    raise RuntimeError(f"derivative for aten::special_{family} is not implemented")


polynomial.gradient(_no_derivative)


def _polynomial_op(family: str):
    def call(input, n):
        return polynomial(*_as_tensors(input, n), family)

    name, _, letter = family.rpartition("_")
    call.__name__ = f"{name}_polynomial_{letter}"
    call.__doc__ = f"The {name.replace('_', ' ')} polynomial {letter.upper()} of degree n."
    return composite(where=SPECIAL, method=False)(call)


for _family in ("chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w",
                "shifted_chebyshev_t", "shifted_chebyshev_u", "shifted_chebyshev_v",
                "shifted_chebyshev_w", "hermite_h", "hermite_he", "laguerre_l", "legendre_p"):
    _polynomial_op(_family)


def _undifferentiated(op) -> None:
    """Going back through these is refused, as torch refuses it."""
    def formula(g):
        raise RuntimeError(f"derivative for aten::special_{op.name} is not implemented")
    op.gradient(formula)


def _bessel_op(name: str, function: str, words: str) -> None:
    def body(x):
        return e.call(function, x)

    body.__name__, body.__doc__ = name, words
    _undifferentiated(pointwise(FLOAT, where=SPECIAL, inplace=False, method=False,
                                check=accepts(f"{name}_cpu", "biuf"))(body))


for _name, _function, _words in (
    ("airy_ai",    "airy", "Airy's function Ai."),
    ("bessel_j0",  "j0",   "The Bessel function of the first kind, of order 0."),
    ("bessel_j1",  "j1",   "The Bessel function of the first kind, of order 1."),
    ("bessel_y0",  "y0",   "The Bessel function of the second kind, of order 0."),
    ("bessel_y1",  "y1",   "The Bessel function of the second kind, of order 1."),
    ("modified_bessel_k0", "k0", "The modified Bessel function of the second kind, of order 0."),
    ("modified_bessel_k1", "k1", "The modified Bessel function of the second kind, of order 1."),
    ("scaled_modified_bessel_k0", "k0e", "exp(x) times modified_bessel_k0."),
    ("scaled_modified_bessel_k1", "k1e", "exp(x) times modified_bessel_k1."),
):
    _bessel_op(_name, _function, _words)


@pointwise(FLOAT, where=SPECIAL, inplace=False, check=_real("modified_bessel_i0"))
def modified_bessel_i0(x):
    """The modified Bessel function of the first kind, of order 0."""
    return _undefined_at_infinity(x, e.call("i0", x))


@pointwise(FLOAT, where=SPECIAL, inplace=False, check=_real("modified_bessel_i1"))
def modified_bessel_i1(x):
    """The modified Bessel function of the first kind, of order 1."""
    return _undefined_at_infinity(x, e.call("i1", x))


@pointwise(FLOAT, where=SPECIAL, inplace=False, check=_real("spherical_bessel_j0"))
def spherical_bessel_j0(x):
    """sin(x) / x, and 1 at 0"""
    value = where(x == 0, e.const(1, x.dtype), e.call("sin", x) / x)
    return where(e.call("abs", x) == math.inf, e.const(0, x.dtype), value)


for _op in (modified_bessel_i0, modified_bessel_i1, spherical_bessel_j0):
    _undifferentiated(_op)
