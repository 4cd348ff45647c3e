"""Scalar expressions: how one element is computed.

An expr is interned (equal ones are the same object), typed, printable and differentiable. It is
built by running plain Python on leaves. A pointwise op called on exprs stays one node, so that
its own derivative formula is used; `expand` opens such nodes when code is generated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import dtype as dt

_interned: dict[tuple, Expr] = {}


class Expr:
    """One node: a head (a primitive's name or a pointwise op), arguments, an attribute."""

    __slots__ = ("args", "attr", "dtype", "head")

    args: tuple[Expr, ...]
    attr: Any
    dtype: dt.dtype
    head: Any  # the name of a primitive, or a pointwise op

    def __add__(self, other): return _arithmetic("add", self, other)
    def __radd__(self, other): return _arithmetic("add", other, self)
    def __sub__(self, other): return _arithmetic("sub", self, other)
    def __rsub__(self, other): return _arithmetic("sub", other, self)
    def __mul__(self, other): return _arithmetic("mul", self, other)
    def __rmul__(self, other): return _arithmetic("mul", other, self)
    def __truediv__(self, other): return _arithmetic("div", self, other)
    def __rtruediv__(self, other): return _arithmetic("div", other, self)
    def __and__(self, other): return _arithmetic("and", self, other)
    def __rand__(self, other): return _arithmetic("and", other, self)
    def __or__(self, other): return _arithmetic("or", self, other)
    def __ror__(self, other): return _arithmetic("or", other, self)
    def __xor__(self, other): return _arithmetic("xor", self, other)
    def __rxor__(self, other): return _arithmetic("xor", other, self)
    def __lshift__(self, other): return _arithmetic("shl", self, other)
    def __rshift__(self, other): return _arithmetic("shr", self, other)
    def __lt__(self, other): return _compare("lt", self, other)
    def __le__(self, other): return _compare("le", self, other)
    def __gt__(self, other): return _compare("gt", self, other)
    def __ge__(self, other): return _compare("ge", self, other)
    def __eq__(self, other): return _compare("eq", self, other)
    def __ne__(self, other): return _compare("ne", self, other)
    def __invert__(self): return make("not", (self,))
    def __neg__(self): return make("neg", (self,)) if self.head != "neg" else self.args[0]
    __hash__ = object.__hash__

    def __pow__(self, exponent):
        """Small whole powers as products; others are the op `pow`'s business."""
        if isinstance(exponent, int) and 0 < exponent <= 4:
            half = self ** (exponent // 2) if exponent > 1 else None
            return self if half is None else half * half * (self if exponent % 2 else 1)
        raise TypeError("raise an element to a small whole power, or call the op pow")

    def __bool__(self):
        raise TypeError(f"the value of {self} is not known while its op is being recorded; "
                        "use where(condition, a, b)")

    def __repr__(self) -> str:
        return text(self)


INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">",
         "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|", "xor": "^", "shl": "<<",
         "shr": ">>"}
COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
LEAVES = frozenset(("input", "param", "const", "index", "fold", "state"))


def text(e: Expr) -> str:
    """The expression as a person would write it."""
    head, args = e.head, e.args
    if head == "const":
        return repr(e.attr)
    if head in LEAVES:
        return f"{'x' if head == 'input' else head}{e.attr}"
    if head in INFIX:
        return f"({args[0]} {INFIX[head]} {args[1]})"
    inside = ", ".join(map(text, args))
    if head == "cast":
        return f"{e.dtype.name}({inside})"
    name = head if isinstance(head, str) else head.name
    return f"{name}{'' if e.attr is None else f'[{_attr_text(e.attr)}]'}({inside})"


def _attr_text(attr) -> str:
    return ", ".join(f"{k}={v}" for k, v in attr) if isinstance(attr, tuple) else str(attr)


def make(head, args=(), attr=None, dtype: dt.dtype | None = None) -> Expr:
    """The interned node; its dtype is that of its first argument unless given."""
    if dtype is None:
        dtype = args[0].dtype
    # repr tells 0.0 from -0.0 and 1 from 1.0, which compare equal.
    key = (head, args, repr(attr) if head == "const" else attr, dtype)
    found = _interned.get(key)
    if found is None:
        found = object.__new__(Expr)
        found.head, found.args, found.attr, found.dtype = head, args, attr, dtype
        _interned[key] = found
    return found


# -- leaves ----------------------------------------------------------------------------------


def input(position: int, dtype: dt.dtype) -> Expr:
    """The element of operand number `position` at the current place."""
    return make("input", (), position, dtype)


def param(position: int, dtype: dt.dtype) -> Expr:
    """A number given when the kernel is run."""
    return make("param", (), position, dtype)


def index(axis: int) -> Expr:
    """The coordinate of the current place along an axis of the loop."""
    return make("index", (), axis, dt.int64)


def const(value, dtype: dt.dtype) -> Expr:
    if dtype.kind == "b":
        value = bool(value)
    elif dtype.kind in "iu":
        value = wrapped(int(value), dtype)
    elif dtype.kind == "f":
        value = float(value)
    else:
        value = complex(value)
    return make("const", (), value, dtype)


def wrapped(value: int, dtype: dt.dtype) -> int:
    """An integer as the bits of a dtype hold it."""
    bits = 8 * dtype.itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


def is_const(e, value) -> bool:
    return isinstance(e, Expr) and e.head == "const" and type(e.attr) is not bool and (
        e.attr == value and math.copysign(1, getattr(e.attr, "real", e.attr)) == 1)


# -- building ---------------------------------------------------------------------------------


def lift(*values) -> list[Expr]:
    """Values joined to one dtype: numbers become constants, exprs are cast."""
    exprs = [v.dtype for v in values if isinstance(v, Expr)]
    numbers = [dt.of_scalar(v) for v in values if not isinstance(v, Expr)]
    joined = dt.result_type(exprs, [], numbers)
    return [cast(v, joined) if isinstance(v, Expr) else const(v, joined) for v in values]


def cast(e: Expr, dtype: dt.dtype) -> Expr:
    """The element converted to a dtype."""
    if e.dtype is dtype:
        return e
    if e.head == "const":
        return const(e.attr, dtype)
    return make("cast", (e,), None, dtype)


def _fold_constants(head, a, b):
    """Identities that hold for every value, NaN and infinities included."""
    if head == "mul":
        if is_const(a, 1):
            return b
        if is_const(b, 1):
            return a
    elif head == "add" and a.dtype.kind in "iu":
        if is_const(a, 0):
            return b
        if is_const(b, 0):
            return a
    elif (head == "div" and is_const(b, 1)) or (head == "sub" and is_const(b, 0)):
        return a
    return None


def _arithmetic(head, a, b):
    if not isinstance(b, (Expr, int, float, complex)) or not isinstance(
            a, (Expr, int, float, complex)):
        return NotImplemented
    a, b = lift(a, b)
    if head == "div" and a.dtype.kind in "biu":
        a, b = cast(a, dt.default_float()), cast(b, dt.default_float())
    if a.head == "const" and b.head == "const" and head in ("add", "sub", "mul"):
        value = {"add": a.attr + b.attr, "sub": a.attr - b.attr, "mul": a.attr * b.attr}[head]
        return const(value, a.dtype)
    folded = _fold_constants(head, a, b)
    return make(head, (a, b)) if folded is None else folded


def _compare(head, a, b):
    a, b = lift(a, b)
    return make(head, (a, b), None, dt.bool_)


def where(condition: Expr, a, b) -> Expr:
    """a where the condition holds, else b."""
    a, b = lift(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else _two_numbers(a, b)
    if condition.dtype is not dt.bool_:
        condition = condition != 0
    return a if a is b else make("select", (condition, a, b), None, a.dtype)


def _two_numbers(a, b):
    joined = dt.promote(dt.of_scalar(a), dt.of_scalar(b))
    return const(a, joined), const(b, joined)


def call(name: str, *args) -> Expr:
    """A primitive function that a device knows by name: exp, floor, atan2 ..."""
    args = tuple(lift(*args)) if len(args) > 1 else args
    return make(name, args)


def load(operand: int, coordinates, dtype: dt.dtype) -> Expr:
    """An element of an operand at computed coordinates."""
    return make("load", tuple(cast(c, dt.int64) if isinstance(c, Expr) else const(c, dt.int64)
                              for c in coordinates), operand, dtype)


def real(e: Expr) -> Expr:
    return e if e.dtype.kind != "c" else make("real", (e,), None, e.dtype.to_real())


def imag(e: Expr) -> Expr:
    return make("imag", (e,), None, e.dtype.to_real())


def complex_of(a: Expr, b: Expr) -> Expr:
    a, b = lift(a, b)
    return make("complex", (a, b), None, a.dtype.to_complex())


def conj(e: Expr) -> Expr:
    return e if e.dtype.kind != "c" else make("conj", (e,))


def isnan(e: Expr) -> Expr:
    return e != e if e.dtype.kind in "fc" else const(False, dt.bool_)


def maximum(a, b) -> Expr:
    """The larger; NaN if either is."""
    a, b = lift(a, b)
    return _unless_nan(b, where(b > a, b, a))


def minimum(a, b) -> Expr:
    """The smaller; NaN if either is."""
    a, b = lift(a, b)
    return _unless_nan(b, where(b < a, b, a))


def _unless_nan(b: Expr, chosen: Expr) -> Expr:
    """One of two numbers, or b where that is NaN; a comparison that chose has kept the other."""
    # CPUs choose in one instruction if the comparison is strict and what it keeps is a.
    return chosen if b.dtype.kind != "f" or _is_number(b) else where(b != b, b, chosen)


def _is_number(e: Expr) -> bool:
    """Whether an element is seen not to be NaN: a constant, one of those, or a whole number."""
    if e.head == "select":
        return all(map(_is_number, e.args[1:]))
    return e.attr == e.attr if e.head == "const" else (
        e.head == "cast" and e.args[0].dtype.kind in "biu")


def rebuild(e: Expr, args) -> Expr:
    """The same node over other arguments, simplified again."""
    if e.head in INFIX:
        build = _compare if e.head in COMPARISONS else _arithmetic
        return build(e.head, *args)
    if e.head == "select" and e.attr is None:
        return where(*args)
    if e.head == "cast":
        return cast(args[0], e.dtype)
    return make(e.head, tuple(args), e.attr, e.dtype)


# Functions that call themselves are no closures: one of those is a cycle, which with all that it
# has found stays until somebody looks for cycles.


def substitute(e: Expr, leaves: dict[Expr, Expr]) -> Expr:
    """The expression with leaves replaced."""
    return _substituted(e, dict(leaves))


def _substituted(node: Expr, done: dict[Expr, Expr]) -> Expr:
    if node not in done:
        done[node] = _with_args(node, [_substituted(a, done) for a in node.args])
    return done[node]


def _with_args(node: Expr, args: list[Expr]) -> Expr:
    same = all(a is b for a, b in zip(args, node.args, strict=True))
    return node if same else rebuild(node, args)


def expand(e: Expr) -> Expr:
    """The expression with every op node replaced by that op's body, down to primitives."""
    return _expanded(e, {})


def _expanded(node: Expr, done: dict[Expr, Expr]) -> Expr:
    if node not in done:
        args = [_expanded(a, done) for a in node.args]
        done[node] = _with_args(node, args) if isinstance(node.head, str) else (
            _expanded(node.head.element(args, dict(node.attr or ())), done))
    return done[node]


def nodes(*exprs: Expr) -> set[Expr]:
    """All that exprs are made of, each once."""
    seen: set[Expr] = set()
    waiting = [*exprs]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting.extend(node.args)
    return seen


def leaves(e: Expr, head: str) -> set:
    """The attributes of all leaves with this head: which inputs are read, for example."""
    return {node.attr for node in nodes(e) if node.head == head}


# -- differentiation ---------------------------------------------------------------------------


def tangent(e: Expr, seeds: dict[Expr, Expr]) -> Expr | None:
    """How e moves when the seeds' keys move by their values; None where it does not.

    Forward mode, so that a branch not taken contributes nothing, not even NaN.
    """
    return _tangent(e, dict(seeds))


def _tangent(node: Expr, done: dict[Expr, Expr | None]) -> Expr | None:
    if node not in done:
        moves = [_tangent(a, done) for a in node.args]
        still = all(m is None for m in moves) or node.dtype.kind not in "fc"
        done[node] = None if still else _move(node, moves)
    return done[node]


def _move(node: Expr, moves) -> Expr | None:
    if not isinstance(node.head, str):
        return _total(node.head.partials(node, moves))
    rule = MOVES.get(node.head)
    if rule is None:
        if node.head in STILL:
            return None
        raise TypeError(f"{node.head} has no derivative here; "
                        f"use the op {node.head} in the formula")
    return rule(node, *node.args, *moves)


def _total(terms) -> Expr | None:
    terms = [t for t in terms if t is not None]
    total = terms[0] if terms else None
    for term in terms[1:]:
        total = total + term
    return total


def _move_mul(e, a, b, da, db):
    return _total([None if da is None else da * b, None if db is None else a * db])


def _move_div(e, a, b, da, db):
    return _total([None if da is None else da / b, None if db is None else -(e / b) * db])


def _move_sub(e, a, b, da, db):
    return _total([da, None if db is None else -db])


def _move_select(e, c, a, b, dc, da, db):
    zero = const(0, e.dtype)
    return where(c, zero if da is None else da, zero if db is None else db)


def _move_complex(e, a, b, da, db):
    zero = const(0, a.dtype)
    return complex_of(zero if da is None else da, zero if db is None else db)


#: primitives whose result does not move with their arguments
STILL = COMPARISONS | {"floor", "ceil", "trunc", "rint", "and", "or", "xor", "not", "shl", "shr",
                       "truncdiv", "nextafter"}


def _move_abs(e, a, da):
    if a.dtype.kind == "c":
        return where(e == 0, const(0, e.dtype), real(conj(a) * da) / e)
    return where(a > 0, da, where(a < 0, -da, const(0, e.dtype)))


def _move_fmod(e, a, b, da, db):
    whole = call("trunc", a / b)
    return _total([da, None if db is None else -(whole * db)])


#: how each primitive moves
MOVES: dict[str, Callable[..., Expr | None]] = {
    "add":     lambda e, a, b, da, db: _total([da, db]),
    "sub":     _move_sub,
    "mul":     _move_mul,
    "div":     _move_div,
    "neg":     lambda e, a, da: -da,
    "select":  _move_select,
    "cast":    lambda e, a, da: cast(da, e.dtype) if a.dtype.kind in "fc" else None,
    "real":    lambda e, a, da: real(da),
    "imag":    lambda e, a, da: imag(da),
    "conj":    lambda e, a, da: conj(da),
    "complex": _move_complex,
    "abs":     _move_abs,
    "fmod":    _move_fmod,
    "copysign": lambda e, a, b, da, db: None if da is None else where((a < 0) == (e < 0), da, -da),
}
