"""Known paths in machine code: a trace's state and the calls it expects, laid out as words."""

from __future__ import annotations

import functools
from array import array

from ..devices.cpu import bridge
from ..devices.cpu.assembly.hop_words import ARGUMENT, KINDS, MOST, RECORD, STATE
from ..devices.cpu.objects import addresses, cache
from ..engine.front_parts import slot_offset
from ..engine.tensor import LEAF, Tensor
from .phantom import HAS_NODE, IS_LEAF, NO_NODE, Phantom, plain, state_of, traced
from .segment import Result, Several

_NEXT, _OTHER = RECORD.index("next"), RECORD.index("other")
_OUTSIDE = KINDS.index("outside")


@functools.cache
def hop():
    """The native function, see devices/cpu/assembly/hop.py."""
    bridge.jit().publish_python(("PyThread_get_thread_ident", "PyDict_Next", "PyDict_Size",
                                 "PyType_GenericAlloc", "PyObject_RichCompareBool",
                                 "PyTuple_New"))
    offsets = tuple((n, slot_offset(Tensor, n)) for n in ("sig", "node", "mem"))

    def written() -> str:
        from ..devices.cpu.assembly import hop as text
        from ..devices.cpu.assembly.writer import module_text

        return module_text(text.build(offsets))

    (address,) = addresses(cache().key(f"hop {offsets}"), ("hop",), written, bridge.LIGHTLY)
    return bridge.fast_function(address, "hop")


class Outside:
    """A tensor from outside that was met here last time.

    One that was computed from others is another one every time; nobody holds it, and the graph
    behind it, until then.
    """

    __slots__ = ("number", "plain", "sig", "state", "tensor")

    def __init__(self, number: int, x: Tensor):
        self.number, self.state = number, state_of(x)
        self.tensor = None if self.state == HAS_NODE else x
        self.sig, self.plain = traced(x.sig), plain(x.sig)

    @property
    def node(self) -> int:
        """The address of its node, 0 if that is another one every time."""
        return {NO_NODE: id(None), IS_LEAF: id(LEAF)}.get(self.state, 0)

    def is_like(self, x: Tensor) -> bool:
        """Whether a tensor is of the same kind."""
        return (x.sig is self.sig or x.sig is self.plain) and state_of(x) == self.state

    def stands_for(self, x, outside) -> bool:
        """Whether a tensor may be met here: it is the same one, or none of its memory has been
        met."""
        if x is self.tensor:
            return all([x is not other for other in outside])
        return x.__class__ is not Phantom and all([x.mem is not other.mem for other in outside])


class Constant:
    """An argument that is known by its value."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


#: one for several calls: there are few of them, and many calls
constant = functools.lru_cache(maxsize=256, typed=True)(Constant)


class Listed:
    """A list or a tuple among the arguments, with tensors in it."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: type[list | tuple], parts: list):
        self.kind, self.parts = kind, parts


def flattened(expects) -> list:
    """What is expected of all arguments; elements of a list come after it."""
    return [e for one in expects for e in (one, *(one.parts if one.__class__ is Listed else ()))]


def side_by_side(args, expects) -> list[tuple] | None:
    """The same beside arguments; None if there is another list, or something else in its place."""
    found: list = []
    for a, e in zip(args, expects, strict=True):
        if e.__class__ is not Listed:
            found.append((a, e))
        elif type(a) is e.kind and len(a) == len(e.parts):
            found += zip(a, e.parts, strict=True)
        else:
            return None
    return found


class Record:
    """A call that leads from one step to another, as native code compares it.

    It has addresses of what the step holds, which has the record too.
    """

    __slots__ = ("_keep", "address", "words")

    def __init__(self, step):
        flat, written = flattened(step.expects), array("q", step.writes) if step.writes else None
        result, made = step.result, None
        if type(result) is Several:
            made = array("q", [word for r in result.parts for word in (id(r.traced), id(r.node))])
        said = {
            "op": id(step.op), "grad": id(step.grad), "step": id(step),
            "sig": id(result.traced) if made is None else made.buffer_info()[0],
            "node": 0 if made is not None else id(result.node),
            "made": 0 if made is None else len(result.parts), "next": step.leads, "other": 0,
            "names": id(step.names), "named": len(step.names), "count": len(step.expects),
            "rows": len(flat), "written": 0 if written is None else written.buffer_info()[0],
            "writes": len(step.writes),
        }
        words = [said[name] for name in RECORD]
        for e in flat:
            row = self._row(e)
            words += [*row, *[0] * (ARGUMENT - len(row))]
        self.words, self._keep = array("q", words), (written, made) if written or made else None
        self.address = self.words.buffer_info()[0]

    @staticmethod
    def _row(e) -> list[int]:
        kind = e.__class__
        if kind is int:
            return [KINDS.index("value"), e]
        if e is float:
            return [KINDS.index("float")]
        if kind is Outside:
            return [_OUTSIDE, e.number, id(e.tensor), id(e.sig), id(e.plain), e.node]
        if kind is Listed:
            return [KINDS.index(e.kind.__name__), len(e.parts), id(e.kind)]
        name = "number" if type(e.value) is float else "constant"
        return [KINDS.index(name), id(e.value)]

    @staticmethod
    def possible(step) -> bool:
        """Whether native code can compare it, and make what it returns: a tensor, or several."""
        result = step.result
        return len(flattened(step.expects)) <= MOST and not step.changes and (
            type(result) is Result or (
                type(result) is Several and result.kind is tuple and result.parts != () and all(
                    [type(r) is Result for r in result.parts])))

    def lead_to(self, address: int) -> None:
        """The record of what is expected after this call."""
        self.words[_NEXT] = address

    def or_else(self, address: int) -> None:
        """The record of a call that may be made in its place."""
        self.words[_OTHER] = address


class State:
    """What native code knows of a trace."""

    __slots__ = ("_keep", "address", "at", "paused", "words")

    def __init__(self, tagged: list):
        self.paused = False
        self.at: list = [None]
        said = {"at": id(self.at), "tagged": id(tagged), "type": id(Phantom), "tensor": id(Tensor),
                "tuple": id(tuple), "float": id(float), "leaf": id(LEAF)}
        self.words = array("q", [said.get(name, 0) for name in STATE])
        self.address = self.words.buffer_info()[0]
        self._keep: tuple = ()

    def belong(self, thread: int) -> None:
        """Follow calls that this thread makes."""
        self.words[_THREAD_AT] = thread

    def begin(self, step, values: list, outside: list, numbers: list) -> None:
        """A new segment, with lists of its own."""
        words, self._keep = self.words, (values, outside, numbers)
        words[_VALUES_AT], words[_OUTSIDE_AT] = id(values), id(outside)
        words[_NUMBERS_AT], words[_WROTE_AT] = id(numbers), False
        self.go(step)

    def go(self, step) -> None:
        """The trace is at another step."""
        self.at[0] = step
        self.words[0] = 0 if self.paused else step.leads

    @property
    def wrote(self) -> bool:
        """Whether memory from outside is to change."""
        return bool(self.words[_WROTE_AT])

    def write(self) -> None:
        """Memory from outside is to change."""
        self.words[_WROTE_AT] = True

    def pause(self, paused: bool) -> None:
        """Whether calls are not to be followed for a while."""
        self.paused = paused
        if paused:
            self.words[0] = 0
        else:
            self.go(self.at[0])


_VALUES_AT, _OUTSIDE_AT, _NUMBERS_AT, _THREAD_AT, _WROTE_AT = map(
    STATE.index, ("values", "outside", "numbers", "thread", "wrote"))
