"""Sees every op of a thread while a profiler runs, and costs nothing while none does.

Python reports calls and returns (`sys.setprofile`), of native functions too; those that are ops, or
steps of going back, become events. Operators are reached without a call that Python would report,
so meanwhile the class has forms in Python for them. The clock stands still while this file works.
"""

from __future__ import annotations

import sys
import threading
from time import perf_counter_ns
from typing import Any

from ..engine.backward import _Ops
from ..engine.node import Walk
from ..engine.tensor import Tensor
from ..ops.declare import registry
from .events import FunctionEvent

CREATING = tuple(f"flambeau.engine.{part}" for part in (
    "create", "from_data", "random", "sampling", "sequence", "moves", "inplace", "indexing"))
OPERATORS = tuple("""__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__
    __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__ __rpow__ __matmul__ __rmatmul__ __and__
    __rand__ __or__ __ror__ __xor__ __rxor__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __neg__
    __abs__ __invert__ __getitem__ __setitem__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__
    __imod__ __ipow__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__""".split())
METHOD, FUNCTION = type(str.join), type(len)
WALKING = {Walk.run.__code__, Walk._careful_step.__code__}
ACCUMULATE = _Ops.accumulate.__code__
NOT_STEPS = {f.__code__ for f in vars(Walk).values() if hasattr(f, "__code__")} | {
    _Ops.add.__code__}
LIBRARY = __file__.rpartition("autograd")[0]
SEEN_BY_NAME = {  # functions of higher floors that torch's profiler names too
    "Optimizer.profile_hook_step.<locals>.hooked_step": "Optimizer.step#{}.step",
    "Optimizer.zero_grad": "Optimizer.zero_grad#{}.zero_grad",
    "_BaseIter.__next__": "enumerate(DataLoader)#{}.__next__",
}


class Tables:
    """Which functions are ops: native ones, Python code of one op, Python code that many share."""

    def __init__(self, public: dict):
        self.natives: dict[Any, str] = {}
        self.codes: dict[Any, str | None] = {}
        for op in registry.values():
            self._add(op.run, op.name)
        for name, function in public.items():
            if getattr(function, "__module__", None) in CREATING or (
                    _in_place(name) and type(function) is FUNCTION):
                self._add(function, name)
        self.methods = {op.name for op in registry.values()} | {"__getitem__", "__setitem__"}
        for name, function in filter(lambda pair: _in_place(pair[0]), vars(Tensor).items()):
            module = getattr(function, "__module__", None)
            if type(function) is METHOD:
                self.methods.add(name)
            elif module in CREATING or module == "flambeau.assemble":
                self._add(function, name)

    def _add(self, function, name: str) -> None:
        code = getattr(function, "__code__", None)
        if code is None:
            self.natives[function] = name
        elif self.codes.get(code, name) != name:
            self.codes[code] = None  # shared: the frame says which op it serves
        else:
            self.codes[code] = name


def _in_place(name: str) -> bool:
    """Whether a name is that of a form that works in place."""
    return name.endswith("_") and not name.endswith("__")


def _served(frame) -> str | None:
    """The op that a front in Python serves, as its frame knows it."""
    found = frame.f_locals
    name = found.get("name")
    if isinstance(name, str):
        return name
    return getattr(found.get("op"), "name", None)


