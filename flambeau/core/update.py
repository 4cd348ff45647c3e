"""An update rule as a kernel: the rule is run once on symbolic elements and numbers.

A rule is plain Python from a tensor, a gradient and states to their new values. Numbers that are 0
or 1, flags and None are known while it is recorded, so it may branch on them; all other numbers
are given when the kernel runs. Arithmetic among numbers is done in float64, as Python does it.
"""

from __future__ import annotations

import functools

from . import dtype as dt
from . import expr as ex
from .expr import Expr
from .kernel import Fold, Kernel, Operand, Store
from .pace import Count


class Number:
    """A number given when the kernel runs; it is neither 0 nor 1."""

    def __init__(self, e: Expr):
        self.e = e

    def __eq__(self, other):
        if isinstance(other, int | float) and other in (0, 1):
            return False
        raise TypeError("a rule may only ask whether a number is 0 or 1")

    __hash__ = None  # type: ignore[assignment]

    def __pow__(self, exponent):
        if exponent == 0.5:
            return Number(ex.call("sqrt", self.e))
        return Number(self.e ** exponent)

    def __neg__(self):
        return Number(-self.e)


class Element:
    """One element of a tensor, with the methods of tensors that rules use."""

    def __init__(self, e: Expr):
        self.e = e

    def __neg__(self):
        return Element(-self.e)

    def __invert__(self):
        return Element(~self.e)

    def sqrt(self):
        return Element(ex.call("sqrt", self.e))

    def abs(self):
        return Element(ex.call("abs", self.e))

    def sign(self):
        zero, one = ex.const(0, self.e.dtype), ex.const(1, self.e.dtype)
        below = ex.where(self.e < 0, -one, self.e * zero)
        return Element(ex.where(self.e > 0, one, below))

    def maximum(self, other):
        return Element(ex.maximum(self.e, _like(other, self.e)))

    def minimum(self, other):
        return Element(ex.minimum(self.e, _like(other, self.e)))

    def clamp(self, least, most):
        return self.maximum(least).minimum(most)

    def where(self, condition, other):
        return Element(ex.where(condition.e, self.e, _like(other, self.e)))


def _like(value, e: Expr) -> Expr:
    """A value as an operand beside an element."""
    if isinstance(value, Element | Number):
        return ex.cast(value.e, e.dtype)
    return ex.const(value, e.dtype)


def _element_form(operator: str, swapped: bool):
    def form(self, other):
        if not isinstance(other, Element | Number | int | float):
            return NotImplemented
        pair = (self.e, _like(other, self.e))
        return Element(getattr(Expr, operator)(*(pair[::-1] if swapped else pair)))
    return form


def _number_form(operator: str, swapped: bool):
    def form(self, other):
        if isinstance(other, Number):
            other = other.e
        elif not isinstance(other, int | float):
            return NotImplemented
        else:
            other = ex.const(other, dt.float64)
        pair = (self.e, other)
        return Number(getattr(Expr, operator)(*(pair[::-1] if swapped else pair)))
    return form


for _name in ("add", "sub", "mul", "truediv"):
    for _kind, _form in ((Element, _element_form), (Number, _number_form)):
        setattr(_kind, f"__{_name}__", _form(f"__{_name}__", False))
        setattr(_kind, f"__r{_name}__", _form(f"__{_name}__", True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Element, f"__{_name}__", _element_form(f"__{_name}__", False))


def is_given(value) -> bool:
    """Whether a number is one the kernel is given, not one it is made for."""
    return isinstance(value, Count) or (
        isinstance(value, int | float) and value != 0 and value != 1)


@functools.lru_cache(maxsize=512)
def update_kernel(rule, states: int, fixed: tuple, dtype: dt.dtype, negated: bool) -> Kernel:
    """Of a rule: operands are the tensor, its gradient and its states, then all but the gradient
    again, to be written. `fixed` has the rule's keywords, with values or with Number's class where
    the kernel is given one; those are its params, in that order. Negated takes -g as the gradient.
    """
    reads = [Element(ex.input(k, dtype)) for k in range(2 + states)]
    given = iter(range(len(fixed)))
    numbers = {name: Number(ex.param(next(given), dt.float64)) if value is Number else value
               for name, value in fixed}
    p, g, *rest = reads
    results = rule(p, -g if negated else g, *rest, **numbers)
    if len(results) != 1 + states:
        raise TypeError(f"{rule.__qualname__} gives {len(results)} values for {1 + states} tensors")
    count = sum(value is Number for _, value in fixed)
    operands = (*(Operand(dtype, "1") for _ in reads),
                *(Operand(dtype, "1", True) for _ in results))
    stores = tuple(Store(len(reads) + k, _like(value, reads[0].e))
                   for k, value in enumerate(results))
    return Kernel(operands, (dt.float64,) * count, 1, 0, "kept", (("row", stores),), True)


def written_after(states: int) -> tuple[int, ...]:
    """Which of the tensors read each operand of an update kernel is."""
    return (*range(2 + states), 0, *range(2, 2 + states))


@functools.cache
def change_kernel(change, dtype: dt.dtype, params: int) -> Kernel:
    """Of a function of one element and numbers: reads a tensor and writes it again."""
    x = Element(ex.input(0, dtype))
    value = change(x, *[Number(ex.param(k, dt.float64)) for k in range(params)])
    return Kernel((Operand(dtype, "1"), Operand(dtype, "1", True)), (dt.float64,) * params, 1, 0,
                  "kept", (("row", (Store(1, _like(value, x.e)),)),), True)


def _squared(total: Expr, x: Expr) -> Expr:
    return total + x * x


def _summed(total: Expr, x: Expr) -> Expr:
    return total + ex.call("abs", x)


def _largest(total: Expr, x: Expr) -> Expr:
    return ex.maximum(total, ex.call("abs", x))


#: how an element enters a norm of this order, and how parts of a tensor join
NORMS = {
    1.0:          (_summed,  lambda a, b: a + b),
    2.0:          (_squared, lambda a, b: a + b),
    float("inf"): (_largest, ex.maximum),
}


@functools.cache
def norm_kernel(order: float, dtype: dt.dtype) -> Kernel:
    """Folds a tensor into one float64: the sum of squares, say, that a norm is made of."""
    step, merge = NORMS[order]
    wide = dt.float64
    x = ex.cast(ex.input(0, dtype), wide)
    mine, other = (ex.make("state", (), k, wide) for k in range(2))
    fold = Fold((ex.const(0, wide),), (step(mine, x),), (merge(mine, other),))
    result = Store(1, ex.make("fold", (), 0, wide))
    return Kernel((Operand(dtype, "1"), Operand(wide, "0", True)), (), 1, 1, "reduced",
                  (("fold", fold), ("row", (result,))), True)
