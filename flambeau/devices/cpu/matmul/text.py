"""Instructions of one function, collected as text, with the few shapes that loops here have."""

from __future__ import annotations

import re

from ...text import Text


class Code(Text):
    """Instructions, blocks and declarations of one function."""

    mark = "."

    # -- numbers and places ------------------------------------------------------------------

    def at(self, base: str, offset) -> str:
        """The place so many bytes on."""
        return self.emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def word(self, base: str, i: int, type_: str = "i64") -> str:
        return self.emit(f"load {type_}, ptr {self.at(base, 8 * i)}")

    def put(self, base: str, i: int, value: str, type_: str = "i64") -> None:
        self.do(f"store {type_} {value}, ptr {self.at(base, 8 * i)}")

    def op(self, name: str, x, y, type_: str = "i64") -> str:
        return self.emit(f"{name} {type_} {x}, {y}")

    def add(self, x, y) -> str:
        return self.op("add", x, y)

    def sub(self, x, y) -> str:
        return self.op("sub", x, y)

    def mul(self, x, y) -> str:
        return self.op("mul", x, y)

    def is_(self, how: str, x, y, type_: str = "i64") -> str:
        return self.emit(f"icmp {how} {type_} {x}, {y}")

    def pick(self, test: str, x, y, type_: str = "i64") -> str:
        return self.emit(f"select i1 {test}, {type_} {x}, {type_} {y}")

    def least(self, x, y) -> str:
        return self.pick(self.is_("slt", x, y), x, y)

    # -- control -----------------------------------------------------------------------------

    def when(self, test: str, then, otherwise=None) -> None:
        """Run then() if the test holds, else otherwise()."""
        yes, no, done = (self.fresh(s)[1:] for s in ("yes", "no", "done"))
        self.do(f"br i1 {test}, label %{yes}, label %{no if otherwise else done}")
        for label, branch in ((yes, then), (no, otherwise)):
            if branch:
                self.start(label)
                branch()
                self.do(f"br label %{done}")
        self.start(done)

    def either(self, test: str, then, otherwise, type_: str = "i64") -> str:
        """What then() gives if the test holds, else a value."""
        yes, done, before = self.fresh("yes")[1:], self.fresh("done")[1:], self.block
        self.do(f"br i1 {test}, label %{yes}, label %{done}")
        self.start(yes)
        given, after = then(), self.block
        self.do(f"br label %{done}")
        self.start(done)
        return self.emit(f"phi {type_} [ {otherwise}, %{before} ], [ {given}, %{after} ]")

    def loop(self, start, stop, step, body, carried=()) -> list[str]:
        """for i in range(start, stop, step): body(i, values); carries (type, value) pairs along.

        body returns the next values. The step may be an integer or what body(i) says: a function
        of nothing called after it. The test is at the end, behind a first one.
        """
        head, done, before = self.fresh("head")[1:], self.fresh("done")[1:], self.block
        some = self.is_("slt", start, stop)
        self.do(f"br i1 {some}, label %{head}, label %{done}")
        self.start(head)
        i, following = self.fresh("i"), self.fresh("next")
        values = [self.fresh("s") for _ in carried]
        hole = len(self.lines)
        self.lines.append("")
        results = body(i, values) or []
        self.do(f"{following} = add i64 {i}, {step() if callable(step) else step}")
        more = self.is_("slt", following, stop)
        latch = self.block
        self.do(f"br i1 {more}, label %{head}, label %{done}")
        rows = [("i64", i, start, following)]
        rows += [(t, name, v, r) for (t, v), name, r in zip(carried, values, results, strict=True)]
        self.lines[hole] = "\n".join(
            f"  {name} = phi {t} [ {first}, %{before} ], [ {later}, %{latch} ]"
            for t, name, first, later in rows)
        self.start(done)
        return [self.emit(f"phi {t} [ {v}, %{before} ], [ {r}, %{latch} ]")
                for (t, v), r in zip(carried, results, strict=True)]

    def function(self, name: str, arguments: str, kind: str = "") -> str:
        """The text of a function of nothing but these instructions."""
        lines = "\n".join(self.lines)
        return f"define {kind}void @{name}({arguments}) #0 {{\nentry:\n{lines}\n  ret void\n}}\n"


def module(functions) -> str:
    """One module of (text, declared) pairs; what is defined in it is not declared."""
    functions = list(functions)
    text = "".join(part for part, _ in functions)
    defined = set(re.findall(r"^define [^@]*@([\w.]+)", text, re.MULTILINE))
    declared = {name: line for _, names in functions for name, line in names.items()
                if name not in defined}
    return (text + "\n".join(declared.values())
            + '\nattributes #0 = { nounwind "no-trapping-math"="true" }\n')
