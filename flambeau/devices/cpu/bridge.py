"""The native call: machine code as Python callables, and storages as native objects.

ctypes costs 0.6 us a call. Instead each module carries, beside its kernel, a wrapper with
CPython's own calling convention (METH_FASTCALL), which unboxes integers and floats and calls
the kernel. `PyCFunction_NewEx` turns its address into a callable.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import threading
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from .clibrary import c_functions
from .linker import Linker

_api = ctypes.pythonapi
_METH_FASTCALL = 0x0080
_MEMBER_OBJECT_EX, _MEMBER_LONGLONG = 16, 17

#: how a module is compiled by which a process gains little but that it starts sooner
LIGHTLY = "lightly"
_LIGHT_PASSES = ("sroa", "instruction_combine", "simplify_cfg", "new_gvn", "loop_rotate",
                 "instruction_combine", "simplify_cfg", "global_dead_code_eliminate")

#: calls longer than this many elements give up the GIL while they run
GIL_THRESHOLD = 1 << 16

#: the functions of Python that most generated code calls; for others see `Jit.publish_python`
_SYMBOLS = ("PyLong_AsVoidPtr", "PyLong_AsSsize_t", "PyLong_FromSsize_t", "PyFloat_AsDouble",
            "PyErr_Occurred", "PyList_Append", "PyObject_Free", "PyEval_SaveThread",
            "PyEval_RestoreThread", "Py_IncRef", "Py_DecRef", "PyObject_Vectorcall",
            "PyObject_GetBuffer")


class MethodDef(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("method", ctypes.c_void_p),
                ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


_new_function = _api.PyCFunction_NewEx
_new_function.restype = ctypes.py_object
_new_function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]

_keep_alive: list = []  # what the types made here point to


def address_of(function) -> int:
    """Where the code of a function that ctypes has found begins."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def define(name: str, address: int, flags: int, doc: str | None = None) -> int:
    """The address of a method definition that is never freed.

    A function reads its definition when it ends itself, and that may be after every module.
    """
    made = MethodDef(name.encode(), address, flags, doc.encode() if doc else None)
    _api.Py_IncRef(ctypes.py_object(made))
    return ctypes.addressof(made)


class Watch:
    """Who is told of native calls, if anybody: a trace that records what an op does.

    Every callable goes through one thunk, which finds its target in the array that is its `self`.
    While `word` is 0 that costs a nanosecond; otherwise it is the address of a callable, which is
    called with the array and the arguments, and whose result is passed on.
    """

    word = ctypes.c_int64(0)
    thunk = 0
    called: dict[int, Native] = {}  # by the address of the array


class Native:
    """What is known of a native callable: its name, and where its code is."""

    __slots__ = ("_unwatched", "address", "array", "function", "name")

    function: Callable

    def __init__(self, name: str, address: int):
        self.name, self.address = name, address
        self._unwatched: Callable | None = None
        self.array = array("q", [address])


    @property
    def unwatched(self) -> Callable:
        """The callable that nobody is told of: for the one who is told, and for other threads."""
        if self._unwatched is None:
            self._unwatched = fast_function(self.address, self.name)
        assert self._unwatched is not None
        return self._unwatched


def function_at(address: int, name: str):
    """A Python callable for a METH_FASTCALL function at an address."""
    found = Native(name, address)
    definition = define(name, Watch.thunk or address, _METH_FASTCALL)
    Watch.called[id(found.array)] = found
    found.function = _new_function(definition, id(found.array), None)
    return found.function


def fast_function(address: int, name: str) -> Callable:
    """A Python callable for a METH_FASTCALL function at an address that nobody is ever told of."""
    return _new_function(define(name, address, _METH_FASTCALL), None, None)


def unwatched(function):
    """The same native callable, told to nobody."""
    found = next((n for n in Watch.called.values() if n.function is function), None)
    return function if found is None else found.unwatched


