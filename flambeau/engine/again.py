"""What native fronts are told of calls in place, so that they can repeat them: see
front_text/again.py."""

from __future__ import annotations

from array import array

from ..core import expr as ex
from ..core.device import META
from ..devices.cpu.remember import keep, new_table
from ..ops.declare import Op, Pointwise
from .front_text import ALONE, BESIDE, MANY, VALUED
from .interception import PLAIN, tracers
from .node import fronts
from .pointwise import plan, refits, split_attributes
from .tensor import Tensor


def native_forms(form, plans: dict, reads: int, implied: int | None = None,
                 more: str = "*args, **kwargs") -> tuple:
    """(method, function) that run natively what is in a table of plans, and `form` otherwise.

    Python reads their signature from their documentation; `more` is what it has beside self.
    """
    name = form.__name__
    doc = f"{name}($self, {more})\n--\n\n{form.__doc__}"
    function, context = fronts.adopt(form, plans, "i", name, doc, reads, implied=implied)
    return fronts.method(context, "i", name, doc) or form, function


def pointwise_forms(op: Pointwise, form) -> tuple:
    """The same of a pointwise op's form."""
    reads = MANY if takes_many(op) else ALONE if len(op.operands) == 1 else BESIDE
    return native_forms(form, op.quick, reads + (VALUED if _is_valued(op) else 0))


def takes_many(op: Pointwise) -> bool:
    """Whether native fronts find calls of an op in place by all that is given: see `remember`."""
    return len(op.operands) > 2 or bool(op.baked_values)


def _is_valued(op: Pointwise) -> bool:
    return bool(op.baked_values or op.baked)


#: calls that are not to be asked about again
_not_one = new_table()


def remember(table: dict, op: Op, x: Tensor, args: tuple, kwargs: dict, arrange) -> None:
    """Tell native fronts how to repeat a call in place: see front_text/again.py.

    `arrange` says what pointwise op is run on what operands, and with what attributes.
    """
    given = (*args, *kwargs.values())
    key = _called_with(x, given, tuple(kwargs), isinstance(op, Pointwise) and _is_valued(op))
    if key is None or key in table or (op, key) in _not_one:
        return
    spots = [_Spot(k, a) for k, a in enumerate(given, 1)]
    found = arrange(op, (_Spot(0, x), *spots[:len(args)]),
                    dict(zip(kwargs, spots[len(args):], strict=True)))
    if found is not None:
        entry = _way(x, op, *found)
        if entry is not None:
            keep(table, key, entry)
            return
    keep(_not_one, (op, key), True)


class _Spot:
    """Where an argument was given: 0 the tensor, 1 what comes first after it."""

    __slots__ = ("place", "value")

    def __init__(self, place: int, value):
        self.place, self.value = place, value


def _way(x: Tensor, called: Op, op: Pointwise, operands: list, named: dict) -> tuple | None:
    """(callable, arguments that stay the same, where each comes from, what keeps them alive), of a
    plan that writes x."""
    operands = [s if type(s) is _Spot else _Spot(-1, s) for s in operands]
    if refits(op, x.sig.dtype, [s.value for s in operands]):
        return None
    attributes = {name: s.value if type(s) is _Spot else s for name, s in named.items()}
    if any(isinstance(a, Tensor) for a in attributes.values()) or not all(
            isinstance(s.value, (Tensor, float, int)) and type(s.value) is not bool
            for s in operands):
        return None
    if called is not op and _is_valued(op) and any(
            type(s) is _Spot and s.place > 0 and type(s.value) in (float, int)
            for s in (*operands, *named.values())):
        return None  # fronts do not tell values apart for the sake of an op inside another
    keyed, _ = split_attributes(op, attributes)
    planned = plan(op, tuple([s.value.sig if isinstance(s.value, Tensor) else s.value
                              for s in operands]), keyed, x.sig)
    _, _, run, last, *_ = planned
    numbers = [named.get(name, op.defaults.get(name)) for name, kind in keyed
               if type(kind) is type]
    tensors = [s for s in operands if isinstance(s.value, Tensor)]
    others = [s for s in (*operands, *[s if type(s) is _Spot else _Spot(-1, s) for s in numbers])
              if not isinstance(s.value, Tensor) and not op.bakes(s.value)]
    return run, (None, *[None for s in tensors], *[s.value for s in others], last), array("q", [
        0, *[2 * s.place for s in tensors],
        *[-1 if s.place < 0 else 2 * s.place + 1 for s in others], -1]), planned


#: arguments that are known by their type and value
_VALUES = frozenset((bool, str, type(None)))


def _called_with(x: Tensor, given: tuple, names: tuple, valued: bool) -> tuple | None:
    """What native fronts find a call in place by; None if it is one for Python."""
    key: list = [x.sig, names or None]
    for a in given:
        if isinstance(a, Tensor):
            key += (a.sig, None)
        elif type(a) is float or type(a) is int:
            key += (type(a), a if valued else None)
        elif type(a) in _VALUES:
            key += (type(a), a)
        else:
            return None
    plain = all([type(a) in PLAIN and (not isinstance(a, Tensor) or (
        a.sig.tag is None and a.sig.device is not META)) for a in (x, *given)])
    return tuple(key) if plain and not tracers else None


def one_step(op: Op, args: tuple, kwargs: dict) -> tuple | None:
    """What a composite comes to, if that is one pointwise op on what it was given: it is asked
    with symbols for the tensors and numbers. None if it is more, or depends on their values."""
    dtype = args[0].value.sig.dtype
    if dtype.kind != "f":
        return None
    symbols: dict[int, _Spot] = {}

    def symbol(spot: _Spot):
        if isinstance(spot.value, Tensor):
            if spot.value.sig.dtype is not dtype:
                raise TypeError("operands of several dtypes are promoted")
            made = ex.input(spot.place, dtype)
        elif type(spot.value) in (float, int):
            made = ex.param(spot.place, dtype)
        else:
            return spot.value
        symbols[id(made)] = spot
        return made

    try:
        found = op.body(*map(symbol, args), **{name: symbol(s) for name, s in kwargs.items()})
    except (AttributeError, TypeError):
        return None
    if not isinstance(found, ex.Expr) or not isinstance(found.head, Pointwise) or (
            found.dtype is not dtype):
        return None
    operands = [a.attr if a.head == "const" else symbols.get(id(a)) for a in found.args]
    named = {name: symbols.get(id(a)) if isinstance(a, ex.Expr) else a
             for name, a in found.attr or ()}
    if any(o is None for o in operands) or any(
            isinstance(a, ex.Expr) and named[name] is None for name, a in found.attr or ()):
        return None
    return found.head, operands, named


def composite_forms(form, table: dict) -> tuple:
    """(method, function) of a composite's form in place, natively where that is one kernel."""
    return native_forms(form, table, MANY)
