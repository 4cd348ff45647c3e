"""What older processors of x86 lack, written with what they have, in the text of a module.

Left to itself LLVM calls the C library there for every lane: a fused product and sum then takes a
hundred times as long as two instructions, and what converts half precision may not exist at all.
"""

from __future__ import annotations

import re

from .processor import Processor

_FUSED = re.compile(r"@llvm\.fma\.(?:v(\d+))?f(32|64)\b")
_DECLARED = re.compile(r"^declare [^\n]*@llvm\.fma\.[^\n]*\n?", re.MULTILINE)
_HALVES = re.compile(
    r"(fpext|fptrunc)(?: contract)? (?:<(\d+) x )?(half|float)>? (\S+|splat \([^)]*\))"
    r" to (?:<\d+ x )?(half|float)\b>?")


def completed(ir: str, processor: Processor) -> str:
    """The same module for this processor."""
    if processor.triple.startswith("x86_64"):
        if "llvm.fma." in ir and not processor.has & {"fma", "fma4"}:
            ir = _without_fused(ir)
        if "half" in ir and "f16c" not in processor.has:
            ir = _without_halves(ir)
    return ir


def _of(kind: str, lanes: int) -> str:
    """A type; no lanes are a single number."""
    return kind if not lanes else f"<{lanes} x {kind}>"


def _number(kind: str, value: str, lanes: int) -> str:
    return value if not lanes else f"splat ({kind} {value})"


def _function(name: str, result: str, arguments: str, lines: list[str]) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"\ndefine internal {result} @{name}({arguments}) alwaysinline nounwind {{\n{body}\n}}\n"


# -- a product and a sum, rounded once -------------------------------------------------------------


def _without_fused(ir: str) -> str:
    needed = {(int(lanes or 0), bits) for lanes, bits in _FUSED.findall(ir)}
    ir = _FUSED.sub(lambda found: f"@{_fused_name(int(found[1] or 0), found[2])}",
                    _DECLARED.sub("", ir))
    return ir + "".join((_fused_32 if bits == "32" else _fused_64)(lanes)
                        for lanes, bits in sorted(needed))


def _fused_name(lanes: int, bits: str) -> str:
    return f"flambeau.fma.v{lanes}f{bits}"


def _fused_32(lanes: int) -> str:
    """In double precision, where the product is exact: then it is rounded twice, which is once but
    for one sum in hundreds of millions."""
    one, two = _of("float", lanes), _of("double", lanes)
    return _function(_fused_name(lanes, "32"), one, f"{one} %a, {one} %b, {one} %c", [
        *(f"%{v}.2 = fpext {one} %{v} to {two}" for v in "abc"),
        f"%p = fmul {two} %a.2, %b.2",
        f"%s = fadd {two} %p, %c.2",
        f"%r = fptrunc {two} %s to {one}",
        f"ret {one} %r"])


def _fused_64(lanes: int) -> str:
    """With what the product and the sum lose when they are rounded, of Dekker and of Knuth. Where
    something is infinite, or halves of it would be, nothing is known of that."""
    type_ = _of("double", lanes)

    def op(name: str, code: str, x: str, y: str) -> str:
        return f"%{name} = {code} {type_} %{x}, {y if ' ' in y or y[0] == '0' else '%' + y}"

    def halves(v: str) -> list[str]:
        """Of 26 bits each."""
        return [op(f"{v}.m", "fmul", v, _number("double", "0x41A0000002000000", lanes)),
                op(f"{v}.d", "fsub", f"{v}.m", v), op(f"{v}.h", "fsub", f"{v}.m", f"{v}.d"),
                op(f"{v}.l", "fsub", v, f"{v}.h")]

    lines = [op("p", "fmul", "a", "b"), *halves("a"), *halves("b"),
             op("e0", "fmul", "a.h", "b.h"), op("e1", "fsub", "e0", "p")]
    for k, (x, y) in enumerate((("a.h", "b.l"), ("a.l", "b.h"), ("a.l", "b.l"))):
        lines += [op(f"q{k}", "fmul", x, y), op(f"e{k + 2}", "fadd", f"e{k + 1}", f"q{k}")]
    lines += [op("s", "fadd", "p", "c"), op("c.s", "fsub", "s", "p"), op("p.s", "fsub", "s", "c.s"),
              op("c.l", "fsub", "c", "c.s"), op("p.l", "fsub", "p", "p.s"),
              op("t", "fadd", "p.l", "c.l"), op("tail", "fadd", "t", "e4"),
              op("exact", "fadd", "s", "tail"),
              op("some", "fcmp one", "tail", _number("double", "0.0", lanes)),
              f"%r = select {_of('i1', lanes)} %some, {type_} %exact, {type_} %s",
              f"ret {type_} %r"]
    return _function(_fused_name(lanes, "64"), type_,
                     f"{type_} %a, {type_} %b, {type_} %c", lines)


