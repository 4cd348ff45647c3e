"""Programs for every size of some axes: a model is recorded at several sizes, and what differs from
program to program is computed from the sizes (see varying.py). Calls are checked by guards.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import flambeau
from flambeau import Tensor, fx, nn
from flambeau.utils._pytree import tree_flatten, tree_unflatten

from .graph import Extent
from .named_sizes import UNBOUNDED, Derived, Dim, Hint, ValueRange
from .varying import OTHERS, Together, Varies, trials_of


class UserError(RuntimeError):
    """What was said of sizes does not agree with the model or with the example."""


class Axis(NamedTuple):
    """An axis of an input whose size is rate * symbol + rest."""

    leaf: int
    axis: int
    symbol: str
    rate: int = 1
    rest: int = 0


class Sizes:
    """Which axes vary, by what symbols, and between what bounds."""

    def __init__(self) -> None:
        self.axes: list[Axis] = []
        self.bounds: dict[str, ValueRange] = {}
        self.tried: dict[str, int] = {}     # sizes of the example
        self.hinted: list[str] = []         # symbols that need not vary

    def without(self, symbol: str) -> Sizes:
        """The same, with the axes of a symbol as they are in the example."""
        made = Sizes()
        made.axes = [a for a in self.axes if a.symbol != symbol]
        made.bounds = {s: b for s, b in self.bounds.items() if s != symbol}
        made.tried = {s: n for s, n in self.tried.items() if s != symbol}
        made.hinted = [s for s in self.hinted if s != symbol]
        return made

    def sizes_at(self, trial: dict[str, int]) -> dict[tuple[int, int], int]:
        return {(a.leaf, a.axis): a.rate * trial[a.symbol] + a.rest for a in self.axes}


# -- what the user said ----------------------------------------------------------------------------


def sizes_said(names: list[str], values: list, spec: Any, leaf_names: list[str]) -> Sizes:
    """What `dynamic_shapes` says of the arguments of a call."""
    found, leaves = Sizes(), 0
    for name, value, said in zip(names, values, _by_argument(names, spec), strict=True):
        for leaf, told in _by_leaf(name, value, said):
            if isinstance(leaf, Tensor):
                _said_of(found, leaves, leaf_names[leaves], leaf, told)
            leaves += 1
    return found


def _by_argument(names: list[str], spec: Any) -> list:
    if isinstance(spec, dict):
        if set(spec) - set(names):
            raise UserError("When `dynamic_shapes` is specified as a dict, its top-level keys must "
                            f"be the arg names {names} of `inputs`, but here they are {[*spec]}. "
                            "Alternatively, you could also ignore arg names entirely and specify "
                            "`dynamic_shapes` as a list/tuple matching `inputs`.")
        return [spec.get(name) for name in names]
    if not isinstance(spec, (tuple, list)) or len(spec) != len(names):
        raise UserError(f"`dynamic_shapes` has to be a dict by the names {names}, or a list/tuple "
                        f"of as many parts, got {spec!r}")
    return list(spec)


def _by_leaf(name: str, value: Any, said: Any) -> list[tuple[Any, Any]]:
    """Tensors and other leaves of an argument, each with what is said of it."""
    if isinstance(value, (tuple, list)):
        parts = [None] * len(value) if said is None else said
        if not isinstance(parts, (tuple, list)) or len(parts) != len(value):
            raise UserError(f"`dynamic_shapes` of {name} has to have {len(value)} parts, as the "
                            f"argument has, got {said!r}")
        return [pair for v, s in zip(value, parts, strict=True) for pair in _by_leaf(name, v, s)]
    if isinstance(value, dict):
        return [pair for k, v in value.items()
                for pair in _by_leaf(f"{name}[{k!r}]", v, (said or {}).get(k))]
    leaves, _ = tree_flatten(value)
    return [(leaf, said) for leaf in leaves]


def _said_of(found: Sizes, leaf: int, name: str, x: Tensor, said: Any) -> None:
    axes = dict(enumerate(said)) if isinstance(said, (tuple, list)) else said or {}
    for axis, told in axes.items():
        if not -x.dim() <= axis < x.dim():
            raise UserError(f"`dynamic_shapes` speaks of axis {axis} of {name}, which has "
                            f"{x.dim()} dimensions")
        axis, size = axis % x.dim(), x.shape[axis]
        if told is None or told is Dim.STATIC:
            continue
        if isinstance(told, int):
            if told != size:
                raise UserError(f"Static shape constraint of {told} does not match input size of "
                                f"{size}, for L['{name}'].size()[{axis}]")
        elif isinstance(told, Hint):
            symbol = f"size_{name}_{axis}"
            _known(found, symbol, size, 2, UNBOUNDED)
            found.axes.append(Axis(leaf, axis, symbol))
            if told is Dim.AUTO:
                found.hinted.append(symbol)
        else:
            _named(found, leaf, axis, size, told)


def _named(found: Sizes, leaf: int, axis: int, size: int, told: Any) -> None:
    if not isinstance(told, (Dim, Derived)):
        raise UserError(f"a size is a Dim, a hint or an integer in `dynamic_shapes`, got {told!r}")
    root = told.root if isinstance(told, Derived) else told
    rate, rest = (told.rate, told.rest) if isinstance(told, Derived) else (1, 0)
    number, left = divmod(size - rest, rate)
    if left:
        raise UserError(f"{size} is no size of the form {told!r}")
    if not root.min <= number <= root.max:
        upper = "int_oo" if root.max == UNBOUNDED else root.max
        raise UserError(f"{number} not in range [{root.min}, {upper}]")
    _known(found, root.__name__, number, root.min, root.max)
    found.axes.append(Axis(leaf, axis, root.__name__, rate, rest))


def _known(found: Sizes, symbol: str, size: int, low: int, high: float) -> None:
    if found.tried.setdefault(symbol, size) != size:
        raise UserError(f"Constraints violated ({symbol})! It is {found.tried[symbol]} in one place"
                        f" of the example and {size} in another")
    if size < 2:
        raise UserError(f"Constraints violated ({symbol})! You marked {symbol} as dynamic but it "
                        f"is {size} in the example: 0 and 1 are sizes of their own\n"
                        f"Suggested fixes:\n  {symbol} = {size}")
    found.bounds[symbol] = ValueRange(low, high)


# -- programs at several sizes ---------------------------------------------------------------------


def general(record: Callable, args: tuple, kwargs: dict, sizes: Sizes):
    """(the program at all sizes, what varies) of `record(args, kwargs)`, a program at one."""
    alone = [s for s in sizes.hinted]
    while True:
        try:
            return _together(record, args, kwargs, sizes), sizes
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            if not alone:
                if isinstance(error, UserError):
                    raise
                raise UserError(f"Constraints violated ({', '.join(sizes.tried)})! {error}"
                                ) from error
            # Each size that need not vary is tried alone; what fails is as it was.
            for symbol in alone:
                others = sizes
                for other in alone:
                    others = others if other == symbol else others.without(other)
                try:
                    _together(record, args, kwargs, others)
                except (RuntimeError, ValueError, IndexError, TypeError):
                    sizes = sizes.without(symbol)
            alone = alone[1:] if all(s in sizes.tried for s in alone) else []


def _together(record: Callable, args: tuple, kwargs: dict, sizes: Sizes):
    if not sizes.tried:
        return record(args, kwargs)
    leaves, spec = tree_flatten((args, kwargs))
    low = {s: max(b.lower, 2) for s, b in sizes.bounds.items()}
    less = all(n - OTHERS >= low[s] for s, n in sizes.tried.items())
    trials = trials_of(sizes.tried, less)
    programs = []
    for trial in trials:
        wanted = sizes.sizes_at(trial)
        given = [_resized(x, k, wanted) for k, x in enumerate(leaves)]
        programs.append(record(*tree_unflatten(given, spec)))
    return Programs(programs, trials, sizes).program


def _resized(x: Any, leaf: int, wanted: dict[tuple[int, int], int]) -> Any:
    """The input with other sizes, made of elements that it has."""
    for (number, axis), n in wanted.items():
        if number == leaf and x.shape[axis] != n:
            x = x.index_select(axis, flambeau.arange(n).clamp(max=x.shape[axis] - 1))
    return x


class Programs(Together):
    """Programs of one model at several sizes, as one."""

    def __init__(self, programs: list, trials: list[dict[str, int]], sizes: Sizes):
        self.trials, self.symbols = trials, list(trials[0])
        self.program, self.sizes = programs[0], sizes
        self._check_constants(programs)
        self.extents: dict[Any, fx.Node] = {}
        lines = [list(p.graph.nodes) for p in programs]
        if len({len(nodes) for nodes in lines}) > 1:
            raise Varies(f"the model makes another number of op calls, depending on sizes that vary"
                         f" ({self._said()})")
        self.first = next(n for n in lines[0] if n.op != "placeholder")
        for nodes in list(zip(*lines, strict=True)):
            self._line(nodes)
        self.program.graph_module.recompile()

    def _check_constants(self, programs) -> None:
        first = programs[0].constants
        for other in programs[1:]:
            for name, x in first.items():
                y = other.constants.get(name)
                if y is None or x.shape != y.shape or not flambeau.equal(x, y):
                    raise Varies(f"{name} is a constant that depends on sizes that vary "
                                 f"({self._said()}): make it from the inputs by ops")

    def _line(self, nodes: tuple[fx.Node, ...]) -> None:
        first = nodes[0]
        if len({(n.op, n.name, str(n.target)) for n in nodes}) > 1:
            raise Varies(f"the model calls {' or '.join(sorted({n.name for n in nodes}))}, "
                         f"depending on sizes that vary ({self._said()})")
        what = f"an argument of {first.name}"
        args = self._same([n.args for n in nodes], what)
        kwargs = self._same([dict(n.kwargs) for n in nodes], what)
        first.args, first.kwargs = self._computed(args, first), self._computed(kwargs, first)

    def _same(self, parts: list[Any], what: str):
        first = parts[0]
        if isinstance(first, fx.Node):
            if len({p.name for p in parts}) > 1:
                raise Varies(f"{what} is another tensor, depending on sizes that vary")
            return first
        return super()._same(parts, what)

    # -- sizes as nodes ----------------------------------------------------------------------------

    def _computed(self, given: Any, user: fx.Node) -> Any:
        """Arguments with nodes in place of numbers that depend on sizes."""
        if isinstance(given, Extent):
            if given.seen:
                raise Varies(f"{user.name} is called with a number that was {given.seen} "
                             f"({self._said()}), which is neither a product nor a sum of the sizes")
            return self._size(given, user)
        if isinstance(given, (tuple, list)):
            return type(given)(self._computed(part, user) for part in given)
        if isinstance(given, dict):
            return {k: self._computed(v, user) for k, v in given.items()}
        if isinstance(given, slice):
            return slice(*(self._computed(v, user) for v in (given.start, given.stop, given.step)))
        return given

    def _size(self, extent: Extent, user: fx.Node) -> fx.Node:
        if extent.terms not in self.extents:
            self.extents[extent.terms] = self._written(extent, user)
        return self.extents[extent.terms]

    def _written(self, extent: Extent, user: fx.Node) -> Any:
        """A node that computes a number: whole multiples of products, divided once at the end."""
        by = math.lcm(*(rate.denominator for _, rate in extent.terms))
        graph = self.program.graph
        products = [(names, int(rate * by), [self._symbol(s) for s in names])
                    for names, rate in extent.terms]
        total: Any = None
        with graph.inserting_before(user):
            for names, rate, nodes in products:
                part: Any = rate if not names or rate != 1 else None
                for node in nodes:
                    part = node if part is None else graph.call_function(operator.mul, (node, part))
                total = part if total is None else graph.call_function(operator.add, (total, part))
            return total if by == 1 else graph.call_function(operator.floordiv, (total, by))

    def _symbol(self, symbol: str) -> fx.Node:
        """The size of an input that a symbol stands for."""
        key = (((symbol,), Fraction(1)),)
        if key not in self.extents:
            at = min((a for a in self.sizes.axes if a.symbol == symbol),
                     key=lambda a: (a.rate, abs(a.rest)))
            graph = self.program.graph
            inputs = [n for n in graph.nodes if n.op == "placeholder"]
            users = inputs[len(inputs) - len(self.program.graph_signature.user_inputs):]
            with graph.inserting_before(self.first):
                node = graph.call_method("size", (users[at.leaf], at.axis))
                if at.rest:
                    node = graph.call_function(operator.sub, (node, at.rest))
                if at.rate != 1:
                    node = graph.call_function(operator.floordiv, (node, at.rate))
            self.extents[key] = node
        return self.extents[key]


# -- guards ----------------------------------------------------------------------------------------


class Guards(nn.Module):
    """Checks that tensors of a call have the sizes that a program is for."""

    def __init__(self, names: list[str], shapes: list, sizes: Sizes):
        super().__init__()
        self.names, self.shapes = names, shapes
        self.axes = {(a.leaf, a.axis): a for a in sizes.axes}
        self.bounds = sizes.bounds

    def forward(self, *leaves) -> None:
        known: dict[str, tuple[int, str]] = {}
        for leaf, (name, shape, x) in enumerate(zip(self.names, self.shapes, leaves, strict=True)):
            for axis, n in enumerate(shape or ()):
                if not isinstance(x, Tensor) or axis >= x.dim():
                    raise AssertionError(f"Guard failed: {name} is a tensor of {len(shape)} "
                                         f"dimensions, got {getattr(x, 'shape', x)}")
                said, found = f"{name}.size()[{axis}]", x.shape[axis]
                moving = self.axes.get((leaf, axis))
                if moving is not None:
                    self._varying(moving, said, found, known)
                elif found != n:
                    raise AssertionError(f"Guard failed: {said} == {n}")

    def _varying(self, a: Axis, said: str, found: int, known: dict) -> None:
        number, left = divmod(found - a.rest, a.rate)
        if left:
            raise AssertionError(f"Guard failed: {said} % {a.rate} == {a.rest % a.rate}")
        low, high = self.bounds[a.symbol]
        if number > high:
            raise AssertionError(f"Guard failed: {said} <= {int(a.rate * high + a.rest)}")
        if number < low and low > 2:
            raise AssertionError(f"Guard failed: {said} >= {a.rate * low + a.rest}")
        first, where = known.setdefault(a.symbol, (number, said))
        if first != number:
            raise AssertionError(f"Guard failed: {where} == {said}: both are sizes of {a.symbol}")