THUNK_IR = """
@flambeau_watch = external global i64
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)

define ptr @native_thunk(ptr %self, ptr %args, i64 %n) {
entry:
  %who = load ptr, ptr @flambeau_watch
  %nobody = icmp eq ptr %who, null
  br i1 %nobody, label %usual, label %told
usual:
  %wordsp = getelementptr i8, ptr %self, i64 24
  %words = load ptr, ptr %wordsp
  %target = load ptr, ptr %words
  %result = tail call ptr %target(ptr %self, ptr %args, i64 %n)
  ret ptr %result
told:
  %more = add i64 %n, 1
  %all = alloca ptr, i64 %more
  store ptr %self, ptr %all
  %rest = getelementptr ptr, ptr %all, i64 1
  %bytes = mul i64 %n, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %args, i64 %bytes, i1 false)
  %answer = call ptr @PyObject_Vectorcall(ptr %who, ptr %all, i64 %more, ptr null)
  ret ptr %answer
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


#: letter of an argument -> what unboxes it, and its type then
_UNBOX = {"p": ("flambeau_address", "ptr"), "q": ("flambeau_integer", "i64"),
          "d": ("PyFloat_AsDouble", "double")}

#: what an entry of a kernel calls
_ENTRY_CALLS = """declare ptr @flambeau_address(ptr)
declare i64 @flambeau_integer(ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
@_Py_NoneStruct = external global i64
"""

#: what entries call, if some of them answer
ENTRY_CALLS = f"declare ptr @PyLong_FromSsize_t(i64)\n{_ENTRY_CALLS}"


def entry_ir(name: str, letters: str, work: str, counts: str = "", answers: bool = False) -> str:
    """@name_py: Python's way to @name, whose arguments are given by letters (see `param_kinds`).

    It unboxes them as %x0, %x1 ..., and gives up the GIL where `work` is many elements; `counts`
    is text that finds out how many. It gives None, or, if it `answers`, the integer of @name.
    """
    unboxed = "".join(f"  %s{i} = getelementptr ptr, ptr %args, i64 {i}\n"
                      f"  %o{i} = load ptr, ptr %s{i}\n"
                      f"  %x{i} = call {_UNBOX[letter][1]} @{_UNBOX[letter][0]}(ptr %o{i})\n"
                      for i, letter in enumerate(letters))
    passed = ", ".join(f"{_UNBOX[letter][1]} %x{i}" for i, letter in enumerate(letters))
    call = f"call {'i64' if answers else 'void'} @{name}({passed})"
    free, held = (f"%r{k} = {call}" if answers else call for k in (0, 1))
    given = """  %r = phi i64 [ %r0, %free ], [ %r1, %held ]
  %box = call ptr @PyLong_FromSsize_t(i64 %r)
  ret ptr %box""" if answers else """  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct"""
    return f"""
define ptr @{name}_py(ptr %self, ptr %args, i64 %n) {{
{unboxed}{counts}  %failed = call ptr @PyErr_Occurred()
  %ok = icmp eq ptr %failed, null
  br i1 %ok, label %go, label %bad
bad:
  ret ptr null
go:
  %long = icmp sgt i64 {work}, {GIL_THRESHOLD}
  br i1 %long, label %free, label %held
free:
  %state = call ptr @PyEval_SaveThread()
  {free}
  call void @PyEval_RestoreThread(ptr %state)
  br label %done
held:
  {held}
  br label %done
done:
{given}
}}
"""


def wrapper_ir(name: str, letters: str, by_layout: bool) -> str:
    """The entry of a kernel.

    Its last argument is the count of a dense one, or the address of a layout whose word before the
    first says how many elements there are.
    """
    last = f"%x{len(letters) - 1}"
    counts = f"""  %where = inttoptr i64 {last} to ptr
  %before = getelementptr i64, ptr %where, i64 -1
  %work = load i64, ptr %before
""" if by_layout else f"  %work = add i64 {last}, 0\n"
    return entry_ir(name, letters, "%work", counts) + _ENTRY_CALLS


# -- the execution engine --------------------------------------------------------------------


class Jit:
    """LLVM for the process: what compiles, and what links. Made when the first kernel is needed."""

    def __init__(self) -> None:
        self.linker = Linker()
        _, _, self.cpu, self.features = self.linker.processor
        has = self.linker.has
        self.bits = 512 if "avx512f" in has else 256 if "avx2" in has else 128
        self._publish_symbols()

    @functools.cached_property
    def llvm(self) -> Any:
        """llvmlite, where something has to be compiled."""
        import llvmlite.binding

        self.linker.know_target()
        return llvmlite.binding

    @functools.cached_property
    def machine(self) -> Any:
        return self.llvm.Target.from_default_triple().create_target_machine(
            cpu=self.cpu, features=self.features, opt=2, codemodel="jitdefault", jit=True)

    @property
    def calls(self) -> Any:
        """The lock that llvmlite holds in every call; it has no public name."""
        loaded = "llvm" in vars(self)
        return getattr(self.llvm.ffi.lib, "_lock", None) if loaded else None

    def _publish_symbols(self) -> None:
        self.publish_python(_SYMBOLS)
        add = self.publish
        add("_Py_NoneStruct", id(None))
        add("PyTuple_Type", id(tuple))
        add("flambeau_watch", ctypes.addressof(Watch.word))
        add("flambeau_buffer_of", ctypes.addressof(BUFFER_OF))
        for name, address in c_functions():
            add(name, address)

    def publish(self, name: str, address: int | None) -> None:
        """Let code that is loaded later call or use what is at an address, by name."""
        with building:
            self.linker.publish(name, address)

    def publish_python(self, names: Iterable[str]) -> None:
        """Let code that is loaded later call functions of Python's own C interface, by name."""
        for name in names:
            self.publish(name, address_of(getattr(_api, name)))

    def compile(self, ir: str, optimise: bool | str = False) -> bytes:
        """Object code of a module in text form.

        Kernels are written as they should run, so LLVM's passes over the IR gain them nothing and
        cost three times what generating code does; functions that call each other need them. Where
        LIGHTLY is said, variables become registers, and little more is done.
        """
        with building:
            return self.machine.emit_object(self._passed(ir, optimise))

    def assembly(self, ir: str, optimise: bool | str = False) -> str:
        """What `compile` makes, for people."""
        with building:
            return self.machine.emit_assembly(self._passed(ir, optimise))

    def _passed(self, ir: str, optimise: bool | str) -> Any:
        """A module after LLVM's passes over it."""
        from .lacking import completed  # not needed where all code is on disk already

        whole = completed(ir, self.linker.processor)
        module = self.llvm.parse_assembly(whole)
        module.triple = self.machine.triple
        module.data_layout = str(self.machine.target_data)
        if whole is not ir:
            self._inline(module)
        if not optimise:
            return module
        options = self.llvm.create_pipeline_tuning_options(speed_level=1)
        options.loop_vectorization = options.slp_vectorization = False
        builder = self.llvm.create_pass_builder(self.machine, options)
        passes = builder.getModulePassManager()
        if optimise == LIGHTLY:
            passes = self.llvm.create_new_module_pass_manager()
            for name in _LIGHT_PASSES:
                getattr(passes, f"add_{name}_pass")()
        passes.run(module, builder)
        return module

    def _inline(self, module) -> None:
        """What was added to a module becomes a part of what calls it."""
        passes = self.llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.run(module, self.llvm.create_pass_builder(
            self.machine, self.llvm.create_pipeline_tuning_options(speed_level=0)))

    def load(self, code: bytes, *names: str) -> list[int]:
        """Addresses of functions in object code, linked into the process."""
        with building:
            return self.linker.load(code, names)


_jit: Jit | None = None
building = threading.RLock()  # held while there is something that a fork must not cut in two


def jit() -> Jit:
    global _jit
    with building:
        if _jit is None:
            _jit = Jit()
    return _jit


_held: list = []  # of llvmlite's locks, by a thread that forks


def _before_fork() -> None:
    """Wait until no other thread is making a kernel or importing a part of the package.

    The child has only the thread that forks: what another has begun would never end there.
    """
    building.acquire()
    if _jit is not None and (calls := _jit.calls) is not None:
        calls.__enter__()
        _held.append(calls)
    for name, module in list(sys.modules.items()):
        begun = getattr(getattr(module, "__spec__", None), "_initializing", False)
        if begun and name.startswith("flambeau."):
            importlib.import_module(name)


def _after_fork() -> None:
    while _held:
        _held.pop().__exit__(None, None, None)
    building.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


# -- storages as native objects ---------------------------------------------------------------

# struct Storage { refcount, type, address, nbytes, free, owner, changed, version, kept }
_FIELDS = ("address", "nbytes", "free", "owner", "changed")
_FREE_AT, _CHANGED_AT, _VERSION_AT, _KEPT_AT = 32, 48, 56, 64
_SIZE = 72

#: the function that gives an object whose buffer is shown as that of a tensor
BUFFER_OF = ctypes.c_void_p()

# int getbuffer(self, view, flags): the second word of a view is whom it belongs to.
BUFFER_IR = """
@flambeau_buffer_of = external global ptr
declare i32 @PyObject_GetBuffer(ptr, ptr, i32)

define i32 @tensor_getbuffer(ptr %self, ptr %view, i32 %flags) {
  %ownerp = getelementptr ptr, ptr %view, i64 1
  store ptr null, ptr %ownerp
  %args = alloca ptr
  store ptr %self, ptr %args
  %of = load ptr, ptr @flambeau_buffer_of
  %shown = call ptr @PyObject_Vectorcall(ptr %of, ptr %args, i64 1, ptr null)
  %none = icmp eq ptr %shown, null
  br i1 %none, label %refused, label %given
refused:
  ret i32 -1
given:
  %result = call i32 @PyObject_GetBuffer(ptr %shown, ptr %view, i32 %flags)
  call void @Py_DecRef(ptr %shown)
  ret i32 %result
}
"""

STORAGE_IR = f"""
declare i32 @PyList_Append(ptr, ptr)
declare void @PyObject_Free(ptr)
declare void @Py_DecRef(ptr)

define void @storage_dealloc(ptr %self) {{
  %freep = getelementptr i8, ptr %self, i64 {_FREE_AT}
  %free = load ptr, ptr %freep
  %pooled = icmp ne ptr %free, null
  br i1 %pooled, label %back, label %gone
back:
  %changedp = getelementptr i8, ptr %self, i64 {_CHANGED_AT}
  %changed = load ptr, ptr %changedp
  store ptr null, ptr %changedp
  %had = icmp ne ptr %changed, null
  br i1 %had, label %drop, label %reuse
drop:
  store i64 1, ptr %self
  call void @Py_DecRef(ptr %changed)
  br label %reuse
reuse:
  %versionp = getelementptr i8, ptr %self, i64 {_VERSION_AT}
  store i64 0, ptr %versionp
  %keptp = getelementptr i8, ptr %self, i64 {_KEPT_AT}
  store i64 0, ptr %keptp
  store i64 1, ptr %self
  %failed = call i32 @PyList_Append(ptr %free, ptr %self)
  store i64 1, ptr %self
  ret void
gone:
{"".join(f'''  %q{i} = getelementptr i8, ptr %self, i64 {16 + 8 * i}
  %f{i} = load ptr, ptr %q{i}
  %h{i} = icmp ne ptr %f{i}, null
  br i1 %h{i}, label %d{i}, label %n{i}
d{i}:
  call void @Py_DecRef(ptr %f{i})
  br label %n{i}
n{i}:
''' for i in range(5))}
  %typep = getelementptr i8, ptr %self, i64 8
  %type = load ptr, ptr %typep
  call void @PyObject_Free(ptr %self)
  call void @Py_DecRef(ptr %type)
  ret void
}}
"""


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("function", ctypes.c_void_p)]


