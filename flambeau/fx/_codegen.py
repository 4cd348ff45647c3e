"""The code of a graph: one Python function, as a person would write it down."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flambeau.fx import _pytree as fx_pytree
from flambeau.fx._naming import GIVEN, Namespace, is_ours, qualified_name, type_repr
from flambeau.fx.node import Node
from flambeau.utils import _pytree as pytree

#: function of the operator module -> how it is written
MAGIC = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "matmul": "{} @ {}",
    "truediv": "{} / {}", "floordiv": "{} // {}", "mod": "{} % {}", "pow": "{} ** {}",
    "lshift": "{} << {}", "rshift": "{} >> {}", "and_": "{} & {}", "or_": "{} | {}",
    "xor": "{} ^ {}", "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}",
    "le": "{} <= {}", "ge": "{} >= {}", "pos": "+{}", "neg": "-{}", "invert": "~{}",
    "getitem": "{}[{}]",
}
INPLACE = {
    "iadd": "{} += {}", "isub": "{} -= {}", "imul": "{} *= {}", "imatmul": "{} @= {}",
    "itruediv": "{} /= {}", "ifloordiv": "{} //= {}", "imod": "{} %= {}", "ipow": "{} **= {}",
    "ilshift": "{} <<= {}", "irshift": "{} >>= {}", "iand": "{} &= {}", "ior": "{} |= {}",
    "ixor": "{} ^= {}", "setitem": "{}[{}] = {}",
}


@dataclass
class PythonCode:
    """The text of a function, and what its names mean."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] = field(default_factory=dict)
    _prologue_start: int = 0


class _PyTreeInfo(NamedTuple):
    """How the arguments of a function were taken apart, and how its result is put together."""

    orig_args: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec | None


class CodeGen:
    """How the function around a graph is written; a subclass writes another one."""

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The first line of the function, and what is to come before the body."""
        if not free_vars or free_vars[0] != "self":
            free_vars = ["self", *free_vars]
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, repr_fn: Callable = repr) -> str:
        """The line that returns."""
        return f"return {repr_fn(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """What the graph is given when the function is given `args`."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What the function returns when the graph returns `outputs`."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the first and the last line use, with what they mean."""
        return []

    def _gen_python_code(self, nodes: Any, root_module: str, namespace: Namespace, *,
                         verbose: bool = False) -> PythonCode:
        return Writer(self, root_module, namespace, verbose).written(list(nodes))


class _PyTreeCodeGen(CodeGen):
    """A function that takes its arguments apart first, and puts its result together."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *args: Any) -> Any:
        return pytree.tree_leaves(args)

    def process_outputs(self, outputs: Any) -> Any:
        if self.pytree_info.out_spec is None:
            return outputs
        return pytree.tree_unflatten(
            outputs if isinstance(outputs, (list, tuple)) else [outputs], self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        names = self.pytree_info.orig_args
        names = names if names and names[0] == "self" else ["self", *names]
        text = f"def {self._func_name}({', '.join(names)}){maybe_return_annotation}:"
        if free_vars:
            bare = [each.partition(" ")[0] for each in free_vars]
            given = ", ".join(names[1:])
            text += (f"\n    {', '.join(bare)}, = fx_pytree.tree_flatten_spec("
                     f"[{given}], self._in_spec)")
        return text

    def generate_output(self, output_args: Any, *, repr_fn: Callable = repr) -> str:
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args, repr_fn=repr_fn)
        return f"return pytree.tree_unflatten({repr_fn(output_args)}, self._out_spec)"


