"""Machine code written as Python: values with operators, variables, loops and branches.

A `Function` collects instructions as its `Value`s are combined; local variables become registers
in LLVM's passes. `module_text` joins functions with the wrappers through which Python calls them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ....core import dtype as dt
from ....core import expr as ex
from ...llvm import Exprs, Place, number
from ...text import Text
from ..bridge import ENTRY_CALLS, entry_ir
from ..compile import ATTRIBUTES

BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "i128": 16, "half": 2, "float": 4,
         "double": 8, "ptr": 8}
DTYPES = {"i1": dt.bool_, "i32": dt.int32, "i64": dt.int64, "float": dt.float32,
          "double": dt.float64}
_FLOATS = ("half", "float", "double")


def wide(type_: str, lanes: int) -> str:
    """The type of so many elements."""
    return type_ if lanes == 1 else f"<{lanes} x {type_}>"


def parts(type_: str) -> tuple[str, int]:
    """The element of a type, and how many of them."""
    if type_[0] != "<":
        return type_, 1
    lanes, element = type_[1:-1].split(" x ")
    return element, int(lanes)


class Value:
    """A register or a constant, with its type."""

    __slots__ = ("f", "name", "type")

    def __init__(self, f: Function, type_: str, name: str):
        self.f, self.type, self.name = f, type_, name

    @property
    def element(self) -> str:
        return parts(self.type)[0]

    @property
    def lanes(self) -> int:
        return parts(self.type)[1]

    @property
    def floating(self) -> bool:
        return self.element in _FLOATS

    def _with(self, whole: str, floating: str, other) -> Value:
        other = self.f.const(self.type, other)
        code = floating if self.floating else whole
        return self.f.new(self.type, f"{code} {self.type} {self.name}, {other.name}")

    def _compare(self, whole: str, floating: str, other) -> Value:
        other = self.f.const(self.type, other)
        code = f"fcmp {floating}" if self.floating else f"icmp {whole}"
        return self.f.new(wide("i1", self.lanes), f"{code} {self.type} {self.name}, {other.name}")

    def __add__(self, other): return self._with("add", "fadd", other)
    def __sub__(self, other): return self._with("sub", "fsub", other)
    def __mul__(self, other): return self._with("mul", "fmul", other)
    def __truediv__(self, other): return self._with("udiv", "fdiv", other)
    def __mod__(self, other): return self._with("urem", "frem", other)
    def __and__(self, other): return self._with("and", "and", other)
    def __or__(self, other): return self._with("or", "or", other)
    def __xor__(self, other): return self._with("xor", "xor", other)
    def __lshift__(self, other): return self._with("shl", "shl", other)
    def __rshift__(self, other): return self._with("lshr", "lshr", other)
    def __radd__(self, other): return self.f.const(self.type, other) + self
    def __rsub__(self, other): return self.f.const(self.type, other) - self
    def __rmul__(self, other): return self.f.const(self.type, other) * self
    def __rtruediv__(self, other): return self.f.const(self.type, other) / self
    def __neg__(self): return self.f.const(self.type, -0.0 if self.floating else 0) - self
    def __invert__(self): return self ^ -1
    def __lt__(self, other): return self._compare("slt", "olt", other)
    def __le__(self, other): return self._compare("sle", "ole", other)
    def __gt__(self, other): return self._compare("sgt", "ogt", other)
    def __ge__(self, other): return self._compare("sge", "oge", other)
    def __eq__(self, other): return self._compare("eq", "oeq", other)
    def __ne__(self, other): return self._compare("ne", "une", other)
    __hash__ = object.__hash__

    def below(self, other) -> Value:
        """Unsigned <."""
        return self._compare("ult", "olt", other)

    def sar(self, other) -> Value:
        """A shift to the right that keeps the sign."""
        return self._with("ashr", "ashr", other)

    def isnan(self) -> Value:
        return self._compare("", "uno", self)

    def _cast(self, code: str, element: str) -> Value:
        target = wide(element, self.lanes)
        if target == self.type:
            return self
        return self.f.new(target, f"{code} {self.type} {self.name} to {target}")

    def to(self, element: str, signed: bool = False) -> Value:
        """Converted; integers grow without a sign unless told, and are signed as floats."""
        if self.element == element:
            return self
        if self.floating and element in _FLOATS:
            return self._cast("fpext" if BYTES[element] > BYTES[self.element] else "fptrunc",
                              element)
        if self.floating:
            return self._cast("fptosi", element)
        if element in _FLOATS:
            return self._cast("uitofp" if self.element == "i1" else "sitofp", element)
        smaller = BYTES[element] < BYTES[self.element] or element == "i1"
        return self._cast("trunc" if smaller else "sext" if signed else "zext", element)

    def bits(self, type_: str) -> Value:
        """The same bits as another type."""
        if type_ == self.type:
            return self
        return self.f.new(type_, f"bitcast {self.type} {self.name} to {type_}")

    def pick(self, yes, no, foretold: bool = True) -> Value:
        """yes where this holds, else no; one of them a value.

        What cannot be foretold is not made a branch.
        """
        kind = yes.type if isinstance(yes, Value) else no.type
        yes, no = self.f.const(kind, yes), self.f.const(kind, no)
        note = "" if foretold else ", !unpredictable !0"
        return self.f.new(kind, f"select {self.type} {self.name}, {kind} {yes.name}, "
                                f"{kind} {no.name}{note}")

    def lane(self, i) -> Value:
        at = self.f.const("i64", i)
        return self.f.new(self.element, f"extractelement {self.type} {self.name}, i64 {at.name}")

    def spread(self, lanes: int) -> Value:
        """This in every lane."""
        if lanes == 1:
            return self
        kind = wide(self.type, lanes)
        one = self.f.new(kind, f"insertelement {kind} poison, {self.type} {self.name}, i64 0")
        return self.f.new(kind, f"shufflevector {kind} {one.name}, {kind} poison, "
                                f"<{lanes} x i32> zeroinitializer")

    def shuffle(self, order, other: Value | None = None) -> Value:
        """Lanes picked by number; those of another vector count on."""
        if len(order) == 1:
            of = self if other is None or order[0] < self.lanes else other
            return of.lane(order[0] % self.lanes)
        mask = ", ".join(f"i32 {k}" for k in order)
        second = "poison" if other is None else other.name
        return self.f.new(wide(self.element, len(order)),
                          f"shufflevector {self.type} {self.name}, {self.type} {second}, "
                          f"<{len(order)} x i32> <{mask}>")

    def mask(self) -> Value:
        """The bits of a comparison as an integer."""
        return self.bits(f"i{self.lanes}")

    # -- memory, of pointers ---------------------------------------------------------------------

    def at(self, element: str, i) -> Value:
        """The address of an element."""
        i = self.f.const("i64", i)
        return self.f.new("ptr", f"getelementptr {element}, ptr {self.name}, i64 {i.name}")

    def load(self, type_: str, i=0) -> Value:
        """`type_` at element i."""
        element, _ = parts(type_)
        place = self if isinstance(i, int) and i == 0 else self.at(element, i)
        return self.f.new(type_, f"load {type_}, ptr {place.name}, align {BYTES[element]}")

    def store(self, value: Value, i=0) -> None:
        place = self if isinstance(i, int) and i == 0 else self.at(value.element, i)
        self.f.do(f"store {value.type} {value.name}, ptr {place.name}, "
                  f"align {BYTES[value.element]}")


class Variable:
    """A local variable: v() is its value."""

    def __init__(self, f: Function, type_: str, name: str):
        self.f, self.type, self.name = f, type_, name

    def __call__(self) -> Value:
        return self.f.new(self.type, f"load {self.type}, ptr {self.name}")

    def set(self, value) -> None:
        value = self.f.const(self.type, value)
        self.f.do(f"store {self.type} {value.name}, ptr {self.name}")

    def add(self, value) -> None:
        self.set(self() + value)


class Function(Text):
    """A function being written; its arguments are its attributes.

    A local one is seen only by the others of its module; a raw one is given Python's arguments as
    they are, and has no wrapper that unpacks them.
    """

    def __init__(self, name: str, arguments: str, result: str = "void", local: bool = False,
                 raw: bool = False):
        super().__init__()
        self.name, self.result, self.local, self.raw = name, result, local, raw
        self.parameters = [a.split() for a in arguments.split(", ")] if arguments else []
        self.locals: list[str] = []
        for type_, argument in self.parameters:
            setattr(self, argument, Value(self, type_, f"%{argument}"))

    def __getattr__(self, name: str) -> Value:
        raise AttributeError(f"{self.name} has no argument {name}")

    def new(self, type_: str, code: str) -> Value:
        return Value(self, type_, self.emit(code))

    def parameters_by_name(self) -> dict[str, Value]:
        return {name: Value(self, type_, f"%{name}") for type_, name in self.parameters}

    def const(self, type_: str, value) -> Value:
        """A number of a type; a value stays what it is."""
        if isinstance(value, (Value, Variable)):
            return value() if isinstance(value, Variable) else value
        element, lanes = parts(type_)
        if element in _FLOATS:
            text = number(float(value), dt.float64 if element == "double" else dt.float32)
        elif element == "i1":
            text = "true" if value else "false"
        else:
            text = "null" if element == "ptr" else str(value)
        return Value(self, type_, text if lanes == 1 else f"splat ({element} {text})")

    def vector(self, element: str, numbers) -> Value:
        """A vector of constants."""
        numbers = list(numbers)
        text = ", ".join(f"{element} {self.const(element, k).name}" for k in numbers)
        return Value(self, wide(element, len(numbers)), f"<{text}>")

    def var(self, type_: str, value=None) -> Variable:
        name = self.fresh("x")
        self.locals.append(f"  {name} = alloca {type_}")
        made = Variable(self, type_, name)
        if value is not None:
            made.set(value)
        return made

    def room(self, element: str, count: int) -> Value:
        """Memory for so many elements, as long as the function runs."""
        name = self.fresh("x")
        self.locals.append(f"  {name} = alloca [{count} x {element}], align 64")
        return Value(self, "ptr", name)

    def calls(self, name: str, result: str, *arguments: Value) -> Any:
        """Call a function by name; its result, if it has one."""
        made = self.call(name, result, [(a.type, a.name) for a in arguments])
        return Value(self, result, made) if made else None

    def run(self, other: Function, *arguments: Value) -> Any:
        """Call a function of the same module; its result, if it has one."""
        passed = ", ".join(f"{a.type} {a.name}" for a in arguments)
        code = f"call {other.result} @{other.name}({passed})"
        if other.result == "void":
            self.do(code)
            return None
        return self.new(other.result, code)

    def intrinsic(self, name: str, *arguments: Value) -> Value:
        """One of LLVM's functions of arguments of one type."""
        element, lanes = parts(arguments[0].type)
        short = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
        suffix = f"v{lanes}{short}" if lanes > 1 else short
        return self.calls(f"llvm.{name}.{suffix}", arguments[0].type, *arguments)

    def math(self, function: Callable, *values: Value):
        """A function of exprs, of values; several results come as a tuple."""
        lanes = values[0].lanes
        place = Place(lanes, [])
        leaves = []
        for k, value in enumerate(values):
            leaf = ex.make("state", (), k, DTYPES[value.element])
            place.memo[leaf] = value.name
            leaves.append(leaf)
        exprs = Exprs(self)
        found = function(*leaves)
        several = found if isinstance(found, tuple) else (found,)
        names = {v: k for k, v in DTYPES.items()}
        made = tuple(Value(self, wide(names[e.dtype], lanes), exprs.lower(ex.expand(e), place))
                     for e in several)
        return made if isinstance(found, tuple) else made[0]

    def call_math(self, name: str, *values: Value) -> Value:
        """The C library's function of doubles."""
        return self.calls(name, "double", *values)

    # -- control -----------------------------------------------------------------------------------

    def label(self, stem: str) -> str:
        return self.fresh(stem)[1:]

    def go(self, label: str) -> None:
        self.do(f"br label %{label}")

    @contextlib.contextmanager
    def each(self, start, stop, step=1) -> Iterator[Value]:
        """for i in range(start, stop, step)"""
        i, stop = self.var("i64", start), self.const("i64", stop)
        head, inside, done = (self.label(s) for s in ("head", "body", "done"))
        self.go(head)
        self.start(head)
        now = i()
        more = now < stop
        self.do(f"br i1 {more.name}, label %{inside}, label %{done}")
        self.start(inside)
        yield now
        i.set(now + step)
        self.go(head)
        self.start(done)

    @contextlib.contextmanager
    def repeat(self) -> Iterator[Loop]:
        """A loop that ends where its body leaves it."""
        loop = Loop(self)
        self.go(loop.head)
        self.start(loop.head)
        yield loop
        self.go(loop.head)
        self.start(loop.done)

    @contextlib.contextmanager
    def when(self, condition: Value) -> Iterator[Branch]:
        branch = Branch(self)
        self.do(f"br i1 {condition.name}, label %{branch.yes}, label %{branch.no}")
        self.start(branch.yes)
        yield branch
        branch.end = len(self.lines)
        self.go(branch.no)
        self.start(branch.no)

    def give(self, value: Value | None = None) -> None:
        """Return from here; what follows is another block."""
        self.do("ret void" if value is None else f"ret {value.type} {value.name}")
        self.start(self.label("after"))

    def text(self) -> str:
        arguments = ", ".join(f"{t} %{a}" for t, a in self.parameters)
        ended = "" if self.result != "void" else "  ret void\n"
        if self.result != "void":
            ended = "  unreachable\n"
        body = "\n".join([*self.locals, *self.lines])
        linkage = "internal " if self.local else ""
        return (f"define {linkage}{self.result} @{self.name}({arguments}) #0 {{\nentry:\n{body}\n"
                f"{ended}}}\n")


