"""What native fronts know of objects, of Python's functions and of each other."""

from __future__ import annotations

import ctypes
import types

from ..devices.cpu.anatomy import TUPLE_ITEMS
from .tensor import Signature, Tensor


def slot_offset(cls: type, name: str) -> int:
    """Where in an instance a slot's value lies."""
    member = ctypes.c_int64.from_address(id(cls.__dict__[name]) + 40).value
    return ctypes.c_int64.from_address(member + 16).value


TUPLE = TUPLE_ITEMS
WORDS = 24                     # where an array keeps the address of its contents
CHANGED_AT, VERSION_AT = 48, 56  # in a storage, see bridge
INFERRING = 257                # words: how many threads infer, and their numbers
FILE_AT = slot_offset(types.CodeType, "co_filename")

#: functions of Python, and their types
EXTERNAL = {
    "PyDict_GetItemWithError": "ptr (ptr, ptr)", "PyType_GenericAlloc": "ptr (ptr, i64)",
    "PyType_IsSubtype": "i32 (ptr, ptr)",
    "PyFloat_AsDouble": "double (ptr)",
    "PyTuple_New": "ptr (i64)", "PyObject_Vectorcall": "ptr (ptr, ptr, i64, ptr)",
    "PyErr_Occurred": "ptr ()", "PyErr_Clear": "void ()", "PyLong_FromSsize_t": "ptr (i64)",
    "Py_IncRef": "void (ptr)", "Py_DecRef": "void (ptr)", "PyThread_get_thread_ident": "i64 ()",
    "PyLong_FromVoidPtr": "ptr (ptr)", "PyWeakref_NewRef": "ptr (ptr, ptr)",
    "PyList_Append": "i32 (ptr, ptr)", "PyList_New": "ptr (i64)",
    "PyObject_RichCompareBool": "i32 (ptr, ptr, i32)",
    "PyObject_GetAttr": "ptr (ptr, ptr)", "PyObject_VectorcallMethod": "ptr (ptr, ptr, i64, ptr)",
    "PyEval_SaveThread": "ptr ()", "PyEval_RestoreThread": "void (ptr)",
    "PyEval_GetFrame": "ptr ()", "PyFrame_GetBack": "ptr (ptr)", "PyFrame_GetCode": "ptr (ptr)",
    "PyFrame_GetLasti": "i32 (ptr)", "PySet_Contains": "i32 (ptr, ptr)",
}
#: the same of our own, see integers.py
OWN = {"flambeau_address": "ptr (ptr)", "flambeau_integer": "i64 (ptr)"}
#: variables that all fronts share, each a word: @g_<name>
GLOBALS = ("tensor", "node", "none", "leaf", "float", "int", "zeros2", "zeros3", "nones2",
           "nones3", "false", "true", "nothing", "follow", "off_count", "off_ident", "special",
           "sequence", "hooked", "forward", "with_hooks", "ours", "changed",
           "take", "takers", "empty", "list", "tuple", "plain")


def offsets(node: type) -> tuple[dict, dict, dict]:
    """Where tensors (t), nodes (n) and signatures (g) keep what fronts read and write."""
    t = {name: slot_offset(Tensor, name) for name in ("sig", "ptr", "mem", "node", "base", "views")}
    n = {name: slot_offset(node, name) for name in
         ("back", "parents", "kept", "versions", "seq", "sigs", "extra")}
    g = {name: slot_offset(Signature, name) for name in ("kin", "free", "numel", "shape")}
    return t, n, g
