"""A model as machine code that needs no Python: an object file, a C header, a shared library.

    export.native(model, example, "model")     # model.o, model.h, and libmodel.so with a linker

    int model(const float *x, float *output);  /* 0, or the number of a check that failed */

The model is compiled as by compile(fullgraph=True); the code of its launches, the words they read
and its weights go into one module. Sizes are those of the example.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flambeau
from flambeau import Tensor, nn

from ..compiler.compiled import Compiled
from ..compiler.script import Given, Made, Run, flatten
from .graph import mapped
from .image import Image, NativeError
from .play import GraphModule, folded
from .record import recorded, tensors_of

#: dtypes in C
C_TYPES = {
    flambeau.float32: "float", flambeau.float64: "double", flambeau.int64: "int64_t",
    flambeau.int32: "int32_t", flambeau.int16: "int16_t", flambeau.int8: "int8_t",
    flambeau.uint8: "uint8_t", flambeau.bool: "bool", flambeau.float16: "uint16_t",
    flambeau.bfloat16: "uint16_t",
}  # fmt: skip
_ALIGN = 64


@dataclass
class NativeLibrary:
    """What was written: paths, and what the function takes and gives."""

    name: str
    object_file: Path
    header: Path
    library: Path | None
    inputs: list[tuple[str, flambeau.dtype, tuple[int, ...]]]
    outputs: list[tuple[str, flambeau.dtype, tuple[int, ...]]]


def native(model, example, path, *, name: str | None = None, triple: str | None = None,
           cpu: str | None = None, features: str | None = None, threads: int = 1, input_names=None,
           output_names=None) -> NativeLibrary:
    """Write a model as an object file and a C header, and as a library where a linker is found.

    `path` is where, without a suffix; its last part is the name of the C function. `triple` (with
    `cpu` and `features`) is another machine to write for; without it code is for this one, with all
    its instructions. With `threads` above 1 the code has a pool of its own of so many.
    """
    where = Path(path)
    name = name or where.name
    if not name.isidentifier():
        raise ValueError(f"export.native: {name!r} is no name for a C function")
    args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    call = Recorded(model, args)
    image = Image(name, triple, cpu, features, threads)
    signature = call.signature(input_names, output_names)
    parent = where.parent
    parent.mkdir(parents=True, exist_ok=True)
    code = call.written(image, name)
    object_file, header = where.with_name(name + ".o"), where.with_name(name + ".h")
    object_file.write_bytes(code)
    header.write_text(_header(name, *signature), encoding="utf-8")
    library = _linked(object_file, name) if triple is None else None
    return NativeLibrary(name, object_file, header, library, *signature)


class Recorded:
    """One call of a model as programs, and where each of them finds its memory."""

    def __init__(self, model, args: tuple):
        self.args = mapped(args, lambda a: a.detach().contiguous() if isinstance(a, Tensor) else a)
        self.results: list[Tensor] = []
        self.given = tensors_of(self.args)
        training = isinstance(model, nn.Module) and model.training
        if training:
            model.eval()
        try:
            names = [f"input{k}" for k in range(len(self.given))]
            graph = folded(recorded(model, self.args, {}, names))
        finally:
            if training:
                model.train()
        program = GraphModule(graph)

        def flat(*given):
            made: list[Tensor] = []
            mapped(program(*given), lambda a: made.append(a.clone(
                memory_format=flambeau.contiguous_format)) if isinstance(a, Tensor) else None)
            return tuple(made)

        flat.__name__ = graph.name
        self._record(flat)

    def _record(self, flat) -> None:
        compiled = Compiled(flat, fullgraph=True)
        with flambeau.no_grad():
            flat(*self.args)  # plans are made before anything is recorded
            for _ in range(4):
                self.results = list(compiled(*self.args))
                if compiled.scripts:
                    break
        script = compiled.scripts[0] if compiled.scripts else None
        if script is None:
            raise NativeError(f"export.native: {flat.__name__} is not one program:\n"
                              f"{compiled.report}")
        for action in script.actions:
            if not isinstance(action, Run):
                raise NativeError(f"export.native: {flat.__name__} calls Python between ops")
            if action.variant.written:
                raise NativeError(f"export.native: {flat.__name__} changes its inputs or weights; "
                                  "export a model in eval mode")
        self.script, self.compiled = script, compiled
        leaves: list = []
        flatten((self.args, {}), leaves)
        numbers = [k for k, v in enumerate(leaves) if isinstance(v, Tensor)]
        self.inputs = {leaf: k for k, leaf in enumerate(numbers)}

    def signature(self, input_names, output_names):
        """What the function takes and gives: names, dtypes and shapes."""
        for x in (*self.given, *self.results):
            if x.dtype not in C_TYPES:
                raise NativeError(f"export.native: C has no type for {x.dtype}")
        ins, outs = list(input_names or ()), list(output_names or ())
        ins += [f"input{k}" for k in range(len(ins), len(self.given))]
        outs += [f"output{k}" for k in range(len(outs), len(self.results))]
        return ([(n, x.dtype, tuple(x.shape)) for n, x in zip(ins, self.given, strict=True)],
                [(n, x.dtype, tuple(x.shape)) for n, x in zip(outs, self.results, strict=True)])

    # -- writing it ------------------------------------------------------------------------------

    def written(self, image: Image, name: str) -> bytes:
        """Object code with one visible function."""
        self.data = image.data
        wanted = [(s.action, s.value) for s in self.script.result[1]]
        self.blob = bytearray()
        self.placed: dict[bytes, int] = {}
        self.room = 0
        self.programs: list[str] = []
        #: (action, value) -> how its address is written
        made: dict[tuple[int, int], str] = {}
        lines: list[str] = []
        for number, run in enumerate(self.script.actions):
            lines += self._run(image, number, run, made, wanted)
        for k, key in enumerate(wanted):
            if made[key] != f"%out{k}":
                size = self.results[k].nbytes
                lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr %out{k}, ptr {made[key]}, "
                             f"i64 {size}, i1 false)")
        self.blob += bytes(max(0, _ALIGN - len(self.blob)))
        return image.finish(self._entry(name, lines), bytes(self.blob))

    def _store(self, raw: bytes) -> int:
        """Where bytes are in the data that goes with the code."""
        if raw not in self.placed:
            self.blob += bytes(-len(self.blob) % _ALIGN)
            self.placed[raw] = len(self.blob)
            self.blob += raw
        return self.placed[raw]

    def _reserve(self, size: int) -> int:
        """A place in the memory that a call works in."""
        at = self.room
        self.room += -(-max(1, size) // _ALIGN) * _ALIGN
        return at

    def _run(self, image: Image, number: int, run: Run, made, wanted) -> list[str]:
        """Lines that fill the table of a program and call it."""
        program = run.program.prepare()
        symbol = image.add_program(program, number)
        self.programs.append(symbol)
        entries = [f"room+{self._reserve(program.placement.size)}",
                   f"data+{self._store(_bytes_at(program.data.address, program.data.nbytes))}"]
        places = {}
        hosts = {*program.placement.hosts.values()}  # work goes on there: it is no caller's memory
        for n, (_, size) in enumerate(program.pools):
            keys = [k for k, _, at, offset in run.inner if at == n and offset == 0]
            out = next((w for w, key in enumerate(wanted) if key[0] == number and key[1] in keys
                        and self.results[w].nbytes == size
                        and program.results[n] not in hosts), None)
            places[n] = f"%out{out}" if out is not None else f"room+{self._reserve(size)}"
            entries.append(places[n])
        for k, _, n, offset in run.inner:
            made[number, k] = places[n] if not offset else f"{places[n]}+{offset}"
        for source in run.sources[:program.outside]:
            entries.append(self._outside(source, made))
        return self._table(number, symbol, entries, run.numbers[:program.numbers],
                           [image.words(a) for a in program.foreign], made)

    def _outside(self, source, made) -> str:
        if isinstance(source, Given):
            return f"%in{self.inputs[source.number]}"
        if isinstance(source, Made):
            return made[source.action, source.value]
        x = source.tensor
        low, high = _extent(x)
        return f"data+{self._store(_bytes_at(low, high - low)) + x.ptr - low}"

    def _table(self, number: int, symbol: str, entries, numbers, foreign, made) -> list[str]:
        lines, count = [], len(entries) + len(numbers) + len(foreign)
        lines.append(f"  %table{number} = alloca [{max(1, count)} x i64], align 16")
        slot = 0

        def put(kind: str, value: str) -> None:
            nonlocal slot
            lines.append(f"  %slot{number}.{slot} = getelementptr i64, ptr %table{number}, "
                         f"i64 {slot}")
            lines.append(f"  store {kind} {value}, ptr %slot{number}.{slot}")
            slot += 1

        for k, entry in enumerate(entries):
            base, _, offset = entry.partition("+")
            root = {"room": "%room", "data": f"@{self.data}"}.get(base, base)
            if offset:
                lines.append(f"  %entry{number}.{k} = getelementptr i8, ptr {root}, i64 {offset}")
                root = f"%entry{number}.{k}"
            put("ptr", root)
        for value in numbers:
            put("double", _double(value))
        for value in foreign:
            put("ptr", value)
        for key, value in list(made.items()):  # what later lines read has to be a name by itself
            base, _, offset = value.partition("+")
            if key[0] == number and offset:
                name = f"%made{number}.{key[1]}"
                root = {"room": "%room"}.get(base, base)
                lines.append(f"  {name} = getelementptr i8, ptr {root}, i64 {offset}")
                made[key] = name
        lines.append(f'  call void @"{symbol}"(ptr %table{number}, ptr %failed, i64 0)')
        lines += [f"  %code{number} = load i64, ptr %failed",
                  f"  %bad{number} = icmp ne i64 %code{number}, 0",
                  f"  br i1 %bad{number}, label %stop, label %next{number}", f"next{number}:"]
        return lines

    def _entry(self, name: str, lines: list[str]) -> str:
        given = [f"ptr %in{k}" for k in range(len(self.given))]
        given += [f"ptr %out{k}" for k in range(len(self.results))]
        body = "\n".join(lines)
        declared = "\n".join(f'declare void @"{symbol}"(ptr, ptr, i64)' for symbol in self.programs)
        return f"""
{declared}
declare ptr @flambeau_scratch_take(i64)
declare void @flambeau_scratch_give(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define i32 @{name}({', '.join(given)}) {{
entry:
  %failed = alloca [3 x i64], align 16
  store i64 0, ptr %failed
  %room = call ptr @flambeau_scratch_take(i64 {self.room or 1})
{body}
  br label %stop
stop:
  call void @flambeau_scratch_give(ptr %room)
  %code = load i64, ptr %failed
  %short = trunc i64 %code to i32
  ret i32 %short
}}
"""


def _bytes_at(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


def _extent(x: Any) -> tuple[int, int]:
    """The addresses that a tensor's elements lie between."""
    reach = [(n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)] if x.numel() else []
    low = sum(r for r in reach if r < 0) * x.itemsize
    high = (sum(r for r in reach if r > 0) + 1) * x.itemsize if x.numel() else 0
    return x.ptr + low, x.ptr + high


def _double(value: float) -> str:
    return "0x" + struct.pack(">d", value).hex().upper()


def _header(name: str, inputs, outputs) -> str:
    """The C declaration, with shapes."""
    shapes = "\n".join(f" *   {n}: {C_TYPES[dtype]} [{', '.join(map(str, shape))}]"
                       for n, dtype, shape in (*inputs, *outputs))
    given = ", ".join([*(f"const {C_TYPES[dtype]} *{n}" for n, dtype, _ in inputs),
                       *(f"{C_TYPES[dtype]} *{n}" for n, dtype, _ in outputs)])
    guard = f"{name.upper()}_H"
    return f"""#ifndef {guard}
#define {guard}

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Elements are packed, the last axis running fastest:
{shapes}
 * Returns 0, or the number of a check (of an index, say) that failed. Any thread may call it.
 */
int {name}({given or 'void'});

#ifdef __cplusplus
}}
#endif

#endif
"""


def _linked(object_file: Path, name: str) -> Path | None:
    """A shared library, if there is anything to link with."""
    library = object_file.with_name(f"lib{name}.so")
    linkers = [[found, "-shared", "-o", str(library), str(object_file), "-lm",
                "-lpthread"]
               for found in map(shutil.which, ("cc", "gcc", "clang", "ld")) if found]
    for command in linkers:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return library
    return None