class Watch:
    """The events of the threads that are being watched."""

    def __init__(self, public: dict, shapes: bool = False, stack: bool = False):
        self.tables = Tables(public)
        self.shapes, self.stack = shapes, stack
        self.events: list[FunctionEvent] = []
        self.open: dict[int, list] = {}
        self.lost: dict[int, int] = {}  # nanoseconds spent here, by thread
        self.replaced: list[tuple] = []  # (owner, name, what was there)
        self.began = 0
        self.running = False

    # -- on and off -------------------------------------------------------------------------------

    def start(self) -> None:
        for name, native in list(vars(Tensor).items()):
            if type(native) is METHOD and (name in OPERATORS or self.shapes):
                self._replace(Tensor, name, native)
        if self.shapes:
            self._replace_functions()
        self.began = perf_counter_ns()
        self.running = True
        self.previous = sys.getprofile()
        threading.setprofile(self._seen)
        sys.setprofile(self._seen)

    def stop(self) -> None:
        sys.setprofile(self.previous)
        threading.setprofile(self.previous)
        self.running = False
        while self.replaced:
            setattr(*self.replaced.pop())
        for thread, entries in self.open.items():
            while entries:
                self._end(thread, entries)

    def _replace(self, owner, name: str, native) -> None:
        self.replaced.append((owner, name, native))
        setattr(owner, name, _called_from_python(native))

    def _replace_functions(self) -> None:
        """Native functions are reported without their arguments: let Python pass them on."""
        for module in [m for name, m in sys.modules.items() if name.startswith("flambeau")]:
            for name, value in list(vars(module).items()):
                if type(value) is FUNCTION and value in self.tables.natives:
                    self._replace(module, name, value)

    def now(self, thread: int) -> int:
        """Nanoseconds since the start, without those spent here."""
        return perf_counter_ns() - self.began - self.lost.get(thread, 0)

    # -- events -----------------------------------------------------------------------------------

    def enter(self, name: str, frame=None, function=None, kind: str = "op", given=()) -> None:
        thread = threading.get_ident()
        entries = self.open.setdefault(thread, [])
        if kind == "op" and entries and entries[-1][0].name == name:
            return  # one op's form in Python has called its native one
        event = FunctionEvent(name, thread, kind)
        event.input_shapes = [list(x.shape) if isinstance(x, Tensor) else [] for x in given]
        if self.stack:
            event.stack = _stack_of(frame or sys._getframe(2))
        if entries:
            parent = entries[-1][0]
            event.cpu_parent = parent
            parent.cpu_children.append(event)
        event.id = len(self.events)
        self.events.append(event)
        entries.append((event, frame, function))
        event.began = self.now(thread)

    def leave(self) -> None:
        thread = threading.get_ident()
        if self.open.get(thread):
            self._end(thread, self.open[thread])

    def _end(self, thread, entries) -> None:
        event = entries.pop()[0]
        event.ended = max(self.now(thread), event.began)

    def _seen(self, frame, what, arg) -> None:
        """What Python reports; `started` to the last line is time that nobody used."""
        started = perf_counter_ns()
        thread = threading.get_ident()
        spent = self.lost.get(thread, 0)
        entries = self.open.get(thread)
        if what == "call":
            self._python_call(frame)
        elif what == "c_call":
            self._native_call(frame, arg)
        elif entries and entries[-1][1] is frame and (
                entries[-1][2] is None if what == "return" else entries[-1][2] == arg):
            entries[-1][0].ended = started - self.began - spent
            entries.pop()
        # A report costs about as much again before and after this function runs.
        self.lost[thread] = spent + (perf_counter_ns() - started) + REPORTING
        if what in ("call", "c_call") and self.open.get(thread):
            last = self.open[thread][-1]
            if last[1] is frame and last[0].fresh:
                last[0].began, last[0].fresh = self.now(thread), False

    def _python_call(self, frame) -> None:
        code = frame.f_code
        codes = self.tables.codes
        if code in codes:
            name = codes[code] or _served(frame)
            if name is not None:
                given = list(frame.f_locals.values()) if self.shapes else ()
                if given and "args" in frame.f_locals:
                    given = frame.f_locals["args"]
                self.enter(f"aten::{name}", frame, given=[x for x in given
                                                          if isinstance(x, Tensor)])
            return
        if code is ACCUMULATE:  # called from several places of the walk
            self.enter("torch::autograd::AccumulateGrad", frame)
            return
        caller = frame.f_back
        if caller is not None and caller.f_code in WALKING and code not in NOT_STEPS:
            self._step_back(caller, frame, None)
        elif code.co_qualname in SEEN_BY_NAME and code.co_filename.startswith(LIBRARY):
            name = SEEN_BY_NAME[code.co_qualname].format(type(frame.f_locals["self"]).__name__)
            self.enter(name, frame, kind="user")

    def _native_call(self, frame, function) -> None:
        name = self.tables.natives.get(function)
        owner = getattr(function, "__self__", None)
        if name is None and isinstance(owner, Tensor) and function.__name__ in self.tables.methods:
            name = function.__name__
        if name is not None:
            given: tuple = ()
            if self.shapes:
                given = (owner,) if isinstance(owner, Tensor) else ()
                if "_given" in frame.f_locals:
                    given = frame.f_locals["_given"]
            name = {"__getitem__": "index", "__setitem__": "index_put_"}.get(name, name)
            self.enter(f"aten::{name}", frame, function, given=given)
        elif frame.f_code in WALKING and getattr(function, "__name__", "") == "pull":
            self._step_back(frame, frame, function)

    def _step_back(self, walking, frame, function) -> None:
        node = walking.f_locals.get("node")
        if node is None or not hasattr(node, "sigs"):
            return
        g = walking.f_locals.get("g")
        self.enter(node.name(), frame, function, given=(g,) if isinstance(g, Tensor) else ())


def _called_from_python(native):
    """A function whose call of the native form Python reports."""

    def passing_on(*_given, **named):
        return native(*_given, **named)

    passing_on.__name__ = native.__name__
    return passing_on


def _stack_of(frame) -> list[str]:
    """The lines of the user that led here, innermost first."""
    found = []
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(LIBRARY):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return found


def _measured(repeats: int = 2000) -> int:
    """Nanoseconds that one report takes beside the function that is told."""

    def told(frame, what, arg):
        perf_counter_ns()

    def nothing():
        pass

    def loop():
        started = perf_counter_ns()
        for _ in range(repeats):
            nothing()
        return perf_counter_ns() - started

    before = sys.getprofile()
    plain = min(loop() for _ in range(3))
    sys.setprofile(told)
    try:
        reported = min(loop() for _ in range(3))
    finally:
        sys.setprofile(before)
    return max(reported - plain, 0) // (2 * repeats)


REPORTING = _measured()
