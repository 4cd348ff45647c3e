"""What Python does in a call besides calling ops: whether anybody would miss it.

A function that was not compiled with fullgraph=True is played without Python only if that cannot
be told from the results: its code, and that of all it calls, is known; what the code can reach is
guarded, and is not changed (see search.py); and it calls nothing but ops, and what computes with
numbers and containers. Whoever prints, counts, draws numbers of Python's or looks at the clock has
Python run in every call.
"""

from __future__ import annotations

import builtins
import opcode
import sys
from array import array
from os.path import basename, dirname, join
from types import CodeType, ModuleType

from ..engine.tensor import Tensor

_HERE = dirname(dirname(__file__))
#: what the library calls of these is the library's doing
_PYTHONS = ("<frozen", dirname(opcode.__file__))
_HELPERS = tuple(join("site-packages", name) for name in ("numpy", "llvmlite"))
#: parts of the library that do nothing but call ops, or tell a script of what they do besides
_TRUSTED = ("amp/autocast_mode.py", "assemble.py", "autograd/entry.py", "autograd/function.py",
            "autograd/grad_mode.py", "autograd/variable.py", "compiler/", "core/", "devices/",
            "distributions/", "engine/", "fft/", "func/", "functional.py", "linalg/",
            "nn/attention/", "nn/functional/", "nn/modules/", "nn/parameter.py", "nn/utils/",
            "ops/", "optim/", "return_types.py", "signal/", "special.py", "utils/_pytree.py")
#: and what is no such part
_NOT_TRUSTED = ("engine/shared_memory.py", "nn/modules/lazy.py", "nn/utils/parametrize.py",
                "optim/lr_scheduler/", "optim/swa_utils.py")
#: nor are functions that choose something for the whole process, which are here
_SETTINGS, _CHOOSING = "engine/settings.py", ("set_", "use_")
#: built-in functions that compute something from what they are given
_COMPUTING = frozenset(getattr(builtins, name) for name in (
    "abs", "all", "any", "ascii", "bin", "callable", "chr", "divmod", "getattr", "hasattr", "hex",
    "isinstance", "issubclass", "iter", "len", "max", "min", "next", "oct", "ord", "pow", "repr",
    "round", "sorted", "sum"))
_CONTAINERS = (list, tuple, dict, set, frozenset, str, bytes, int, float, complex, bool, range)
_IMPORT = opcode.opmap["IMPORT_NAME"]


class Witness:
    """Watches a call, and says why Python must not be left out of it, if so."""

    def __init__(self, codes: set[CodeType], unsure: str | None):
        self.codes, self.reason = codes, unsure
        self.ran: set[CodeType] = set()         # code that is not the library's
        self.trusted: set[CodeType] = set()
        self.frames = 0     # calls of functions that run in eager too
        self.counted: set[CodeType] = set()
        if any(_IMPORT in code.co_code[::2] for code in codes):
            self.against("something is imported")

    def against(self, reason: str) -> None:
        """There is something that would be missed."""
        self.reason = self.reason or reason

    def watch(self, function, args, kwargs):
        """Make a call, and see what Python does in it."""
        if sys.getprofile() is not None:
            self.against("somebody else is watching")
            return function(*args, **kwargs)
        sys.setprofile(self._see)
        try:
            return function(*args, **kwargs)
        finally:
            sys.setprofile(None)

    def _see(self, frame, event: str, what) -> None:
        code = frame.f_code
        if event == "call":
            if code not in self.ran and code not in self.trusted:
                self._meet(code, frame)
            self.frames += code in self.counted
        elif event == "c_call" and code in self.ran and not _computes(what):
            self.against(f"{getattr(what, '__name__', 'something')} is called")

    def _meet(self, code: CodeType, frame) -> None:
        """Code that runs for the first time."""
        by_us = frame.f_back is not None and frame.f_back.f_code in self.trusted
        if code not in self.codes and ((by_us and _helps(code.co_filename)) or _is_trusted(
                code.co_filename, code.co_name, frame.f_globals.get("__name__"))):
            self.trusted.add(code)
            if basename(dirname(code.co_filename)) == "modules":
                self.counted.add(code)
            return
        self.ran.add(code)
        self.counted.add(code)
        if code not in self.codes:
            self.against(f"{code.co_name} is called, which may do anything "
                         f"({basename(code.co_filename)}:{code.co_firstlineno})")


def _helps(filename: str) -> bool:
    """Whether code comes with Python, or with what the library needs."""
    return any(name in filename for name in _HELPERS) or (
        filename.startswith(_PYTHONS) and "site-packages" not in filename)


def _is_trusted(filename: str, name: str, module: str | None) -> bool:
    """Whether code of the library, or written by it, does nothing but call ops."""
    if filename.startswith("<"):  # text that was written by the library, or by namedtuple
        return module is None or module.startswith(("flambeau.", "namedtuple_"))
    if not filename.startswith(_HERE):
        return False
    within = filename[len(_HERE) + 1:].replace("\\", "/")
    return within.startswith(_TRUSTED) and not within.startswith(_NOT_TRUSTED) and not (
        within == _SETTINGS and name.startswith(_CHOOSING))


def _computes(function) -> bool:
    """Whether a function that is not written in Python only makes values, or is an op's front."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, ModuleType):
        return function in _COMPUTING or owner.__name__ in ("math", "cmath", "_operator")
    if type(owner) is array:  # a native function, which it belongs to; unless it is a method
        return not hasattr(array, function.__name__)
    return isinstance(owner, (Tensor, *_CONTAINERS)) or (
        isinstance(owner, type) and owner in _CONTAINERS)
