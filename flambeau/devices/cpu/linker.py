"""Object code into the process, and what LLVM says of the host.

A start with a warm cache needs nothing of LLVM: `elf.py` loads the code, `processor.py` remembers
what is known of the machine. Where it is asked, it is called in llvmlite's library directly:
importing llvmlite's Python side costs more than all the rest of the import, and waits until
something has to be compiled. LLVM's own linker waits for code that `elf.py` cannot load.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import sys

from .elf import Loader, Unfit
from .processor import Processor, known

_LIBRARY = {"win32": "llvmlite.dll", "darwin": "libllvmlite.dylib"}.get(
    sys.platform, "libllvmlite.so")
_P, _TEXT = ctypes.c_void_p, ctypes.c_char_p
_MESSAGE = ctypes.POINTER(_P)  # where a function leaves a string, which is disposed of

# name -> result, arguments
_FUNCTIONS = {
    "GetVersionInfo":          (ctypes.c_uint,),
    "InitializeNativeTarget":  (None,),
    "InitializeNativeAsmPrinter": (None,),
    "GetHostCPUFeatures":      (ctypes.c_int, _MESSAGE),
    "GetHostCPUName":          (None, _MESSAGE),
    "GetDefaultTargetTriple":  (None, _MESSAGE),
    "DisposeString":           (None, _P),
    "GetTargetFromTriple":     (_P, _TEXT, _MESSAGE),
    "CreateTargetMachine":     (_P, _P, _TEXT, _TEXT, _TEXT, ctypes.c_int, _TEXT, _TEXT,
                                ctypes.c_int, ctypes.c_int, _TEXT),
    "GetGlobalContext":        (_P,),
    "ParseAssembly":           (_P, _P, _TEXT, _MESSAGE),
    "CreateMCJITCompiler":     (_P, _P, _P, ctypes.c_bool, _MESSAGE),
    "CreateObjectFile":        (_P, _TEXT, ctypes.c_size_t),
    "MCJITAddObjectFile":      (None, _P, _P),
    "DisposeObjectFile":       (None, _P),
    "FinalizeObject":          (None, _P),
    "GetFunctionAddress":      (ctypes.c_uint64, _P, _TEXT),
    "GetGlobalValueAddress":   (ctypes.c_uint64, _P, _TEXT),
    "AddSymbol":               (None, _TEXT, _P),
}  # fmt: skip


def _library() -> str | None:
    """The file of llvmlite's library, where it usually is."""
    if sys.platform == "win32":
        return None  # what it needs itself is found by llvmlite's Python side only
    package = importlib.util.find_spec("llvmlite")
    for folder in (package and package.submodule_search_locations) or ():
        path = os.path.join(folder, "binding", _LIBRARY)
        if os.path.exists(path):
            return path
    return None


def _elsewhere() -> str:
    """The file of llvmlite's library, which llvmlite finds."""
    try:
        from llvmlite.binding import ffi
    except ImportError as error:
        import sysconfig

        raise ImportError(
            "flambeau compiles with LLVM, which the package llvmlite brings, and it cannot be "
            f"imported: {error}. pip install 'llvmlite>=0.50,<0.51' has it for Linux with glibc on "
            "x86-64 and ARM64, for macOS on ARM64 and for Windows on x86-64; this is "
            f"{sys.platform} ({sysconfig.get_platform()}), Python {sys.version.split()[0]}."
        ) from error
    return ffi.lib._name


class _Llvm:
    """LLVM's functions by name, and what they say."""

    def __init__(self, path: str | None) -> None:
        library = ctypes.CDLL(_elsewhere() if path is None else path)
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(library, f"LLVMPY_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str):
        raise AttributeError(f"the linker uses no function {name!r} of LLVM")

    def told(self, function, *arguments) -> str:
        """What a function says through its last argument."""
        text = _P()
        result = function(*arguments, ctypes.byref(text))
        try:
            said = ctypes.string_at(text.value).decode() if text.value else ""
        finally:
            if text.value:
                self.DisposeString(text)
        if function.restype is _P:
            if not result:
                raise RuntimeError(f"LLVM cannot be used here: {said}")
            return result
        return said

    def processor(self) -> Processor:
        """What it is, and what it says of the host."""
        number = self.GetVersionInfo()
        features = filter(None, self.told(self.GetHostCPUFeatures).split(","))
        return Processor(
            version=".".join(str(number >> shift & 255) for shift in (16, 8, 0)),
            triple=self.told(self.GetDefaultTargetTriple),
            cpu=self.told(self.GetHostCPUName),
            features=",".join(sorted(features, key=lambda f: f[1:])))


def _address_in_process(name: str) -> int:
    return ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, name))


