"""Sizes that may vary: a model is recorded at several sizes, and the graphs are laid together.

A number that is the same in all of them stays a number; one that is not is explained as a product
or a sum of the sizes that were varied, or as half of one. What cannot be explained is known to
vary, and is an error only where the number is needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flambeau
from flambeau import Tensor

from .graph import Extent, Graph, Node, Value, exact, mapped, values_of
from .record import NotRecorded, every_op, recorded, tensors_of


class Varies(NotRecorded):
    """Something that differs from size to size, and cannot be said in terms of the sizes."""


def record_varying(function: Callable, args: tuple, kwargs: dict, names: list[str],
                   axes: dict[str, list[tuple[int, int]]],
                   knows: Callable[[str], bool] = every_op) -> Graph:
    """The graph of a call, for every size of some axes. axes: symbol -> [(input, axis), ...]"""
    inputs: Any = tensors_of((args, kwargs))
    if not axes:
        graph = recorded(function, args, kwargs, names, knows)
        return _checked(graph, function, args, kwargs, names, knows)
    sizes = {}
    for symbol, places in axes.items():
        found = {inputs[i].shape[axis] for i, axis in places}
        if len(found) > 1:
            raise Varies(f"axes that are called {symbol} have sizes {sorted(found)}: axes of one "
                         "name are of one size")
        sizes[symbol] = found.pop()

    def together(less: bool) -> Graph:
        graphs, trials = [], trials_of(sizes, less)
        for trial in trials:
            given, named = _replaced((args, kwargs), [_resized(x, i, axes, trial)
                                                      for i, x in enumerate(inputs)])
            graphs.append(recorded(function, given, named, names, knows))
            if len(graphs) == 1:
                _checked(graphs[0], function, given, named, names, knows)
        return Together(graphs, trials).graph

    try:
        graph = together(less=True)
    except NotRecorded:
        raise
    except (RuntimeError, ValueError, IndexError):
        # The values of an input, lengths say, may not fit in less.
        graph = together(less=False)
    graph.symbols = {s: places[0] for s, places in axes.items()}
    return graph


def _checked(graph: Graph, function, args, kwargs, names, knows) -> Graph:
    """The graph, if what is constant in it does not depend on the values of the inputs.

    Constants come from Python, which may have looked at values. So the model is run once more on
    the same elements in another order, and has to do the same.
    """
    if graph.constants and graph.inputs:
        Unmoved([graph, _again(function, (args, kwargs), names, knows)], [{}, {}])
    return graph


def _again(function, structure, names, knows) -> Graph:
    """The graph of the same call with other values; integers stay where another order is refused:
    lengths, say, that have to fall."""

    def stirred(x: Any, whole: bool) -> Any:
        real = x.dtype.is_floating_point
        turned = x.flip(tuple(range(x.dim()))) if x.dim() and (real or whole) else x
        return turned * 0.75 if real else turned

    for whole in (True, False):
        given, named = _replaced(structure, [stirred(x, whole) for x in tensors_of(structure)])
        try:
            return recorded(function, given, named, names, knows)
        except (RuntimeError, ValueError, IndexError) as error:
            if not whole or isinstance(error, NotRecorded):
                raise
    raise AssertionError("one of the two trials returns or raises")


def _replaced(structure, tensors: list[Tensor]):
    """The same arguments with other tensors."""
    following = iter(tensors)
    return mapped(structure, lambda a: next(following) if isinstance(a, Tensor) else a)


#: how many other sizes of an axis are tried: enough to tell n from n // 2
OTHERS = 3


def trials_of(sizes: dict[str, int], less: bool) -> list[dict[str, int]]:
    """The sizes given, each one changed alone to several others, and all changed at once."""
    near = {symbol: _sizes_near(n, less) for symbol, n in sizes.items()}
    base = {symbol: found[0] for symbol, found in near.items()}
    return [base, *({**base, s: n} for s, found in near.items() for n in found[1:]),
            {s: found[1] for s, found in near.items()}]


def _sizes_near(n: int, less: bool) -> list[int]:
    """A size and others that are not special: neither 0 nor 1."""
    if less and n > OTHERS + 1:
        return [n - k for k in range(OTHERS + 1)]
    return [max(n, 2) + k for k in range(OTHERS + 1)]


def _resized(x: Tensor, number: int, axes, sizes) -> Tensor:
    """The input with other sizes, made of elements that it has."""
    for symbol, places in axes.items():
        for i, axis in places:
            if i == number and x.shape[axis] != sizes[symbol]:
                index = flambeau.arange(sizes[symbol]).clamp(max=x.shape[axis] - 1)
                x = x.index_select(axis, index)
    return x


class Together:
    """Graphs of one model at several sizes, as one."""

    def __init__(self, graphs: list[Graph], trials: list[dict[str, int]]):
        self.graphs, self.trials = graphs, trials
        self.symbols = list(trials[0])
        first = graphs[0]
        lengths = {len(g.nodes) for g in graphs}
        for values in zip(*(g.inputs for g in graphs), strict=True):
            self._shape(values, "an input")
        for nodes in zip(*(g.nodes for g in graphs), strict=False):
            self._node(nodes)
        if len(lengths) > 1:
            raise Varies(f"the model makes {sorted(lengths)} op calls at sizes "
                         f"{self._said()}: the number of steps depends on a size that varies")
        first.outputs = self._same([g.outputs for g in graphs], "the outputs")
        self.graph = first

    def _said(self) -> str:
        return "; ".join(", ".join(f"{s}={n}" for s, n in t.items()) for t in self.trials)

    def _node(self, nodes: tuple[Node, ...]) -> None:
        if len({n.op for n in nodes}) > 1:
            raise Varies(f"the model calls {' or '.join(sorted({n.op for n in nodes}))}, depending "
                         f"on sizes that vary ({self._said()})")
        first = nodes[0]
        what = f"an argument of {first.op}"
        first.args = self._same([n.args for n in nodes], what)
        first.kwargs = self._same([n.kwargs for n in nodes], what)
        first.result = self._same([n.result for n in nodes], f"a result of {first.op}")

    def _same(self, parts: list[Any], what: str):
        first = parts[0]
        if isinstance(first, Value):
            self._shape(parts, what)
            if first.data is not None:
                self._constant(parts, what)
            return first
        if isinstance(first, (tuple, list)):
            if len({len(p) for p in parts}) > 1:
                raise Varies(f"{what} has {sorted({len(p) for p in parts})} parts, depending on "
                             f"sizes that vary ({self._said()})")
            made = [self._same(list(each), what) for each in zip(*parts, strict=True)]
            return tuple(made) if isinstance(first, tuple) else made
        if isinstance(first, dict):
            return {k: self._same([p[k] for p in parts], what) for k in first}
        if isinstance(first, slice):
            return slice(*[self._same([getattr(p, end) for p in parts], what)
                           for end in ("start", "stop", "step")])
        if isinstance(first, int) and not isinstance(first, bool):
            return self._number(parts, what)
        if hasattr(first, "tobytes"):
            if len({p.tobytes() for p in parts}) > 1:
                raise Varies(f"{what} is an array that Python made of values, and differs "
                             f"({self._said()})")
            return first
        if any(p != first and not (p != p and first != first) for p in parts):
            raise Varies(f"{what} is {first!r} or {next(p for p in parts if p != first)!r}, "
                         f"depending on sizes that vary ({self._said()})")
        return first

    def _shape(self, values, what: str) -> None:
        if len({v.rank for v in values}) > 1:
            raise Varies(f"{what} has another number of dimensions, depending on sizes that vary")
        values[0].shape = tuple([self._number(list(each), f"the shape of {what}") for each in
                                 zip(*([*v.shape] for v in values), strict=True)])

    def _constant(self, values, what: str) -> None:
        first = values[0].data
        for v in values[1:]:
            if v.data is not first and (v.data.shape != first.shape or not flambeau.equal(
                    v.data.nan_to_num(), first.nan_to_num())):
                raise Varies(f"{what} is a constant that depends on sizes that vary "
                             f"({self._said()}): make it from the inputs by ops, or leave that "
                             "axis fixed")

    def _number(self, numbers: list, what: str):
        first = numbers[0]
        if isinstance(first, Extent) or all(n == first for n in numbers):
            return first
        products = [((names, Fraction(first, math.prod(self.trials[0][s] for s in names))),)
                    for names in self._products()]
        # What holds without rounding comes first: 5 n // 6 is n - 1 only up to n = 6.
        for terms in (*products, self._sum(numbers)):
            if all(exact(terms, t) == n for t, n in zip(self.trials, numbers, strict=True)):
                return Extent(terms, first)
        for terms in (*self._halves(numbers), *products):
            if self._explains(terms, numbers):
                return Extent(terms, first)
        return Extent((), first, tuple(numbers))

    def _products(self):
        for count in range(1, len(self.symbols) + 1):
            yield from itertools.combinations(self.symbols, count)
        yield from ((s, s) for s in self.symbols)

    def _sum(self, numbers: list[int]):
        """Coefficients read off the trials in which one size was changed."""
        base = self.trials[0]
        rates = [Fraction(numbers[1 + OTHERS * k] - numbers[0],
                          self.trials[1 + OTHERS * k][s] - base[s])
                 for k, s in enumerate(self.symbols)]
        rest = numbers[0] - sum(r * base[s] for r, s in zip(rates, self.symbols, strict=True))
        terms = [((s,), r) for s, r in zip(self.symbols, rates, strict=True) if r]
        return (*terms, ((), rest)) if rest else tuple(terms)

    def _halves(self, numbers: list[int]):
        """(n + c) // 2 of one size, which is what a convolution in steps of two leaves of it."""
        for s in self.symbols:
            for odd in (0, 1):
                c = 2 * numbers[0] - self.trials[0][s] + odd
                yield (((s,), Fraction(1, 2)), ((), Fraction(c, 2)))

    def _explains(self, terms, numbers) -> bool:
        extent = Extent(terms, numbers[0])
        return all(extent.at(t) == n for t, n in zip(self.trials, numbers, strict=True))


class Unmoved(Together):
    """Graphs of one model on other values: nothing in them may differ."""

    def _said(self) -> str:
        return "the same model, other values"

    def _number(self, numbers: list, what: str):
        if numbers[0] != numbers[1]:
            raise Varies(f"{what} is {numbers[0]} or {numbers[1]}, depending on the values of the "
                         "inputs")
        return numbers[0]

    def _constant(self, values, what: str) -> None:
        one, other = (v.data.nan_to_num() for v in values)
        if one.shape != other.shape or not flambeau.equal(one, other):
            raise Varies(f"{what} is a constant of the graph, but depends on the values of the "
                         "inputs, or on chance: Python reads a value there, or draws one")


def is_static(structure) -> bool:
    """Whether no size in it varies."""
    found: list[Extent] = []
    mapped(structure, lambda a: found.append(a) if isinstance(a, Extent) else None)
    return not found and not any(isinstance(n, Extent) for v in values_of(structure)
                                 for n in v.shape)
