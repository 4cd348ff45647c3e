"""Running a graph node by node, with real values or with proxies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau import nn
from flambeau.fx._symbolic_trace import Tracer
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, Target, map_aggregate, map_arg
from flambeau.fx.proxy import Proxy

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a GraphModule one node at a time; a subclass says how each kind of node runs.

    >>> import flambeau as torch
    >>> class Loud(Interpreter):
    ...     def run_node(self, n):
    ...         print(n.op, n.name)
    ...         return super().run_node(n)
    >>> Loud(torch.fx.symbolic_trace(lambda x: torch.neg(x) + 1)).run(torch.ones(1))
    placeholder x
    call_function neg
    call_function add
    output output
    tensor([0.])
    """

    def __init__(self, module: nn.Module, garbage_collect_values: bool = True,
                 graph: Graph | None = None) -> None:
        self.module: Any = module
        self.graph: Graph = module.graph if graph is None else graph
        self.submodules = dict(self.module.named_modules())
        self.env: dict[Node, Any] = {}
        self.args_iter: Iterator[Any] = iter(())
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for node in reversed(self.graph.nodes):
                for used in node.all_input_nodes:
                    if used not in seen:
                        seen.add(used)
                        self.user_to_last_uses.setdefault(node, []).append(used)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None,
            enable_io_processing: bool = True) -> Any:
        """What the graph returns for these arguments; values in `initial_env` are taken as known.

        Values that nobody needs any more are let go of on the way.
        """
        self.env = {} if initial_env is None else initial_env
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            with self._said_where(node):
                self.env[node] = self.run_node(node)
            for used in self.user_to_last_uses.get(node, ()):
                self.env.pop(used, None)
            if node.op == "output":
                out = self.env[node]
                return self.graph.process_outputs(out) if enable_io_processing else out
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run`, with arguments in a list that is emptied, so that they can be let go of."""
        args = list(args_list)
        args_list.clear()
        return self.run(*args, enable_io_processing=False)

    @contextlib.contextmanager
    def _said_where(self, node: Node) -> Iterator[None]:
        """An error says which node it came from."""
        try:
            yield
        except Exception as error:
            if self.extra_traceback:
                said = f"While executing {node.format_node()}"
                said = f"{error.args[0]}\n\n{said}" if error.args else said
                said += f"\nOriginal traceback:\n{node.stack_trace}"
                error.args = (said, *error.args[1:])
                if isinstance(error, KeyError):
                    raise RuntimeError(*error.args) from error
            raise

    def run_node(self, n: Node) -> Any:
        """What one node gives."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    # -- one kind of node each -------------------------------------------------------------------

    def placeholder(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The next argument."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise RuntimeError(f"Expected positional argument for parameter {target}, but one was "
                           "not passed in!")

    def get_attr(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the module has under a name."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What a function returns."""
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What a method returns."""
        first, *rest = args
        return getattr(first, str(target))(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What a module returns."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the graph returns."""
        return args[0]

    # -- values ----------------------------------------------------------------------------------

    def fetch_attr(self, target: str) -> Any:
        """What the module has under a dotted name."""
        value = self.module
        names = target.split(".")
        for k, name in enumerate(names):
            if not hasattr(value, name):
                raise RuntimeError("Node referenced nonexistent target "
                                   f"{'.'.join(names[:k + 1])}")
            value = getattr(value, name)
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple, dict[str, Any]]:
        """The arguments of a node, as values."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Nested arguments with values for nodes."""
        def value(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {used}! Run "
                                   "Graph.lint() to diagnose such issues")
            return self.env[used]

        return map_arg(args, value)


class Transformer(Interpreter):
    """Makes a new GraphModule by running one with proxies; a subclass changes nodes on the way.

    >>> import flambeau as torch
    >>> class Smooth(Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         target = torch.tanh if target is torch.relu else target
    ...         return super().call_function(target, args, kwargs)
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x))
    >>> print(Smooth(traced).transform().code.strip())
    def forward(self, x):
        tanh = torch.tanh(x);  x = None
        return tanh
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _Appending(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Proxy:
        """A new input."""
        default = next(iter(args), _NOTHING)
        if default is _NOTHING:
            return Proxy(self.new_graph.placeholder(str(target)), self.tracer)
        return Proxy(self.new_graph.placeholder(str(target), default_value=default), self.tracer)

    def get_attr(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Proxy:
        """The same attribute."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A call of the same module, or what is recorded inside if it is no leaf."""
        return self.tracer.call_module(self.fetch_attr(str(target)), self.fetch_attr(
            str(target)).forward, args, kwargs)

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A call of the function."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new module."""
        result = super().run(enable_io_processing=False)
        if result is not None:
            output = self.new_graph.output(map_aggregate(
                result, lambda a: a.node if isinstance(a, Proxy) else a))
            old = self.graph.output_node()
            output.type, output.meta = old.type, dict(old.meta)
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)


class _Appending(Tracer):
    """Records at the end of a graph; modules are leaves."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self._parameter_names = self._buffer_names = {}
        self._tensor_names, self._kept = {}, []

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def path_of_module(self, mod: nn.Module) -> str:
        return next(name for name, each in self.root.named_modules() if each is mod)


_NOTHING = object()
