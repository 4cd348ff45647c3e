"""Exprs as instructions: each node once at each place, in the function that is being written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...core import expr as ex
from ...core.expr import Expr
from .. import complexlib, mathlib
from ..text import Text
from .arithmetic import primitive
from .conversions import convert
from .types import numbers, of_type, registers
from .vectors import spread
from .writer import Place

_LEAVES = frozenset(("input", "param", "fold", "index", "load", "state"))


class Exprs:
    """Lowers exprs; what a place has in its memo already, leaves among it, is taken from there."""

    def __init__(self, w: Text) -> None:
        self.w = w

    def leaf(self, e: Expr, place: Place):
        """What a leaf stands for that no memo has."""
        raise ValueError(f"no lowering of {e}: nobody said what it is here")

    def lower(self, e: Expr, place: Place):
        """The register (or the pair of a complex) that holds e at this place."""
        found = place.memo.get(e)
        if found is not None:
            return found
        above = place.outer
        while above is not None:
            if e in above.memo and e.head not in ("input", "index", "load"):
                found = spread(self.w, above.memo[e], e.dtype, place.width, above.width)
                break
            above = above.outer
        if found is None:
            found = self._lower(e, place)
        place.memo[e] = found
        return found

    def _lower(self, e: Expr, place: Place):
        if e.head == "const":
            return _constant(e, place.width)
        if e.head in _LEAVES:
            return self.leaf(e, place)
        if e.dtype.kind == "c" or any(a.dtype.kind == "c" for a in e.args):
            return self._complex(e, place)
        if e.head == "select" and e.attr == "rare":
            return self._rare(e, place)
        args = [self.lower(a, place) for a in e.args]
        formula = mathlib.TABLE.get((e.head, e.args[0].dtype))
        if formula is not None:
            return self.lower(ex.expand(formula(*e.args)), place)
        return primitive(self.w, e, args, place.width)

    def _rare(self, e: Expr, place: Place) -> str:
        """A select that branches around its first choice when no lane wants it."""
        w, width = self.w, place.width
        condition, slow, fast = e.args
        lanes, chosen = of_type("i1", width), registers(e.dtype, width)
        wanted, usual = self.lower(condition, place), self.lower(fast, place)
        some = wanted
        if width > 1:
            mask = w.emit(f"bitcast {lanes} {wanted} to i{width}")
            some = w.emit(f"icmp ne i{width} {mask}, 0")
        inside, done, before = w.fresh("rare")[1:], w.fresh("done")[1:], w.block
        w.do(f"br i1 {some}, label %{inside}, label %{done}")
        w.start(inside)
        inner = replace(place, memo=dict(place.memo))  # what is computed here is not known after
        slowly = self.lower(slow, inner)
        picked = w.emit(f"select {lanes} {wanted}, {chosen} {slowly}, {chosen} {usual}")
        after = w.block
        w.do(f"br label %{done}")
        w.start(done)
        return w.emit(f"phi {chosen} [ {usual}, %{before} ], [ {picked}, %{after} ]")

    def _complex(self, e: Expr, place: Place):
        """Complex arithmetic as arithmetic on parts."""
        head = e.head
        if head == "cast":
            source = e.args[0].dtype
            return convert(self.w, self.lower(e.args[0], place), source, e.dtype, place.width)
        if head == "complex":
            return tuple(self.lower(a, place) for a in e.args)
        if head in ("real", "imag"):
            return self.lower(e.args[0], place)[head == "imag"]
        rule = complexlib.COMPLEX.get(head)
        if rule is None:
            raise ValueError(f"no lowering of {head} for {e.dtype}")
        result = rule(*[self._parts(a, place) for a in e.args])
        if isinstance(result, tuple):
            return tuple(self.lower(ex.expand(r), place) for r in result)
        return self.lower(ex.expand(result), place)

    def _parts(self, e: Expr, place: Place) -> Expr | tuple[Expr, ...]:
        """Both parts of a complex expr, as exprs that are known here; a real one as it is."""
        value = self.lower(e, place)
        if e.dtype.kind != "c":
            return e
        pair = tuple(ex.make(name, (e,), None, e.dtype.to_real()) for name in ("real", "imag"))
        place.memo.update(zip(pair, value, strict=True))
        return pair

    def hoist(self, exprs: Iterable[Expr], place: Place) -> None:
        """Compute outside a loop what does not change inside it."""
        seen: set[Expr] = set()
        known: dict[Expr, bool] = {}

        def moves(e: Expr) -> bool:
            if e not in known:
                known[e] = e.head in ("input", "load", "index", "state") or any(
                    [moves(a) for a in e.args])
            return known[e]

        def walk(e: Expr) -> None:
            if e in seen or e.head == "const":
                return
            seen.add(e)
            if not moves(e):
                self.lower(e, place)
            else:
                for a in e.args:
                    walk(a)

        for e in exprs:
            walk(e)


def _constant(e: Expr, width: int):
    if e.dtype.kind == "c":
        real = e.dtype.to_real()
        return tuple(numbers(v, real, width) for v in (e.attr.real, e.attr.imag))
    return numbers(e.attr, e.dtype, width)
