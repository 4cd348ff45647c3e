"""A model as a graph of op calls: what every exporter starts from.

    inputs ──> nodes (op, arguments, results) ──> outputs
                 ^ weights, by their names in state_dict; constants

Sizes that may vary are Extents: sums of products of named symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import flambeau


def exact(terms, sizes: dict[str, int]) -> Fraction:
    """A sum of products, before it is rounded down."""
    return sum((c * math.prod(sizes[s] for s in names) for names, c in terms), Fraction(0))


@dataclass(frozen=True)
class Extent:
    """A size that depends on sizes of the inputs: a sum of products, rounded down.

    `example` is what it was when it was seen. One that could not be explained has no terms, and
    `seen` is what it was at each trial.
    """

    terms: tuple[tuple[tuple[str, ...], Fraction], ...]
    example: int
    seen: tuple[int, ...] = ()

    def at(self, sizes: dict[str, int]) -> int:
        """The size, given those of the symbols."""
        if self.seen:
            raise RuntimeError(f"a size that was {self.seen} at several sizes of the inputs is "
                               "needed, and is neither a product nor a sum of them")
        return math.floor(exact(self.terms, sizes))

    def symbol(self) -> str | None:
        """The symbol, if the size is just that."""
        if len(self.terms) == 1 and len(self.terms[0][0]) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0][0]
        return None

    def __str__(self) -> str:
        if self.seen:
            return f"varies_{'_'.join(map(str, self.seen))}"
        return " + ".join("*".join([*([] if c == 1 and names else [str(c)]), *names])
                          for names, c in self.terms)


def extent_of_symbol(name: str, example: int) -> Extent:
    return Extent((((name,), Fraction(1)),), example)


Size = int | Extent


def example(n: Size) -> int:
    """The number that a size was when the graph was made."""
    return n.example if isinstance(n, Extent) else n


@dataclass(eq=False)
class Value:
    """A tensor of the graph."""

    name: str
    dtype: flambeau.dtype
    shape: tuple[Size, ...]
    data: flambeau.Tensor | None = None     # of weights and constants

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape it had when the graph was made."""
        return tuple(map(example, self.shape))

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(eq=False)
class Node:
    """One op call. `result` is a Value, or a tuple of them and plain values.

    `into` is the argument that the result replaces, if the call changed it in place.
    """

    op: str
    args: tuple
    kwargs: dict[str, Any]
    result: Any
    into: Value | None = None
    shares: tuple[Value, ...] = ()  # other names of what it changed in place

    @property
    def outputs(self) -> list[Value]:
        return list(values_of(self.result))

    @property
    def inputs(self) -> list[Value]:
        return [*values_of(self.args), *values_of(tuple(self.kwargs.values()))]

    def __str__(self) -> str:
        given = [_shown(a) for a in self.args]
        given += [f"{k}={_shown(v)}" for k, v in self.kwargs.items()]
        return f"{_shown(self.result)} = {self.op}({', '.join(given)})"


@dataclass
class Graph:
    """Op calls in order, between inputs and outputs."""

    name: str
    inputs: list[Value]
    outputs: Any                            # Values in tuples, lists and dicts, as they were
    nodes: list[Node]
    weights: dict[str, Value]               # by their names in state_dict
    constants: dict[str, Value]
    structure: Any = None                   # how inputs lie in the arguments
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)  # -> (input, axis)
    parameters: frozenset[str] = frozenset()
    aliases: dict[str, str] = field(default_factory=dict)   # other names of weights

    @property
    def output_values(self) -> list[Value]:
        return list(values_of(self.outputs))

    def without_dead_code(self) -> Graph:
        """The same graph without nodes that nothing needs."""
        needed = {id(v) for v in self.output_values}
        kept = []
        for node in reversed(self.nodes):
            if node.into is not None or any(id(v) in needed for v in node.outputs):
                needed.update(id(v) for v in node.inputs)
                kept.append(node)
        self.nodes = kept[::-1]
        self.constants = {k: v for k, v in self.constants.items() if id(v) in needed}
        return self

    def __str__(self) -> str:
        given = ", ".join(f"{v}: {v.dtype} [{', '.join(map(str, v.shape))}]" for v in self.inputs)
        lines = [f"graph {self.name}({given}):", *(f"    {n}" for n in self.nodes),
                 f"    return {_shown(self.outputs)}"]
        return "\n".join(lines)


def _shown(value) -> str:
    if isinstance(value, (Value, Extent)):
        return str(value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)


def values_of(structure) -> Iterator[Value]:
    """The Values in nested tuples, lists, dicts and slices."""
    if isinstance(structure, Value):
        yield structure
    elif isinstance(structure, (tuple, list)):
        for part in structure:
            yield from values_of(part)
    elif isinstance(structure, dict):
        for part in structure.values():
            yield from values_of(part)
    elif isinstance(structure, slice):
        yield from values_of((structure.start, structure.stop, structure.step))


def mapped(structure, change: Callable[[Any], Any]):
    """The same nesting with every leaf changed; named tuples become tuples."""
    if isinstance(structure, tuple):
        return tuple([mapped(part, change) for part in structure])
    if isinstance(structure, list):
        return [mapped(part, change) for part in structure]
    if isinstance(structure, dict):
        return {k: mapped(part, change) for k, part in structure.items()}
    if isinstance(structure, slice):
        return slice(*(mapped(p, change) for p in (structure.start, structure.stop,
                                                   structure.step)))
    return change(structure)