class _Member(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_int), ("offset", ctypes.c_ssize_t),
                ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


class _Spec(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int),
                ("flags", ctypes.c_uint), ("slots", ctypes.c_void_p)]


_TP_DEALLOC, _TP_MEMBERS, _TP_NEW, _TP_DOC = 52, 72, 65, 56
_TPFLAGS_DEFAULT = 1 << 18


def make_storage_type(dealloc: int) -> type:
    """The native type of storages: when its last reference goes, it goes back to its free list.

    A Python class could do this once per object only; a native one does it every time, in 20 ns.
    `dealloc` is the address of STORAGE_IR's function.
    """
    rows = [(name, _MEMBER_OBJECT_EX, 16 + 8 * i) for i, name in enumerate(_FIELDS)]
    rows += [("version", _MEMBER_LONGLONG, _VERSION_AT), ("kept", _MEMBER_LONGLONG, _KEPT_AT)]
    members = (_Member * (len(rows) + 1))(
        *[_Member(name.encode(), kind, at, 0, None) for name, kind, at in rows])
    new = address_of(_api.PyType_GenericNew)
    doc = ctypes.c_char_p(b"Bytes on a device, shared by every tensor that views them.")
    slots = (_Slot * 5)(
        _Slot(_TP_DEALLOC, dealloc), _Slot(_TP_MEMBERS, ctypes.addressof(members)),
        _Slot(_TP_NEW, new), _Slot(_TP_DOC, ctypes.cast(doc, ctypes.c_void_p).value))
    spec = _Spec(b"flambeau.Storage", _SIZE, 0, _TPFLAGS_DEFAULT, ctypes.addressof(slots))
    _keep_alive.extend((members, slots, spec, doc))
    from_spec = _api.PyType_FromSpec
    from_spec.restype, from_spec.argtypes = ctypes.py_object, [ctypes.c_void_p]
    return from_spec(ctypes.addressof(spec))
