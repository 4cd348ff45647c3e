"""Complex numbers: parts, angles, and views of the one as the other."""

from __future__ import annotations

import math

from ..core import dtype as dt
from ..core import expr as e
from ..core.dtype import COMPLEX
from ..core.expr import where
from .declare import FLOAT, REAL, SAME, composite, engine, pointwise, view
from .refusal import spoken, tensors
from .trigonometry import cos, sin

# -- parts -------------------------------------------------------------------------------------


def _itself(x):
    return x


def _part(x, offset: int):
    """The view of one of the two floats each element is."""
    return x.shape, tuple(2 * s for s in x.strides), offset, x.dtype.to_real()


@view(otherwise=_itself, method=False, backward="SelectBackward0")
def real(x):
    """The real parts; a view, or the tensor itself if it is real"""
    return None if x.dtype.kind != "c" else _part(x, 0)


@real.gradient
def real(g, x_meta):
    return engine.cast(g, x_meta.dtype)


@view(method=False, backward="SelectBackward0")
def imag(x):
    """The imaginary parts; a view"""
    if x.dtype.kind != "c":
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return _part(x, 1)


@imag.gradient
def imag(g, x_meta):
    return engine.cast(g, x_meta.dtype) * 1j


@view(method=False)
def view_as_real(x):
    """Complex elements as pairs of floats; a view"""
    if x.dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return (*x.shape, 2), (*(2 * s for s in x.strides), 1), 0, x.dtype.to_real()


@view_as_real.gradient
def view_as_real(g):
    return view_as_complex(engine.contiguous(g))


@view(method=False)
def view_as_complex(x):
    """Pairs of floats as complex elements; a view"""
    if x.dtype not in (dt.float16, dt.float32, dt.float64):
        raise RuntimeError("view_as_complex is only supported for half, float and double tensors, "
                           f"but got a tensor of scalar type: {spoken(x.dtype)}")
    if not x.rank:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if x.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if x.strides[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for s, n in zip(x.strides[:-1], x.shape[:-1], strict=True) if n > 1):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    return x.shape[:-1], tuple(s // 2 for s in x.strides[:-1]), 0, x.dtype.to_complex()


@view_as_complex.gradient
def view_as_complex(g):
    return view_as_real(g)


# -- numbers -----------------------------------------------------------------------------------


@pointwise(SAME)
def conj_physical(x):
    """The complex conjugate."""
    return e.conj(x)


@conj_physical.gradient
def conj_physical(g):
    return e.conj(g)


@composite(backward="ConjBackward0")
def conj(input):
    """The complex conjugate; a real tensor itself"""
    return conj_physical(input) if input.dtype.kind == "c" else input


#: what the parts of complex numbers can be
_PARTS = {dt.float16, dt.float32, dt.float64}


def _two_floats(operands, attributes) -> None:
    first, second = (o.dtype for o in operands)
    if not {first, second} <= _PARTS:
        raise RuntimeError("Expected both inputs to be Half, Float or Double tensors but got "
                           f"{spoken(first)} and {spoken(second)}")
    if first is not second:
        raise RuntimeError(f"Expected object of scalar type {spoken(first)} but got scalar type "
                           f"{spoken(second)} for second argument")


@pointwise(COMPLEX, method=False, inplace=False,
           check=tensors("complex", "real", "imag", then=_two_floats))
def complex(real, imag):
    """real + 1j * imag"""
    return e.complex_of(real, imag)


@complex.gradient
def complex(g):
    return lambda: e.real(g), lambda: e.imag(g)


@pointwise(COMPLEX, method=False, inplace=False,
           check=tensors("polar", "abs", "angle", then=_two_floats))
def polar(abs, angle):
    """abs * exp(1j * angle)"""
    return e.complex_of(abs * cos(angle), abs * sin(angle))


@pointwise(REAL, method=False, function_form=False, inplace=False, backward="AngleBackward0",
           said="angle")
def angle_of(x):
    """The angle of a number to the positive axis."""
    if x.dtype.kind == "c":
        return e.call("atan2", e.imag(x), e.real(x))
    return where(e.isnan(x), x, where(x < 0, e.const(math.pi, x.dtype), e.const(0, x.dtype)))


@angle_of.gradient
def angle_of(g, x):
    if x.dtype.kind != "c":
        return None
    a, b = e.real(x), e.imag(x)
    size = a * a + b * b
    zero = e.const(0, a.dtype)
    return e.complex_of(where(size == 0, zero, -g * b / size), where(size == 0, zero, g * a / size))


@pointwise(FLOAT, method=False, function_form=False, inplace=False)
def to_float(x):
    """The element in floating point."""
    return x


@composite
def angle(input):
    """The angle of a number to the positive axis, in radians."""
    return angle_of(input if input.dtype.kind in "fc" else to_float(input))
