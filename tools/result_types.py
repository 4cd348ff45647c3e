"""What an op or a function returns, read from its source: Tensor, tuple[Tensor, ...], Any ...

A composite returns one tensor unless its return statements say otherwise; where they say two
different things it is Any.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap

from flambeau.engine.results import TYPES, name_of
from flambeau.ops.declare import Composite, Library, Op, Reduction, registry

TENSOR, SEVERAL, LIST, ANY = "Tensor", "_tuple[Tensor, ...]", "_list[Tensor]", "_Any"

#: what the engine makes that is not one tensor
ENGINE_MAKES = {"like_named": SEVERAL, "named": SEVERAL, "parts": ANY, "to_array": ANY}
#: what functions of Python return
PYTHON_MAKES = {"bool": "_bool", "int": "_int", "float": "_float", "tuple": SEVERAL,
                "list": LIST}
AGAIN = "again"  # a name or function that leads back to itself says nothing new
_BEING_READ: set = set()


def result_of(op: Op) -> str:
    """What calling an op returns."""
    named = name_of(op) in TYPES
    several = (isinstance(op, Library) and (named or function_result(op.body) == LIST)) or (
        isinstance(op, Reduction) and op.results is not None)
    if several:
        return f"return_types.{name_of(op)}" if named else SEVERAL
    if isinstance(op, Composite):
        return ANY if named else function_result(op.body) or TENSOR
    return TENSOR


def function_result(function) -> str:
    """What a Python function returns; empty where its return statements do not say."""
    try:
        tree = _tree(function)
    except (OSError, TypeError, SyntaxError):
        return ""
    if function in _BEING_READ:
        return AGAIN
    _BEING_READ.add(function)
    try:
        reader = _Reader(function, tree)
        return _joined({reader.read(r.value) for r in _return_statements(tree)})
    finally:
        _BEING_READ.discard(function)


@functools.cache
def _tree(function) -> ast.FunctionDef:
    return ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]


def _return_statements(tree) -> list[ast.Return]:
    """Those of the function itself, not of functions inside it."""
    found, open_nodes = [], list(tree.body) if isinstance(tree, ast.FunctionDef) else []
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.Return):
            found.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            open_nodes.extend(ast.iter_child_nodes(node))
    return found


def _joined(found: set[str]) -> str:
    said = found - {"", AGAIN}
    if said == {SEVERAL, LIST}:
        said = {SEVERAL}
    if "" in found and said != {TENSOR}:  # silence stands for a tensor
        return ANY if said else ""
    return said.pop() if len(said) == 1 else ANY if said else ""


class _Reader:
    """Reads the expressions of one function; what it cannot read it says nothing about."""

    def __init__(self, function, tree):
        self.names = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        self.assigned: dict[str, list] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.assigned.setdefault(node.targets[0].id, []).append(node.value)
        self.open: set[str] = set()

    def read(self, node) -> str:
        reader = getattr(self, f"read_{type(node).__name__}", None)
        return "" if reader is None else reader(node)

    def read_Tuple(self, node) -> str:
        return SEVERAL

    def read_List(self, node) -> str:
        return LIST

    read_ListComp = read_List

    def read_Compare(self, node) -> str:
        return "_bool" if isinstance(node.ops[0], (ast.Is, ast.IsNot)) else ""

    def read_Constant(self, node) -> str:
        return {bool: "_bool", type(None): "None"}.get(type(node.value), "")

    def read_BoolOp(self, node) -> str:
        return _joined({self.read(value) for value in node.values})

    def read_IfExp(self, node) -> str:
        return _joined({self.read(node.body), self.read(node.orelse)})

    def read_BinOp(self, node) -> str:
        return TENSOR

    def read_Name(self, node) -> str:
        name = node.id
        if name in self.open:
            return AGAIN
        if name not in self.assigned:
            return ""
        self.open.add(name)
        found = _joined({self.read(value) for value in self.assigned[name]})
        self.open.discard(name)
        return found

    def read_Call(self, node) -> str:
        called = node.func
        if isinstance(called, ast.Name):
            return self.of_called(self.names.get(called.id), called.id)
        if not isinstance(called, ast.Attribute):
            return ""
        if isinstance(called.value, ast.Name) and called.value.id == "engine":
            return ENGINE_MAKES.get(called.attr) or self.of_called(registry.get(called.attr))
        return self.of_called(registry.get(called.attr))

    def of_called(self, called, name: str = "") -> str:
        if isinstance(called, Op):
            return result_of(called)
        if called is None:
            return PYTHON_MAKES.get(name, "")
        return function_result(called) if inspect.isfunction(called) else ""
