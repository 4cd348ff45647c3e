"""All code that programs call as one LLVM module, with the words that the code reads.

Code is known by its address in this process: what wrote it is asked again for its text. Words are
tables of integers, some of which are addresses of other tables or of code.
"""

from __future__ import annotations

import gc
import hashlib
from array import array
from bisect import bisect_right

from ..devices.cpu import thread_text
from ..devices.cpu.bridge import jit
from ..devices.cpu.matmul import scratch
from ..devices.cpu.objects import SOURCES
from ..devices.libm import LIBM

_LIBRARY = {f"flambeau_{name}": name for name in ("malloc", "free", "madvise")}
_KNOWN = {*LIBM, *(f"{name}f" for name in LIBM), *_LIBRARY.values(), "flambeau_parallel", "memcpy",
          "memset", "memmove"}

#: what words of POSIX threads begin with on macOS before they are used; elsewhere they are zeros
_APPLE = {"mutex": 0x32AAABA7, "work": 0x3CB0B1BB, "done": 0x3CB0B1BB}

#: one thread: the whole range at once
_ALONE = """
define void @flambeau_parallel(ptr %body, ptr %context, i64 %count, i64 %grain) {
  call void %body(ptr %context, i64 0, i64 %count)
  ret void
}
"""


def _pool(triple: str, count: int) -> str:
    """The pool of threads, with words of its own that say how many there are."""
    if not any(system in triple for system in ("linux", "darwin", "macos", "bsd")):
        raise NativeError(f"export.native: threads are POSIX threads, which {triple} has not")
    first = thread_text.pool_words(count)
    if any(system in triple for system in ("darwin", "macos")):
        for field, begun in _APPLE.items():
            first[thread_text.FIELDS[field] // 8] = begun
    words = f"[{len(first)} x i64] [{', '.join(f'i64 {w}' for w in first)}]"
    text = thread_text.pool_text(triple, "linux" in triple)
    text = text.replace("@flambeau_parallel_pool", "@flambeau_parallel")
    return text.replace(f"@flambeau_pool = external global [{thread_text.POOL_BYTES} x i8]",
                        f"@flambeau_pool = internal global {words}, align 64")


class NativeError(RuntimeError):
    """Why a model cannot become machine code of its own."""


class Tables:
    """Every table of integers in the process, by address."""

    def __init__(self) -> None:
        found: dict[int, array] = {}
        for holder in gc.get_objects():
            for part in gc.get_referents(holder):
                if type(part) is array and part.typecode in "qQ" and len(part):
                    found[part.buffer_info()[0]] = part
        self.starts = sorted(found)
        self.arrays = found

    def find(self, address: int) -> tuple[int, array] | None:
        """(where it begins, the table) that an address lies in."""
        at = bisect_right(self.starts, address) - 1
        if at < 0:
            return None
        start = self.starts[at]
        table = self.arrays[start]
        return (start, table) if address < start + 8 * len(table) else None


class Image:
    """A module under construction, for one machine."""

    def __init__(self, name: str, triple: str | None, cpu: str | None, features: str | None,
                 count: int = 1):
        j = jit()
        self.name, self.data = name, f"{name}_data"
        self.llvm = llvm = j.llvm
        self.foreign = triple is not None
        if triple is None:
            triple, cpu, features = llvm.get_default_triple(), cpu or j.cpu, features or j.features
        else:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        try:
            target = llvm.Target.from_triple(triple)
        except RuntimeError as error:
            raise NativeError(f"export.native: LLVM knows no machine {triple}: {error}") from error
        self.machine = target.create_target_machine(
            cpu=cpu or "", features=features or "", opt=2, reloc="pic", codemodel="default")
        if "64" not in self.machine.triple.split("-")[0]:
            raise NativeError(f"export.native: {triple} is no machine of 64 bits")
        self.whole = self._parsed(_ALONE if count < 2 else _pool(self.machine.triple, count))
        self._symbols: dict[int, str] = {}      # address of code -> its name here
        self._pending: list[int] = []
        self._done: set[int] = set()            # ids of what wrote code that is here
        self._words: dict[int, str] = {}        # start of a table -> its name
        self._word_text: list[str] = []
        self._declared: dict[str, str] = {}
        self._tables: Tables | None = None

    def _parsed(self, text: str):
        if self.foreign and "llvm.x86" in text and not self.machine.triple.startswith("x86_64"):
            raise NativeError("export.native: the code has instructions of x86 in it")
        module = self.llvm.parse_assembly(text)
        module.triple = self.machine.triple
        module.data_layout = str(self.machine.target_data)
        return module

    # -- code ------------------------------------------------------------------------------------

    def code(self, address: int) -> str:
        """The symbol of code at an address."""
        if address not in self._symbols:
            if address not in SOURCES:
                raise NativeError("export.native: a launch calls code that has no text")
            name = SOURCES[address][0]
            self._symbols[address] = f"{name}.{len(self._symbols)}"
            self._pending.append(address)
        return self._symbols[address]

    def add_program(self, program, number: int) -> str:
        """Add the function of a program; its symbol."""
        text, called = program.ir(by_name=True)
        symbol = f"program.{number}"
        module = self._parsed(text.replace("@PROGRAM(", f'@"{symbol}"('))
        for name, address in called.items():
            module.get_function(name).name = self.code(address)
        self._link(module, {symbol})
        return symbol

    def _settle(self) -> None:
        """Add the code that is named, and the code which that calls, until none is missing."""
        while self._pending:
            address = self._pending.pop()
            _, write, optimise = SOURCES[address]
            if id(write) in self._done:
                continue
            self._done.add(id(write))
            module = self._parsed(write())
            if optimise:
                self._improved(module)
            own = {name: at for at, (name, other, _) in SOURCES.items() if other is write}
            kept = set()
            for function in list(module.functions):
                if not function.is_declaration and function.name in own:
                    function.name = self.code(own[function.name])
                    kept.add(function.name)
            self._link(module, kept)

    def _improved(self, module) -> None:
        options = self.llvm.create_pipeline_tuning_options(speed_level=1)
        options.loop_vectorization = options.slp_vectorization = False
        builder = self.llvm.create_pass_builder(self.machine, options)
        builder.getModulePassManager().run(module, builder)

    def _link(self, module, kept: set[str]) -> None:
        """Take a module over; all but what is named stays its own."""
        for function in list(module.functions):
            if function.is_declaration:
                self._resolve(function)
            elif function.name not in kept:
                function.linkage = "internal"
        for variable in module.global_variables:
            if not variable.is_declaration and variable.name not in kept:
                variable.linkage = "internal"
        self.whole.link_in(module)

    def _resolve(self, function) -> None:
        """Let a declaration mean what it means in this process."""
        name = function.name
        if name in _LIBRARY:
            function.name = _LIBRARY[name]
        elif not (name.startswith(("llvm.", "Py", "_Py", "program.")) or name in _KNOWN
                  or name in self._symbols.values()):
            address = jit().linker.find(name)
            if address is None or address not in SOURCES:
                raise NativeError(f"export.native: the code calls {name}, which is no code of "
                                  "this library")
            function.name = self.code(address)

    # -- words -----------------------------------------------------------------------------------

    def words(self, address: int) -> str:
        """How the address of a word in a table is written."""
        if self._tables is None:
            self._tables = Tables()
        found = self._tables.find(address)
        if found is None:
            raise NativeError("export.native: a launch reads words that nobody holds")
        start, table = found
        return f"getelementptr (i8, ptr {self._table(start, table)}, i64 {address - start})"

    def _table(self, start: int, table: array) -> str:
        if start not in self._words:
            self._words[start] = name = f'@"words.{len(self._words)}"'
            parts = [self._word(w & (1 << 64) - 1) for w in table]
            kinds = ", ".join(kind for kind, _ in parts)
            values = ", ".join(f"{kind} {value}" for kind, value in parts)
            self._word_text.append(f"{name} = internal constant <{{ {kinds} }}> "
                                   f"<{{ {values} }}>, align 64")
        return self._words[start]

    def _word(self, word: int) -> tuple[str, str]:
        if 1 << 32 < word < 1 << 48:
            assert self._tables is not None
            if word in SOURCES:
                symbol = self.code(word)
                self._declared[symbol] = f'declare void @"{symbol}"()'
                return "ptr", f'@"{symbol}"'
            found = self._tables.find(word)
            if found is not None:
                start, table = found
                return "ptr", (f"getelementptr (i8, ptr {self._table(start, table)}, i64 "
                               f"{word - start})")
        return "i64", str(word - (1 << 64) if word >> 63 else word)

    # -- the end ---------------------------------------------------------------------------------

    def finish(self, entry: str, data: bytes) -> bytes:
        """Object code in which one function is visible; `data` goes with it as it is."""
        scratch.publish()
        text = "\n".join([self._room_for(data), *self._word_text, *self._declared.values(), entry])
        module = self._parsed(text)
        self._link(module, {self.name})
        self._settle()
        for function in list(self.whole.functions):
            if not function.is_declaration and function.name != self.name:
                function.linkage = "internal"
        passes = self.llvm.create_new_module_pass_manager()
        passes.add_global_dead_code_eliminate_pass()
        builder = self.llvm.create_pass_builder(
            self.machine, self.llvm.create_pipeline_tuning_options(speed_level=1))
        passes.run(self.whole, builder)
        left = [f.name for f in self.whole.functions if f.is_declaration
                and f.name.startswith(("Py", "_Py"))]
        if left:
            raise NativeError(f"export.native: the code still calls Python: {', '.join(left)}")
        self.whole.verify()
        code = self.machine.emit_object(self.whole)
        at = code.find(self._mark)
        if at < 0 or code.find(self._mark, at + 1) >= 0:
            raise NativeError("export.native: the place for weights is not to be found")
        return code[:at] + data + code[at + len(data):]

    def _room_for(self, data: bytes) -> str:
        """A constant as large as the data, to be found by its first bytes and filled in later.

        LLVM reads and writes constants as text, which takes minutes where weights are many.
        """
        self._mark = hashlib.sha512(self.name.encode() + data[:1 << 16]).digest()[:len(data)]
        first = "".join(f"\\{byte:02X}" for byte in self._mark)
        rest = len(data) - len(self._mark)
        return (f"@{self.data} = internal externally_initialized constant "
                f"<{{ [{len(self._mark)} x i8], [{rest} x i8] }}> "
                f'<{{ [{len(self._mark)} x i8] c"{first}", [{rest} x i8] zeroinitializer }}>, '
                "align 64")