class Writer:
    """Writes the function of one graph."""

    def __init__(self, codegen: CodeGen, root: str, namespace: Namespace, verbose: bool) -> None:
        self.codegen, self.root, self.names, self.verbose = codegen, root, namespace, verbose
        self.free: list[str] = []
        self.lines: list[str] = []
        self.wrapped: dict[str, None] = {}
        self.returns = ""
        self.globals: dict[str, Any] = dict(GIVEN, fx_pytree=fx_pytree, pytree=pytree)
        for name, value in codegen.additional_globals():
            self.globals[name] = value

    def written(self, nodes: list[Node]) -> PythonCode:
        last_used = _last_uses(nodes)
        trace: str | None = ""
        for node in nodes:
            told = self.verbose and node.op not in ("placeholder", "output")
            if told and node.stack_trace != trace:
                trace = node.stack_trace
                self.lines.append(_comment(trace))
            self._write(node, last_used.get(node, []))
        lines = self.lines or ["pass\n"]
        if self.codegen._body_transformer is not None:
            lines = self.codegen._body_transformer(lines)
        head = self.codegen.gen_fn_def(self.free, self.returns)
        wrapping = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped)
        body = "\n".join(f"    {line}" for line in "".join(lines).lstrip("\n").split("\n"))
        return PythonCode(f"\n{wrapping}\n\n{head}\n{body}", self.globals)

    def _write(self, node: Node, dead: list[Node]) -> None:
        """The line of a node; names that nobody reads afterwards are let go of."""
        line = getattr(self, f"_{node.op}")(node)
        if line is None:
            return
        names = [self.named(each) for each in dead]
        if node.op != "output" and not node.users:
            names.append(self.named(node))
        freeing = f";  {' = '.join([*names, 'None'])}" if names and node.op != "output" else ""
        self.lines.append(f"{line}{freeing}\n")

    def _placeholder(self, node: Node) -> str | None:
        default = f" = {self.shown(node.args[0])}" if node.args else ""
        self.free.append(f"{node.target}{self._annotation(node)}{default}")
        bare = str(node.target).replace("*", "")
        if bare != self.named(node):
            self.lines.append(f"{self.named(node)} = {bare}\n")
        return None

    def _get_attr(self, node: Node) -> str:
        return f"{self._name(node)} = {attribute(self.root, str(node.target))}"

    def _call_method(self, node: Node) -> str:
        return (f"{self._name(node)} = {self.shown(node.args[0])}.{node.target}"
                f"({self._arguments(node.args[1:], node.kwargs)})")

    def _call_module(self, node: Node) -> str:
        return (f"{self._name(node)} = {attribute(self.root, str(node.target))}"
                f"({self._arguments(node.args, node.kwargs)})")

    def _call_function(self, node: Node) -> str:
        target: Any = node.target
        args = node.args
        if getattr(target, "__module__", None) == "_operator":
            pattern = MAGIC.get(target.__name__)
            if pattern is not None:
                return f"{self._name(node)} = {pattern.format(*map(self.shown, args))}"
            pattern = INPLACE.get(target.__name__)
            if pattern is not None:
                return (f"{pattern.format(*map(self.shown, args))};  "
                        f"{self._name(node)} = {self.shown(args[0])}")
        if target is getattr and len(args) == 2 and isinstance(args[1], str) and (
                args[1].isidentifier()):
            return f"{self._name(node)} = {self.shown(args[0])}.{args[1]}"
        called = self.name_global(qualified_name(target), target)
        if node.meta.get("is_wrapped"):
            self.wrapped.setdefault(called)
        return f"{self._name(node)} = {called}({self._arguments(args, node.kwargs)})"

    def _output(self, node: Node) -> str:
        if node.type is not None:
            self.returns = f" -> {self.type_text(node.type)}"
        return self.codegen.generate_output(node.args[0], repr_fn=self.shown)

    # -- parts of a line -------------------------------------------------------------------------

    def named(self, node: Node) -> str:
        """The name of a node in the code: its own, unless a global has that."""
        return self.names.create_name(node.name, node)

    def _name(self, node: Node) -> str:
        return f"{self.named(node)}{self._annotation(node)}"

    def _annotation(self, node: Node) -> str:
        return "" if node.type is None else f" : {self.type_text(node.type)}"

    def _arguments(self, args: tuple, kwargs: dict[str, Any]) -> str:
        return ", ".join((*map(self.shown, args),
                          *(f"{key} = {self.shown(value)}" for key, value in kwargs.items())))

    def name_global(self, hint: str, value: Any) -> str:
        """The name that a function or class has in the code."""
        if is_ours(value) and value is not GIVEN["device"]:
            return qualified_name(value)
        name = hint.replace(".", "_")
        if self.globals.get(name) is value:
            return name
        name = self.names.create_name(name, value)
        self.globals[name] = value
        return name

    def type_text(self, kind: Any) -> str:
        """A type, with names for what it is made of."""
        if kind == ():
            return "()"
        shown = type_repr(kind)
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin is None:
            return self.name_global(shown, kind)
        written = form_of(kind)
        if written is not None:
            base = self.name_global(f"typing.{written}", getattr(typing, written))
        else:
            base = self.name_global(type_repr(origin), origin)
        if not inner:
            return base
        return f"{base}[{','.join(map(self.type_text, inner))}]"

    def shown(self, arg: Any) -> str:
        """An argument, written so that it is read back."""
        if isinstance(arg, Node):
            return self.named(arg)
        if isinstance(arg, tuple):
            inside = ", ".join(map(self.shown, arg)) + ("," if len(arg) == 1 else "")
            if hasattr(arg, "_fields"):
                return f"{self.name_global(type_repr(type(arg)), type(arg))}({inside})"
            return f"({inside})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.shown, arg))}]"
        if isinstance(arg, dict):
            return f"{{{', '.join(f'{key!r}: {self.shown(value)}' for key, value in arg.items())}}}"
        if isinstance(arg, slice):
            return f"slice({', '.join(map(self.shown, (arg.start, arg.stop, arg.step)))})"
        if isinstance(arg, enum.Enum):
            return f"{self.name_global(type(arg).__name__, type(arg))}.{arg.name}"
        return repr(arg)


def form_of(kind: Any) -> str | None:
    """The name in the typing module of a type with parameters, if that is where it is from."""
    if isinstance(kind, types.UnionType):
        return "Union"
    if isinstance(kind, types.GenericAlias):
        return None
    name = getattr(kind, "_name", None) or getattr(typing.get_origin(kind), "_name", None)
    return "Union" if name == "Optional" else name


def attribute(base: str, target: str) -> str:
    """How an attribute is reached, where names are no identifiers too.

    >>> attribute("self", "layers.0.weight")
    'getattr(self.layers, "0").weight'
    """
    for name in target.split("."):
        base = f"{base}.{name}" if name.isidentifier() else f'getattr({base}, "{name}")'
    return base


def _last_uses(nodes: list[Node]) -> dict[Node, list[Node]]:
    """Each node -> those that nobody needs after it."""
    found: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(nodes):
        for used in node._input_nodes:
            if used not in seen:
                seen.add(used)
                found.setdefault(node, []).append(used)
    return found


def _comment(trace: str | None) -> str:
    """The line of the program that a node came from."""
    if not trace:
        return "\n# No stacktrace found for following nodes\n"
    lines = [line.strip() for line in trace.strip().split("\n")]
    places = [k for k, line in enumerate(lines) if line.startswith("File ")]
    if not places:
        return "\n"
    file, _, rest = lines[places[-1]].removeprefix("File ").partition(", line ")
    number, _, function = rest.partition(", in ")
    code = lines[places[-1] + 1] if places[-1] + 1 < len(lines) else ""
    return f"\n# File: {file.strip(chr(34))}:{number} in {function}, code: {code}\n"