#: so many loads after each other it is seen whether there is room for more; each takes two pieces
_LOOK = 256


@functools.cache
def most_pieces() -> int | None:
    """How many pieces of memory the system lets a process have, where it says so."""
    try:
        with open("/proc/sys/vm/max_map_count") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def pieces() -> int:
    """How many this process has."""
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)


class Linker:
    """What is loaded, and what LLVM says of the host."""

    def __init__(self) -> None:
        self._library = _library()
        self.processor = known(self._library, lambda: self.llvm.processor())
        self.has = self.processor.has
        self.symbols: dict[str, int] = {}   # what code may use by name, and where it is
        loader = Loader(self.find)
        self._loader = loader if loader.is_possible() else None
        self._loaded = 0

    @functools.cached_property
    def llvm(self) -> _Llvm:
        """LLVM, from when it is needed."""
        return _Llvm(self._library)

    def know_target(self) -> None:
        """Let LLVM know how code of this machine is made: before it compiles, or links."""
        self.llvm.InitializeNativeTarget()
        self.llvm.InitializeNativeAsmPrinter()

    @functools.cached_property
    def engine(self):
        """LLVM's execution engine, which knows all symbols too."""
        self.know_target()
        made = self._made_engine()
        for name, address in self.symbols.items():
            self.llvm.AddSymbol(name.encode(), address)
        return made

    def _made_engine(self):
        _, triple, cpu, features = self.processor
        target = self.llvm.told(self.llvm.GetTargetFromTriple, triple.encode())
        if os.name == "nt":
            triple += "-elf"  # the only format that the engine links there
        machine = self.llvm.CreateTargetMachine(
            target, triple.encode(), cpu.encode(), features.encode(), 2, b"default",
            b"jitdefault", 0, 1, b"")
        module = self.llvm.told(self.llvm.ParseAssembly, self.llvm.GetGlobalContext(), b"")
        own_memory = triple.startswith(("arm64", "aarch64"))  # code and data near each other
        return self.llvm.told(self.llvm.CreateMCJITCompiler, module, machine, own_memory)

    def publish(self, name: str, address: int | None) -> None:
        """Let code that is loaded later call or use what is at an address, by name."""
        self.symbols[name] = address or 0
        if "engine" in vars(self):
            self.llvm.AddSymbol(name.encode(), address)

    def find(self, name: str) -> int | None:
        """Where something is that code uses by name."""
        try:
            found = self.symbols.get(name)
            return _address_in_process(name) if found is None else found
        except ValueError:
            return None

    def load(self, code: bytes, names) -> list[int]:
        """Addresses of functions in object code, linked into the process."""
        if self._loader is not None:
            with contextlib.suppress(Unfit):
                defined = self._loader.load(code)
                for name, address in defined.items():
                    self.publish(name, address)
                return [defined[name] for name in names]
        return self._linked(code, names)

    def _linked(self, code: bytes, names) -> list[int]:
        """The same by LLVM's linker."""
        self._loaded += 1
        # Beyond the limit LLVM finds no memory for code, and takes the process down.
        if self._loaded % _LOOK == 0 and (limit := most_pieces()) is not None and (
                pieces() + 4 * _LOOK > limit):
            raise RuntimeError(
                f"{self._loaded:,} kernels and programs are loaded, and the system lets a process "
                f"have no more than {limit:,} pieces of memory: vm.max_map_count. Fewer different "
                "shapes and dtypes, or a new process, is what helps.")
        file = self.llvm.CreateObjectFile(code, len(code))
        self.llvm.MCJITAddObjectFile(self.engine, file)
        self.llvm.DisposeObjectFile(file)
        self.llvm.FinalizeObject(self.engine)
        return [self.llvm.GetFunctionAddress(self.engine, name.encode()) for name in names]

    def variable(self, name: str) -> int:
        """The address of a variable in code that was loaded."""
        return self.symbols.get(name) or self.llvm.GetGlobalValueAddress(self.engine, name.encode())
