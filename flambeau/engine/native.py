"""Fronts as machine code: one lookup, one allocation, one kernel call, one step recorded.

A native front does what the Python front in eager.py does for operands it has met before, and
calls that front for everything else: a new signature, an empty free list, keywords, a subclass's
protocol, unusual modes. It speaks CPython's calling convention. A function finds its context in
`self`; a method gets the tensor there, so each method is a small function with its own context.
Their text is in the folder front_text; here they are loaded and handed out.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from array import array

from ..devices.cpu import bridge
from ..devices.cpu.objects import addresses, cache, stamp
from . import front_parts, front_text
from .front_parts import EXTERNAL, offsets
from .front_text import FORMS
from .tensor import LEAF, Tensor

_api = ctypes.pythonapi

def _sources() -> list[str]:
    """The files that fronts are written in."""
    folder = os.path.dirname(str(front_text.__file__))
    return [str(front_parts.__file__),
            *(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py"))]


#: what the generated text depends on, besides the layout of objects
SOURCE = stamp(*_sources())

_METH_FASTCALL_KEYWORDS = 0x0080 | 0x0002


class Fronts:
    """The loaded module: hands out native functions and methods for Python fronts."""

    def __init__(self, node: type):
        j = bridge.jit()
        j.publish_python(EXTERNAL)
        key = cache().key(f"fronts {SOURCE} {offsets(node)}")
        alone = ("next_sequence", "count_change", "take_view", "empty_tensor", "call_module")
        found = addresses(key, [*(f"f{form}" for form in FORMS), *alone], lambda: _text(node), True)
        self._functions = dict(zip(FORMS, found, strict=False))
        self._alone = dict(zip(alone, found[len(FORMS):], strict=True))
        self._variable = j.linker.variable
        self.used = dict.fromkeys(FORMS, 0)
        self.keep: list = []
        values: dict = {"tensor": Tensor, "node": node, "none": None, "leaf": LEAF, "float": float,
                  "int": int, "list": list, "tuple": tuple,
                  "zeros2": (0, 0), "zeros3": (0, 0, 0), "nones2": (None, None),
                  "nones3": (None, None, None), "false": False, "true": True, "nothing": {},
                  "hooked": sys.intern("_hooked"), "forward": sys.intern("forward")}
        self.keep.append(values)
        for name, value in values.items():
            self.word(name).value = id(value)
        count = front_parts.INFERRING
        self.inferring = (ctypes.c_int64 * count).from_address(self._variable("g_inferring"))
        self.contexts = {form: self._table(f"contexts{form}", form) for form in FORMS}
        self.entries = {form: self._table(f"entries_{form}", form[1])
                        for form in (*(f"m{form}" for form in FORMS), "r2")}
        self.next_sequence = self._function(
            self._alone["next_sequence"], "next_sequence", None, None)

    def _table(self, name: str, form: str):
        return (ctypes.c_int64 * FORMS[form]).from_address(self._variable(name))

    def word(self, name: str) -> ctypes.c_int64:
        """One of the module's variables."""
        return ctypes.c_int64.from_address(self._variable(f"g_{name}"))

    def _function(self, address: int, name: str, doc, context):
        definition = bridge.define(name, address, _METH_FASTCALL_KEYWORDS, doc)
        return _make_function(definition, context, None)

    def _method(self, address: int, name: str, doc):
        return _new_method(Tensor, bridge.define(name, address, _METH_FASTCALL_KEYWORDS, doc))

    def _form_of(self, native: str, python, **words):
        """The native form of a function in Python, and what it finds in the module's variables."""
        for name, value in words.items():
            self.word(name).value = id(value)
        self.keep.extend((python, words))
        return self._function(self._alone[native], python.__name__, python.__doc__, None)

    def empty_maker(self, python, takers: list):
        """The native form of `python`, which makes tensors; `takers` are told of memory."""
        return self._form_of("empty_tensor", python, empty=python, takers=takers)

    def view_taker(self, python):
        """The native form of `python`, which gives the view of a tensor that a plan describes."""
        return self._form_of("take_view", python, take=python)

    def change_counter(self, python, ours: dict):
        """The native form of `python`, which counts changes; `ours` says whose a file is."""
        return self._form_of("count_change", python, changed=python, ours=ours)

    def module_call(self, cls: type, with_hooks):
        """The method `__call__` of a class of modules; `with_hooks` serves those that are hooked.

        It saves two calls inside Python, and packing arguments to unpack them again.
        """
        self.word("with_hooks").value = id(with_hooks)
        self.keep.append(with_hooks)
        doc = f"__call__($self, /, *args, **kwargs)\n--\n\n{with_hooks.__doc__}"
        return _new_method(cls, bridge.define(
            "__call__", self._alone["call_module"], _METH_FASTCALL_KEYWORDS, doc))

    def adopt(self, front, plans: dict, form: str, name: str, doc: str, baked: int = False,
              kin_plans: dict | None = None, op=None, implied: int | None = None,
              names: tuple[str, ...] | None = None):
        """A function that runs natively what it can, and `front` otherwise; and its context.

        A call of `op` that is traced is asked for natively before `front` is. For what `baked`,
        `implied` and `names` say, see the texts of the forms.
        """
        kin_plans = {} if kin_plans is None else kin_plans
        context = array("q", [id(plans), id(front), int(baked), id(kin_plans),
                              0 if op is None else id(op), 0 if implied is None else id(implied),
                              0 if names is None else id(names)])
        self.keep.extend((plans, front, kin_plans, op, implied, names))
        return self._function(self._functions[form], name, doc, context), context

    def method(self, context, form: str, name: str, doc: str):
        """The method of a context; None when there are too many."""
        i = self.used[form]
        if i >= FORMS[form]:
            return None
        self.used[form] += 1
        self.keep.append(context)
        self.contexts[form][i] = context.buffer_info()[0]
        return self._method(self.entries[f"m{form}"][i], name, doc)

    def reflected(self, context, name: str, doc: str):
        """The reflected operator of the context that was given a method last."""
        i = self.used["2"] - 1
        assert self.contexts["2"][i] == context.buffer_info()[0]
        return self._method(self.entries["r2"][i], f"__r{name}__", doc)


def _text(node: type) -> str:
    from .front_text.module import module_text  # not needed where the code is on disk already

    return module_text(node)


_make_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object,
                                   ctypes.c_void_p)(("PyCFunction_NewEx", _api))
_new_method = _api.PyDescr_NewMethod
_new_method.restype, _new_method.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p]


def pack(address: int, last: int, kind: int) -> array:
    """What a native front reads of a plan: kernel, last argument, form of the call, what to keep.

    The form says what the second operand is: 0 a tensor, 1 a double, 2 an integer, 3 part of the
    kernel. What to keep is -1 until it is known: see `set_keep`. The last word is the operand
    whose signature the result has, for a plan that serves many shapes.
    """
    return array("q", [address, last, kind, -1, 0])


def set_keep(packed: array, keep: tuple[int, ...]) -> None:
    """One byte, of what to keep, for each set of operands that want a gradient."""
    packed[3] = _joined(keep)


@functools.cache
def _joined(keep: tuple[int, ...]) -> int:
    return sum(bits << (8 * i) for i, bits in enumerate(keep[:4]))
