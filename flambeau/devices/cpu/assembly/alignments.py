"""Connectionist temporal classification: sums over all alignments, in logarithms.

Places are labels with blanks between and around them. A row has a number for each place, as many as
fill whole vectors, and before and after them a vector of minus infinity, so that neighbours are
loads beside.
"""

from __future__ import annotations

import math

from ....core import expr
from .factors import ELEMENTS
from .writer import Function, Value, wide

LANES = 8


def _sum(a, b, c):
    """log of a sum of exponentials, minus infinity being nothing."""
    largest = expr.maximum(a, expr.maximum(b, c))
    shift = expr.where(largest == -math.inf, 0.0, largest)
    total = sum(expr.call("exp", x - shift) for x in (a, b, c))
    return expr.call("log", total) + shift


def _passing(alpha, beta, seen, total):
    return expr.call("exp", alpha + beta - seen - total)


class _Writer:
    """What the parts of the function have in common: of one sequence, its places and rows."""

    def __init__(self, dtype: str):
        self.element = ELEMENTS[dtype]
        self.vector = wide(self.element, LANES)
        self.f = f = Function(
            f"alignments_{dtype}", "ptr out, ptr slopes, ptr x, ptr targets, ptr inputs, "
            "ptr lengths, ptr spare, ptr labels, i64 steps, i64 count, i64 classes, i64 width, "
            "i64 stride, i64 blank, i64 back, i64 work")
        self.nothing = f.const(self.element, -math.inf)
        self.skip, self.seen, self.after, self.here, self.passing, self.alpha = (
            f.spare.at(self.element, f.stride * k) for k in range(6))

    def row(self, start: Value, s) -> Value:
        """Where the places of a row are, from s on."""
        return start.at(self.element, self.f.const("i64", s) + LANES)

    def load(self, start: Value, s) -> Value:
        return self.row(start, s).load(self.vector)

    def cleared(self, start: Value) -> None:
        with self.f.each(0, self.f.stride) as s:
            start.store(self.nothing, s)

    def probabilities(self, n: Value, t: Value) -> Value:
        f = self.f
        return f.x.at(self.element, (t * f.count + n) * f.classes)

    def see(self, n: Value, t: Value) -> None:
        """The log-probabilities of places at a time."""
        f, here = self.f, self.probabilities(n, t)
        with f.each(0, f.width) as s:
            self.row(self.seen, s).store(here.load(self.element, f.labels.load("i64", s)))

    def places(self, n: Value) -> None:
        """Labels of a sequence, and where a place may be reached from two before it."""
        f, most = self.f, (self.f.width - 1) / 2
        self.cleared(self.skip)
        self.cleared(self.seen)
        length, targets = f.lengths.load("i64", n), f.targets.at("i64", n * most)
        with f.each(0, f.width) as s:
            f.labels.store(f.blank, s)
        with f.each(0, length) as k:
            label, s = targets.load("i64", k), k * 2 + 1
            f.labels.store(label, s)
            before = f.labels.load("i64", (k > 0).pick(s - 2, s - 1))
            may = (label != f.blank) & (label != before)
            self.row(self.skip, s).store(may.pick(f.const(self.element, 0), self.nothing))


def build(dtype: str) -> list[Function]:
    """alignments_<dtype>(out, slopes, x, targets, inputs, lengths, spare, labels, ...)

    x has `steps` times `count` sequences times `classes`; targets have (width - 1) / 2 labels each.
    There is room to `spare` for 5 rows of `stride` and one for each step, and in `labels` for
    `width`. `out` is minus the logarithm of what all alignments have together; with `back` slopes
    are its gradients.
    """
    w = _Writer(dtype)
    f = w.f
    with f.each(0, f.count) as n:
        inputs, length = f.inputs.load("i64", n), f.lengths.load("i64", n)
        w.places(n)
        _beginnings(w, n, inputs)
        total = f.var(w.element, w.nothing)
        with f.when(inputs > 0) as some:
            last = w.alpha.at(w.element, (inputs - 1) * f.stride)
            end = w.row(last, length * 2).load(w.element)
            other = (length > 0).pick(w.row(last, length * 2 - 1).load(w.element), w.nothing)
            total.set(f.math(_sum, end, other, w.nothing))
        with some.otherwise():
            total.set((length == 0).pick(f.const(w.element, 0), w.nothing))
        f.out.store(-total(), n)
        with f.when(f.back != 0):
            _ends(w, n, inputs, length, total())
    return [f]


def _beginnings(w: _Writer, n: Value, inputs: Value) -> None:
    """alpha: of all beginnings of alignments that are at a place at a time."""
    f = w.f
    with f.each(0, inputs) as t:
        here = w.alpha.at(w.element, t * f.stride)
        w.see(n, t)
        w.cleared(here)
        two = (f.width < 2).pick(f.width, f.const("i64", 2))
        with f.when(t == 0) as first, f.each(0, two) as s:
            w.row(here, s).store(w.row(w.seen, s).load(w.element))
        with first.otherwise():
            before = w.alpha.at(w.element, (t - 1) * f.stride)
            with f.each(0, f.width, LANES) as s:
                found = f.math(_sum, w.load(before, s), w.load(before, s - 1),
                               w.load(before, s - 2) + w.load(w.skip, s))
                w.row(here, s).store(found + w.load(w.seen, s))


def _ends(w: _Writer, n: Value, inputs: Value, length: Value, total: Value) -> None:
    """beta: of all ends of alignments; and with them the gradients, from the last step on."""
    f = w.f
    after, here = w.after, w.here
    w.cleared(after)
    w.cleared(here)
    zero = f.const(w.element, 0)
    with f.each(0, f.steps) as turn:
        t = f.steps - 1 - turn
        slopes = f.slopes.at(w.element, (t * f.count + n) * f.classes)
        x = w.probabilities(n, t)
        with f.when(t < inputs) as counts:
            w.see(n, t)
            with f.when(t == inputs - 1) as last:
                w.row(here, length * 2).store(w.row(w.seen, length * 2).load(w.element))
                with f.when(length > 0):
                    s = length * 2 - 1
                    w.row(here, s).store(w.row(w.seen, s).load(w.element))
            with last.otherwise(), f.each(0, f.width, LANES) as s:
                found = f.math(_sum, w.load(after, s), w.load(after, s + 1),
                               w.load(after, s + 2) + w.load(w.skip, s + 2))
                w.row(here, s).store(found + w.load(w.seen, s))
            with f.each(0, f.classes) as c:
                slopes.store(f.math(_exp, x.load(w.element, c)), c)
            alpha = w.alpha.at(w.element, t * f.stride)
            with f.each(0, f.width, LANES) as s:
                w.row(after, s).store(w.load(here, s))
                w.row(w.passing, s).store(f.math(
                    _passing, w.load(alpha, s), w.load(here, s), w.load(w.seen, s),
                    total.spread(LANES)))
            with f.each(0, length * 2 + 1) as s:
                label = f.labels.load("i64", s)
                slopes.store(slopes.load(w.element, label)
                             - w.row(w.passing, s).load(w.element), label)
        with counts.otherwise(), f.each(0, f.classes) as c:
            slopes.store(zero, c)


def _exp(x):
    return expr.call("exp", x)
