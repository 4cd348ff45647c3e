"""A graph: nodes in the order in which they run, and ways to make, move and write them."""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from flambeau import Tensor, nn
from flambeau.fx._codegen import INPLACE, MAGIC, CodeGen, PythonCode
from flambeau.fx._naming import Namespace, hint_of, qualified_name
from flambeau.fx._stored import restore, stored
from flambeau.fx.node import Node, Target, map_arg, walk

__all__ = ["CodeGen", "Graph", "PythonCode"]

magic_methods, inplace_methods = MAGIC, INPLACE
_Namespace = Namespace


class NodeList:
    """The nodes of a graph, in order; nodes may be added and erased on the way."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        return walk(self.graph._root, self.direction == "_prev")

    def __reversed__(self) -> NodeList:
        return NodeList(self.graph, "_next" if self.direction == "_prev" else "_prev")

    def __repr__(self) -> str:
        return repr(list(self))


class InsertPoint:
    """Where new nodes go; as a context, until its end."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph, self.before = graph, graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *failure: Any) -> None:
        self.graph._insert = self.before


class Graph:
    """Calls in the order in which they run, each of them a node.

    >>> import flambeau as torch
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_function(torch.relu, (x,))
    >>> result = graph.output(y)
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
        return relu
    """

    def __init__(self, owning_module: Any = None, tracer_cls: type | None = None,
                 tracer_extras: dict[str, Any] | None = None) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = Namespace()
        self._owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()

    # -- reading ---------------------------------------------------------------------------------

    @property
    def owning_module(self) -> Any:
        """The GraphModule that runs this graph, if one does."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> NodeList:
        """The nodes in order."""
        return NodeList(self)

    def output_node(self) -> Node:
        """The node that returns, which is the last."""
        last = next(iter(reversed(self.nodes)))
        assert last.op == "output", f"Expected output node, got op={last.op}"
        return last

    def find_nodes(self, *, op: str, target: Target | None = None,
                   sort: bool = True) -> list[Node]:
        """The nodes that do this, in order."""
        if op == "call_function":
            assert target is not None, "target must not be None for call_function op"
        return [node for node in self.nodes
                if node.op == op and (target is None or node.target == target)]

    def __str__(self) -> str:
        return "\n    ".join(["graph():", *(str(node.format_node()) for node in self.nodes)])

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(node.op, node.name, node._pretty_print_target(node.target), str(node.args),
                  str(node.kwargs)) for node in self.nodes]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
        for row in rows:
            print("  ".join(map(str.ljust, row, widths)).rstrip())

    # -- making nodes ----------------------------------------------------------------------------

    def create_node(self, op: str, target: Target, args: tuple | None = None,
                    kwargs: dict[str, Any] | None = None, name: str | None = None,
                    type_expr: Any = None) -> Node:
        """A new node where nodes are inserted now; at the end, unless it was said otherwise."""
        assert isinstance(args, tuple | None), f"args must be a tuple, got {type(args)}"
        assert isinstance(kwargs, dict | None), f"kwargs must be a dict, got {type(kwargs)}"
        hint = name if name is not None else hint_of(target)
        unique = self._graph_namespace.create_name(hint, None)
        node = Node(self, unique, op, target, args or (), kwargs or {}, type_expr)
        self._graph_namespace.associate_name_with_obj(unique, node)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(self, name: str, type_expr: Any = None,
                    default_value: Any = inspect.Signature.empty) -> Node:
        """An input."""
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the module."""
        if self.owning_module is not None and not _leads_to(
                self.owning_module, qualified_name, (nn.Module, nn.Parameter, Tensor)):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule, "
                "GraphModule.add_parameter to add the necessary Parameter, or "
                "nn.Module.register_buffer to add the necessary buffer", stacklevel=2)
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: tuple | None = None,
                    kwargs: dict[str, Any] | None = None, type_expr: Any = None) -> Node:
        """A call of a module below the one that owns the graph."""
        if self.owning_module is not None and self.owning_module.get_submodule(module_name) is None:
            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule",
                stacklevel=2)
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name: str, args: tuple | None = None,
                    kwargs: dict[str, Any] | None = None, type_expr: Any = None) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(self, the_function: Callable[..., Any], args: tuple | None = None,
                      kwargs: dict[str, Any] | None = None, type_expr: Any = None,
                      name: str | None = None) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """What the graph returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """A copy of a node of another graph; `arg_transform` finds its arguments in this one."""
        args, kwargs = map_arg((node.args, node.kwargs), arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node],
                   return_output_node: bool = False) -> Any:
        """Copies of all nodes of another graph but its output; what it returns, in this graph.

        `val_map` is filled with what became of each node; those that are there are not copied.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict | None = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        made._codegen = copy.deepcopy(self._codegen, memo)
        copies: dict[Node, Node] = {}
        copied = made.graph_copy(self, copies, return_output_node=True)
        if copied is not None:
            result, old = copied
            output = made.output(result, old.type)
            output.meta = copy.copy(old.meta)
            copies[old] = output
        return made

    # -- changing --------------------------------------------------------------------------------

    def inserting_before(self, n: Node | None = None) -> InsertPoint:
        """New nodes go before this one, or before all."""
        if n is None:
            return self.inserting_after(self._root)
        assert n.graph is self, "Node to insert before is not in graph."
        return InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> InsertPoint:
        """New nodes go after this one, or after all."""
        if n is None:
            return self.inserting_before(self._root)
        assert n.graph is self, "Node to insert after is not in graph."
        return InsertPoint(self, n.append)

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out that nobody uses."""
        if to_erase.users:
            raise RuntimeError(f"Tried to erase Node {to_erase} but it still had "
                               f"{len(to_erase.users)} users in the graph: {to_erase.users}!")
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        to_erase._remove_from_list()
        to_erase._erased = True  # a walk that stands on it still finds the way on
        self._len -= 1
        to_erase._detach()

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take out what nobody uses; whether there was any.

        Calls that change tensors in place count as unused too: such graphs are not for this.
        """
        self.lint()
        is_impure = is_impure_node or Node.is_impure
        before = len(self.nodes)
        for node in reversed(self.nodes):
            if not node.users and not is_impure(node):
                self.erase_node(node)
        return len(self.nodes) < before

    def lint(self) -> None:
        """Raise where the graph is not one: names, order, arguments, targets."""
        seen: dict[Node, None] = {}
        names: set[str] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for each in node._input_nodes:
                self._check_argument(each, node, seen)
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen[node] = None
            names.add(node.name)
        if self.owning_module is not None:
            for node in self.nodes:
                if node.op in ("get_attr", "call_module"):
                    _check_target(self.owning_module, node)

    def _check_argument(self, arg: Node, node: Node, seen: dict[Node, None]) -> None:
        if arg.graph is not self:
            raise RuntimeError(
                f"Argument '{arg}' of Node '{node}' does not belong to this Graph, but was used as "
                "an argument! If you are copying nodes from another graph, make sure to use "
                f"``arg_transform`` on node_copy() to remap values\n{self}")
        if arg not in seen:
            raise RuntimeError(f"Argument '{arg}' of Node '{node}' was used before it has been "
                               f"defined! Please check that Nodes in the graph are topologically "
                               f"ordered\n{self}")

    # -- writing ---------------------------------------------------------------------------------

    def python_code(self, root_module: str, *, verbose: bool = False,
                    **how: Any) -> PythonCode:
        """The graph as a function; `root_module` is what it calls the module that owns it."""
        return self._codegen._gen_python_code(self.nodes, root_module, Namespace(),
                                              verbose=verbose)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Have the code written otherwise."""
        self._codegen = codegen

    def on_generate_code(
            self, make_transformer: Callable[[Callable | None], Callable]) -> Any:
        """Have the lines of the code changed when they are written; as a context, until its end.

        `make_transformer` is given what changes them now, or None, and returns what is to.
        """
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)

        @contextlib.contextmanager
        def until_end() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = before

        return until_end()

    def process_inputs(self, *args: Any) -> Any:
        """What the inputs are when the module is called with `args`."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What a call of the module returns when the graph returns `out`."""
        return self._codegen.process_outputs(out)

    def _target_to_str(self, target: Target) -> str:
        return hint_of(target)

    # -- files -----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return stored(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(tracer_cls=state["tracer"])  # type: ignore[misc]
        self._codegen = state["codegen"]
        restore(self, state["nodes"])


def _leads_to(module: nn.Module, target: str, kinds: tuple[type, ...]) -> bool:
    """Whether a dotted name is one of these below a module."""
    path, _, name = target.rpartition(".")
    try:
        return isinstance(getattr(module.get_submodule(path), name, None), kinds)
    except AttributeError:
        return False


def _check_target(owner: nn.Module, node: Node) -> None:
    """Raise where a node's attribute or module does not exist."""
    module: Any = owner
    path = ""
    names = str(node.target).split(".")
    for k, name in enumerate(names):
        found = getattr(module, name, None)
        if found is None and not hasattr(module, name):
            raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute "
                               f"{name} of {path}")
        last = k == len(names) - 1
        if last and node.op == "call_module" and not isinstance(found, nn.Module):
            raise RuntimeError(f"Node {node} target {node.target} {name} of {path} does not "
                               "reference an nn.Module")
        module, path = found, ".".join(names[:k + 1])


# names that programs reach for, though they are not public
_InsertPoint, _node_list = InsertPoint, NodeList
_get_qualified_name = qualified_name