# -- half precision --------------------------------------------------------------------------------


def _without_halves(ir: str) -> str:
    needed: dict[tuple[str, int], str] = {}

    def called(found: re.Match) -> str:
        code, many, source, value, target = found.groups()
        if source == target:
            return found[0]
        lanes = int(many or 0)
        name = f"flambeau.{code}.{lanes}"
        needed[code, lanes] = name
        return f"call {_of(target, lanes)} @{name}({_of(source, lanes)} {value})"

    ir = _HALVES.sub(called, ir)
    return ir + "".join((_wider if code == "fpext" else _narrower)(name, lanes)
                        for (code, lanes), name in needed.items())


class _Bits:
    """Lines on 32 bits in every lane."""

    def __init__(self, lanes: int):
        self.lines: list[str] = []
        self.lanes = lanes
        self.words, self.halves = _of("i32", lanes), _of("i16", lanes)
        self.floats, self.flags = _of("float", lanes), _of("i1", lanes)

    def new(self, code: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {code}")
        return name

    def op(self, code: str, x: str, y: int | str) -> str:
        y = y if isinstance(y, str) else _number("i32", str(y), self.lanes)
        return self.new(f"{code} {self.words} {x}, {y}")

    def cast(self, code: str, source: str, x: str, target: str) -> str:
        return self.new(f"{code} {source} {x} to {target}")

    def of_floats(self, code: str, x: str, y: int | str) -> str:
        """The bits of a result on floats that are given by theirs."""
        y = y if isinstance(y, str) else self.op("add", _number("i32", "0", self.lanes), y)
        a, b = (self.cast("bitcast", self.words, v, self.floats) for v in (x, y))
        return self.cast("bitcast", self.floats, self.new(f"{code} {self.floats} {a}, {b}"),
                         self.words)

    def where(self, test: str, x: str, bound: int, then: str, other: str) -> str:
        flag = self.op(f"icmp {test}", x, bound)
        return self.new(f"select {self.flags} {flag}, {self.words} {then}, {self.words} {other}")


def _wider(name: str, lanes: int) -> str:
    """float32 of float16: the exponent counts from elsewhere, and small ones are made normal."""
    b, source = _Bits(lanes), _of("half", lanes)
    short = b.cast("bitcast", source, "%x", b.halves)
    word = b.cast("zext", b.halves, short, b.words)
    moved = b.op("shl", b.op("and", word, 0x7fff), 13)
    exponent = b.op("and", moved, 0x0f800000)
    usual = b.op("add", moved, 112 << 23)
    small = b.of_floats("fsub", b.op("add", moved, 113 << 23), 113 << 23)
    found = b.where("eq", exponent, 0, small, usual)
    found = b.where("eq", exponent, 0x0f800000, b.op("add", usual, 112 << 23), found)
    signed = b.op("or", found, b.op("shl", b.op("and", word, 0x8000), 16))
    b.lines.append(f"ret {b.floats} {b.cast('bitcast', b.words, signed, b.floats)}")
    return _function(name, b.floats, f"{source} %x", b.lines)


def _narrower(name: str, lanes: int) -> str:
    """float16 of float32, to nearest, ties to even; 0.5 added rounds where small ones end."""
    b, target = _Bits(lanes), _of("half", lanes)
    word = b.cast("bitcast", b.floats, "%x", b.words)
    size = b.op("and", word, 0x7fffffff)
    odd = b.op("and", b.op("lshr", size, 13), 1)
    usual = b.op("lshr", b.op("add", b.op("add", size, 0xfff - (112 << 23)), odd), 13)
    small = b.op("sub", b.of_floats("fadd", size, 0x3f000000), 0x3f000000)
    nan = b.op("or", b.op("and", b.op("lshr", size, 13), 0x3ff), 0x7e00)
    large = b.where("ugt", size, 0x7f800000, nan, _number("i32", "31744", lanes))
    found = b.where("ult", size, 113 << 23, small, usual)
    found = b.where("uge", size, 143 << 23, large, found)
    signed = b.op("or", found, b.op("lshr", b.op("and", word, -0x80000000), 16))
    short = b.cast("trunc", b.words, signed, b.halves)
    b.lines.append(f"ret {target} {b.cast('bitcast', b.halves, short, target)}")
    return _function(name, target, f"{b.floats} %x", b.lines)