class Loop:
    """Where a loop begins and ends."""

    def __init__(self, f: Function):
        self.f, self.head, self.done = f, f.label("loop"), f.label("done")

    def _branch(self, condition: Value, target: str) -> None:
        on = self.f.label("on")
        self.f.do(f"br i1 {condition.name}, label %{target}, label %{on}")
        self.f.start(on)

    def leave_if(self, condition: Value) -> None:
        self._branch(condition, self.done)

    def again_if(self, condition: Value) -> None:
        self._branch(condition, self.head)

    def leave(self) -> None:
        self.f.go(self.done)
        self.f.start(self.f.label("dead"))

    def again(self) -> None:
        self.f.go(self.head)
        self.f.start(self.f.label("dead"))


class Branch:
    """The two ways of a condition."""

    def __init__(self, f: Function):
        self.f, self.end = f, 0
        self.yes, self.no, self.done = (f.label(s) for s in ("yes", "no", "fi"))

    @contextlib.contextmanager
    def otherwise(self) -> Iterator[None]:
        """Right after the block of the condition."""
        self.f.lines[self.end] = f"  br label %{self.done}"
        yield
        self.f.go(self.done)
        self.f.start(self.done)


# -- modules -------------------------------------------------------------------------------------

_LETTERS = {"ptr": "p", "i64": "q", "double": "d"}


def _entry(f: Function) -> str:
    """Python's way in; how long it takes is told by the last argument."""
    letters = "".join(_LETTERS[type_] for type_, _ in f.parameters)
    return entry_ir(f.name, letters, f"%x{len(letters) - 1}", answers=f.result == "i64")


def module_text(functions: list[Function]) -> str:
    """The functions, wrappers of those that are not local, and what they call."""
    own = {f.name for f in functions}
    declared: dict[str, str] = {}
    for f in functions:
        declared.update({n: text for n, text in f.declared.items() if n not in own})
    bodies = [f.text() + ("" if f.local or f.raw else _entry(f)) for f in functions]
    return ("".join(bodies) + "\n".join(declared.values()) + "\n!0 = !{}\n" + ENTRY_CALLS
            + ATTRIBUTES)


def parallel(f: Function, body: Function, context: Value, count: Value, grain) -> None:
    """body(context, begin, end) over ranges of [0, count), on the pool's threads."""
    target = Value(f, "ptr", f"@{body.name}")
    f.calls("flambeau_parallel", "void", target, context, count, f.const("i64", grain))
