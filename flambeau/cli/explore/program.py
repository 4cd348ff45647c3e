"""A few lines of arithmetic on tensors, read with `ast` and run one operation at a time.

Nothing is handed to Python: each kind of syntax that is allowed is a method here, each function a
name in a table, and whatever else is written is refused with its line. Every operation is recorded
with its operands, so that what no graph remembers (constants, detached values) can be shown too.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn

import flambeau
from flambeau.cli.usage import UsageError

LONGEST, MOST_OPERATIONS, MOST_ELEMENTS = 2000, 80, 256
FUNCTIONS = (
    "abs clone cos cosh erf exp gelu leaky_relu log log1p logsumexp maximum minimum mean neg norm "
    "prod reciprocal relu rsqrt sigmoid silu sin sinh softmax softplus sqrt square sum tan tanh "
    "var").split()
VIEWS = (
    "contiguous diagonal expand flatten flip movedim narrow permute ravel reshape select squeeze "
    "swapaxes t transpose unflatten unsqueeze view").split()
METHODS = {*FUNCTIONS, *VIEWS, "detach", "retain_grad"}
OPERATORS: dict[type, tuple[str, Callable]] = {
    ast.Add:    ("+", operator.add),
    ast.Sub:    ("-", operator.sub),
    ast.Mult:   ("*", operator.mul),
    ast.Div:    ("/", operator.truediv),
    ast.Pow:    ("**", operator.pow),
    ast.MatMult: ("@", operator.matmul),
}  # fmt: skip
#: what the library may say of operands that do not suit each other
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError,
            OverflowError, ZeroDivisionError, AttributeError)


@dataclass
class Record:
    """One tensor of the program: what made it, from what, and what it is called."""

    number: int
    tensor: Any
    label: str
    operands: list[int] = field(default_factory=list)
    source: str = ""
    line: int = 0
    recording: bool = True
    names: list[str] = field(default_factory=list)


class Program:
    """`Program(text, given, frozen)` runs; then `records`, `names` and `output` say what came."""

    def __init__(self, text: str, given: Mapping[str, Any], frozen: Any = (),
                 starts: Mapping[str, Any] | None = None) -> None:
        self.text, self.given, self.frozen = text, dict(given), set(frozen)
        self.records: list[Record] = []
        self.names: dict[str, Any] = dict(starts or {})
        self.inputs: dict[str, bool] = {}  # name -> whether the program itself gives its value
        self.output: str | None = None
        self.line, self.operations, self.recording = 1, 0, True
        self._by_id: dict[int, Record] = {}
        for name, tensor in self.names.items():
            self._record(tensor, name, []).names.append(name)

    def run(self) -> Program:
        statements = parse(self.text).body
        if not statements:
            raise UsageError("the program is empty; try  c = a*b; d = c + a; L = d**2")
        try:
            for statement in statements:
                self._statement(statement)
        except RecursionError:
            self._refuse("this is nested too deeply")
        unknown = sorted(set(self.given) - set(self.inputs))
        if unknown:
            raise UsageError(f"the program has no input named {' or '.join(unknown)}; it has "
                             f"{', '.join(self.inputs) or 'none'}")
        return self

    def record_of(self, tensor: Any) -> Record | None:
        return self._by_id.get(id(tensor))

    # -- statements ------------------------------------------------------------------------------

    def _statement(self, statement: ast.stmt) -> None:
        self.line = statement.lineno
        if isinstance(statement, ast.Assign):
            self._assign(statement)
        elif isinstance(statement, ast.Expr):
            self.value(statement.value)
        elif isinstance(statement, ast.With):
            self._with(statement)
        elif isinstance(statement, ast.AugAssign):
            self._refuse("an operation in place is not shown here: write  x = x + y")
        else:
            self._refuse(f"{_words(statement)} is not understood here: lines are  name = formula, "
                         "with no_grad(): and x.retain_grad()")

    def _assign(self, statement: ast.Assign) -> None:
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        if len(names) < len(statement.targets):
            self._refuse("only a name may stand left of =")
        for name in names:
            self._check_name(name)
        literal = _literal(statement.value)
        if literal is not None and names[0] not in self.names:
            value = self._input(names[0], self.given.get(names[0], literal), in_program=True)
        else:
            value = self.value(statement.value)
        if value is None:
            self._refuse("retain_grad() gives nothing that could have a name")
        found = self._by_id.get(id(value))
        for name in names:
            self.names[name] = value
            if found is not None and name not in found.names:
                found.names.append(name)
        self.output = names[-1]

    def _with(self, statement: ast.With) -> None:
        (item, *others) = statement.items
        call = item.context_expr
        name = getattr(call, "func", None)
        word = getattr(name, "id", getattr(name, "attr", None))
        if others or item.optional_vars is not None or word not in ("no_grad", "enable_grad"):
            self._refuse("the only blocks are  with no_grad():  and  with enable_grad():")
        before, self.recording = self.recording, word == "enable_grad"
        for inner in statement.body:
            self._statement(inner)
        self.recording = before

    # -- expressions -----------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        self.line = getattr(node, "lineno", self.line)
        known: dict[type, Callable] = {
            ast.Constant: self._constant, ast.Name: self._name, ast.BinOp: self._binary,
            ast.UnaryOp: self._unary, ast.Call: self._call, ast.Attribute: self._attribute,
            ast.Subscript: self._subscript, ast.List: self._list, ast.Tuple: self._tuple,
        }  # fmt: skip
        method = known.get(type(node))
        if method is None:
            self._refuse(f"{_words(node)} is not understood here; formulas are made of names, "
                         "numbers, lists of numbers, + - * / ** @ and functions such as exp")
        return method(node)

    def _constant(self, node: ast.Constant) -> Any:
        value = node.value
        if value is None or isinstance(value, bool):
            return value
        if not isinstance(value, (int, float)):
            self._refuse(f"{value!r} is not a number")
        return self._number(value)

    def _number(self, value: Any) -> Any:
        if isinstance(value, complex) or value != value:
            self._refuse("that is not a real number")
        if abs(value) > 1e300:
            self._refuse("that number is too large")
        return value

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self.names:
            if node.id in FUNCTIONS:
                self._refuse(f"{node.id} is a function: write {node.id}(x)")
            self._check_name(node.id)
            self.names[node.id] = self._input(node.id, self.given.get(node.id, 1.0))
        return self.names[node.id]

    def _input(self, name: str, value: Any, in_program: bool = False) -> Any:
        """A leaf of the graph, from the value that was given."""
        tensor = as_tensor(name, value)
        tensor.requires_grad_(name not in self.frozen)
        self.inputs[name] = in_program
        self._record(tensor, name, []).names.append(name)
        return tensor

    def _binary(self, node: ast.BinOp) -> Any:
        found = OPERATORS.get(type(node.op))
        if found is None:
            self._refuse(f"the operator {_words(node.op)} is not understood; there are + - * / "
                         "** @")
        sign, do = found
        left, right = self.value(node.left), self.value(node.right)
        if not any(isinstance(x, flambeau.Tensor) for x in (left, right)):
            return self._number(self._tried(lambda: _exactly(do, left, right)))
        return self._made(lambda: do(left, right), sign, [left, right], node)

    def _unary(self, node: ast.UnaryOp) -> Any:
        x = self.value(node.operand)
        if isinstance(node.op, ast.UAdd):
            return x
        if not isinstance(node.op, ast.USub):
            self._refuse(f"{_words(node.op)} is not understood here")
        if isinstance(x, flambeau.Tensor):
            return self._made(lambda: -x, "neg", [x], node)
        return self._tried(lambda: -x)

    def _call(self, node: ast.Call) -> Any:
        given = [self.value(each) for each in node.args]
        named = {each.arg: self.value(each.value) for each in node.keywords if each.arg}
        if len(named) != len(node.keywords):
            self._refuse("** is not understood in a call")
        called = node.func
        if isinstance(called, ast.Attribute) and not _is_library(called.value):
            return self._method(called, given, named, node)
        name = getattr(called, "id", getattr(called, "attr", ""))
        if name == "tensor" and len(given) == 1 and not named:
            return given[0]
        if name not in FUNCTIONS:
            self._refuse(f"there is no function {name or 'there'}; there are "
                         f"{', '.join(FUNCTIONS)}")
        if not any(isinstance(x, flambeau.Tensor) for x in given):
            self._refuse(f"{name} is given no tensor")
        do = getattr(flambeau, name, None) or getattr(flambeau.nn.functional, name)
        return self._made(lambda: do(*given, **named), name, given, node)

    def _method(self, called: ast.Attribute, given: list, named: dict, node: ast.Call) -> Any:
        x, name = self.value(called.value), called.attr
        if not isinstance(x, flambeau.Tensor):
            self._refuse(f"{name}() is asked of something that is not a tensor")
        if name not in METHODS:
            self._refuse(f"there is no method {name}; there are {', '.join(sorted(METHODS))}")
        if name == "retain_grad":
            return self._tried(x.retain_grad)
        do = getattr(x, name, None) or (
            lambda *rest, **more: getattr(flambeau.nn.functional, name)(x, *rest, **more))
        return self._made(lambda: do(*given, **named), name, [x, *given], node)

    def _attribute(self, node: ast.Attribute) -> Any:
        if node.attr not in ("T", "mT"):
            self._refuse(f".{node.attr} is not understood here; the only attributes are .T and .mT")
        x = self.value(node.value)
        return self._made(lambda: getattr(x, node.attr), f".{node.attr}", [x], node)

    def _subscript(self, node: ast.Subscript) -> Any:
        x, index = self.value(node.value), self._index(node.slice)
        if not isinstance(x, flambeau.Tensor):
            self._refuse("only a tensor can be indexed")
        written = ast.unparse(node.slice).strip("()")
        return self._made(lambda: x[index], f"[{written}]", [x], node)

    def _index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self._index(each) for each in node.elts)
        if isinstance(node, ast.Slice):
            return slice(*[None if part is None else self._whole(part)
                           for part in (node.lower, node.upper, node.step)])
        if isinstance(node, ast.Constant) and node.value in (None, ...):
            return node.value
        return self._whole(node)

    def _whole(self, node: ast.expr) -> int:
        value = self.value(node)
        if not isinstance(value, int) or isinstance(value, bool):
            self._refuse("an index is a whole number or a slice of whole numbers")
        return value

    def _list(self, node: ast.List) -> Any:
        literal = _literal(node)
        if literal is None:
            self._refuse("a list holds numbers only")
        tensor = as_tensor("a literal", literal)
        self._record(tensor, ast.unparse(node), [])
        return tensor

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._whole(each) for each in node.elts)

    # -- what is done ----------------------------------------------------------------------------

    def _made(self, do: Callable, label: str, operands: list, node: ast.expr) -> Any:
        """The result of one operation of the library, recorded."""
        self.operations += 1
        if self.operations > MOST_OPERATIONS:
            self._refuse(f"the program has more than {MOST_OPERATIONS} operations")
        with nullcontext() if self.recording else flambeau.no_grad():
            made = self._tried(do)
        if not isinstance(made, flambeau.Tensor):
            self._refuse(f"{label} does not give one tensor here")
        if made.numel() > MOST_ELEMENTS:
            self._refuse(f"{label} gives {made.numel():,} elements; here are at most "
                         f"{MOST_ELEMENTS}")
        tensors = [x for x in operands if isinstance(x, flambeau.Tensor)]
        if not any(made is x for x in tensors):
            found = self._record(made, label, [self._by_id[id(x)].number for x in tensors])
            found.source = ast.get_source_segment(self.text, node) or ast.unparse(node)
        return made

    def _tried(self, do: Callable) -> Any:
        try:
            return do()
        except OverflowError:
            self._refuse("that number is too large")
        except ZeroDivisionError:
            self._refuse("division of a number by zero")
        except REFUSALS as refusal:
            said = str(refusal).strip().partition("\n")[0] or type(refusal).__name__
            self._refuse(said)

    def _record(self, tensor: Any, label: str, operands: list[int]) -> Record:
        found = Record(len(self.records), tensor, label, operands, label, self.line,
                       self.recording)
        self.records.append(found)
        self._by_id[id(tensor)] = found
        return found

    def _check_name(self, name: str) -> None:
        if name.startswith("_") or len(name) > 24 or name in ("torch", "flambeau", "no_grad"):
            self._refuse(f"{name} cannot be the name of a tensor here")

    def _refuse(self, why: str) -> NoReturn:
        raise UsageError(f"line {self.line}: {why}")


def parse(text: str) -> ast.Module:
    """The syntax of a program, or a sentence about what is wrong with it."""
    if not isinstance(text, str):
        raise UsageError("the program must be text")
    if len(text) > LONGEST:
        raise UsageError(f"the program has {len(text):,} letters; at most {LONGEST:,} are read")
    try:
        return ast.parse(text)
    except SyntaxError as mistake:
        where = f"line {mistake.lineno}: " if mistake.lineno else ""
        raise UsageError(f"{where}{mistake.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise UsageError("the program cannot be read: it is nested too deeply, or holds letters "
                         "that no program may hold") from None


def _exactly(do: Callable, left: Any, right: Any) -> Any:
    """One operation on two numbers; whole where both are and the result is small enough."""
    found = do(float(left), float(right))
    whole = isinstance(left, int) and isinstance(right, int) and not isinstance(found, complex)
    return int(found) if whole and found == found // 1 and abs(found) < 2**53 else found


def as_tensor(name: str, value: Any) -> Any:
    """A tensor of finite numbers from a number, a list, or text that says one of them."""
    if isinstance(value, str):
        try:
            literal = _literal(ast.parse(value[:LONGEST].strip(), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            literal = None
        if literal is None:
            raise UsageError(f"{name}: {value[:40]!r} is neither a number nor a list of numbers "
                             "such as [1, 2] or [[1, 2], [3, 4]]")
        value = literal
    try:
        tensor = flambeau.tensor(value, dtype=flambeau.float32)
    except (*REFUSALS, RecursionError) as refusal:
        raise UsageError(f"{name}: {str(refusal).partition(chr(10))[0]}") from None
    if tensor.numel() > MOST_ELEMENTS or not tensor.numel():
        raise UsageError(f"{name} has {tensor.numel():,} elements; here are 1 to {MOST_ELEMENTS}")
    if not flambeau.isfinite(tensor).all():
        raise UsageError(f"{name} must be finite numbers that float32 can hold")
    return tensor


def _literal(node: ast.expr) -> Any:
    """A number or nested list of numbers that is written out; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inside = _literal(node.operand)
        return -inside if isinstance(inside, (int, float)) else None
    if isinstance(node, ast.Constant):
        number = isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
        return node.value if number else None
    if isinstance(node, (ast.List, ast.Tuple)):
        parts = [_literal(each) for each in node.elts]
        return None if None in parts else parts
    if isinstance(node, ast.Call) and _called(node) == "tensor" and len(node.args) == 1:
        return None if node.keywords else _literal(node.args[0])
    return None


def _called(node: ast.Call) -> str:
    called = node.func
    if isinstance(called, ast.Attribute) and _is_library(called.value):
        return called.attr
    return getattr(called, "id", "")


def _is_library(node: ast.expr) -> bool:
    """Whether this is `torch`, `flambeau`, `F` or `torch.nn.functional` before a dot."""
    return ast.unparse(node) in ("torch", "flambeau", "F", "torch.nn.functional")


def _words(node: ast.AST) -> str:
    """What a kind of syntax is called."""
    known = {"FunctionDef": "def", "Import": "import", "ImportFrom": "import", "Lambda": "lambda",
             "For": "for", "While": "while", "If": "if", "Compare": "a comparison",
             "ListComp": "a comprehension", "Mod": "%", "FloorDiv": "//", "BoolOp": "and / or"}
    kind = type(node).__name__
    return known.get(kind, kind)
