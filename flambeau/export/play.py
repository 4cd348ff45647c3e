"""Running a graph: a module that needs nothing but the graph and its weights."""

from __future__ import annotations

import copy
from typing import Any

import flambeau
from flambeau import Tensor, nn

from .graph import Extent, Graph, Node, Value, mapped
from .record import Input, function_named


def plant(root: nn.Module, name: str, tensor: Tensor, trained: bool,
          persistent: bool = True) -> tuple[str, ...]:
    """Register a tensor under a dotted name, making the modules on the way; the path to it."""
    *parents, last = path = tuple(name.split("."))
    module = root
    for part in parents:
        if part not in module._modules:
            module.add_module(part, nn.Module())
        module = module._modules[part]
    if trained:
        module.register_parameter(last, tensor if isinstance(tensor, nn.Parameter) else
                                  nn.Parameter(tensor, tensor.dtype.is_floating_point))
    else:
        module.register_buffer(last, tensor, persistent)
    return path


class GraphModule(nn.Module):
    """A graph that runs: op calls in order, on weights that are its own, or a model's."""

    def __init__(self, graph: Graph, weights: dict[str, Tensor] | None = None):
        super().__init__()
        object.__setattr__(self, "graph", graph)
        given: dict[str, Any] = (
            {name: v.data for name, v in graph.weights.items()} if weights is None else weights)
        self._paths = {name: plant(self, name, given[name], name in graph.parameters)
                       for name in graph.weights}
        for name, original in graph.aliases.items():
            plant(self, name, self._weight(self._paths[original]), original in graph.parameters)
        writes = _seen_writes(graph)
        self._calls = [(node, function_named(node.op), k in writes)
                       for k, node in enumerate(graph.nodes)]

    def forward(self, *args, **kwargs):
        graph = self.graph
        inputs = self._inputs(args, kwargs)
        known: dict[int, Any] = {id(v): x for v, x in zip(graph.inputs, inputs, strict=True)}
        for name, path in self._paths.items():
            known[id(graph.weights[name])] = self._weight(path)
        for value in graph.constants.values():
            known[id(value)] = value.data
        sizes = {s: inputs[i].shape[axis] for s, (i, axis) in graph.symbols.items()}

        def real(a):
            if isinstance(a, Value):
                return known[id(a)]
            return a.at(sizes) if isinstance(a, Extent) else a

        for node, function, writes in self._calls:
            _keep(node, _called(node, function, real, writes), known)
        return mapped(graph.outputs, real)

    def _weight(self, path) -> Tensor:
        module = self
        for part in path[:-1]:
            module = module._modules[part]
        return getattr(module, path[-1])

    def _inputs(self, args, kwargs) -> list[Tensor]:
        """The tensors of a call that is like the recorded one."""
        found: dict[int, Tensor] = {}
        wanted_args, wanted_named = self.graph.structure
        if len(args) > len(wanted_args):
            names = [v.name for v in self.graph.inputs]
            for k in range(len(wanted_args), len(args)):
                raise TypeError(f"{self.graph.name}: takes {len(wanted_args)} arguments "
                                f"({', '.join(names)}), but {k + 1} were given")
        named = dict(kwargs)
        given = list(args)
        for value in self.graph.inputs[len(args):]:
            if value.name in named and len(given) < len(wanted_args):
                given.append(named.pop(value.name))
        if len(given) < len(wanted_args):
            raise TypeError(f"{self.graph.name}: missing arguments: "
                            f"{', '.join(v.name for v in self.graph.inputs[len(given):])}")
        _match(wanted_args, tuple(given), found)
        for name, wanted in wanted_named.items():
            _match(wanted, named.get(name), found)
        return [found[k] for k in range(len(self.graph.inputs))]

    def with_own_weights(self) -> Graph:
        """The graph, with its weights as they are now."""
        for name, path in self._paths.items():
            self.graph.weights[name].data = self._weight(path).detach()
        return self.graph

    def __getstate__(self):
        raise TypeError("a traced program is saved by jit.save, and not by pickle")

    def __deepcopy__(self, memo):
        own = {name: copy.deepcopy(self._weight(path), memo) for name, path in self._paths.items()}
        return type(self)(self.graph, own)

    def extra_repr(self) -> str:
        return f"{self.graph.name}, {len(self.graph.nodes)} calls"


def folded(graph: Graph) -> Graph:
    """The graph with constants in place of what depends on nothing else."""
    known: dict[int, Any] = {id(v): v.data for v in graph.constants.values()}
    kept = []
    changed = {id(n.into) for n in graph.nodes if n.into is not None}
    with flambeau.no_grad():
        for node in graph.nodes:
            if node.into is not None or any(id(v) not in known or id(v) in changed
                                            for v in (*node.inputs, *node.outputs)
                                            if id(v) in changed or v not in node.outputs):
                kept.append(node)
                continue
            _keep(node, _called(node, function_named(node.op), lambda a: known[id(a)]
                                if isinstance(a, Value) else a), known)
            for value in node.outputs:
                value.data = known[id(value)]
                graph.constants[f"folded_{len(graph.constants)}"] = value
    graph.nodes = kept
    return graph.without_dead_code()


def _match(wanted, given, found: dict[int, Tensor]) -> None:
    if isinstance(wanted, Input):
        if not isinstance(given, Tensor):
            raise TypeError(f"a traced program takes a tensor as input {wanted.number}, not "
                            f"{type(given).__name__}")
        found[wanted.number] = given
    elif isinstance(wanted, (tuple, list)):
        if not isinstance(given, (tuple, list)) or len(given) != len(wanted):
            raise TypeError(f"a traced program takes {len(wanted)} parts there, as it was traced")
        for w, g in zip(wanted, given, strict=True):
            _match(w, g, found)
    elif isinstance(wanted, dict):
        for key, w in wanted.items():
            _match(w, given[key], found)


def _seen_writes(graph: Graph) -> set[int]:
    """Nodes that change what somebody sees by another name: inputs, weights, views used later."""
    outer = {id(v) for v in (*graph.inputs, *graph.weights.values(), *graph.constants.values())}
    used: set[int] = {id(v) for v in graph.output_values}
    found = set()
    for k in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[k]
        if node.into is not None and any(id(v) in outer or id(v) in used
                                         for v in (node.into, *node.shares)):
            found.add(k)
        used.update(id(v) for v in node.inputs)
    return found


def _called(node: Node, function, real, writes: bool = True):
    args = mapped(node.args, real)
    kwargs = mapped(node.kwargs, real)
    if node.into is None or node.op in _IN_PLACE or not writes:
        return function(*args, **kwargs)
    return real(node.into).copy_(function(*args, **kwargs))


#: ops that change their first argument themselves
_IN_PLACE = frozenset(("setitem", "copy_"))


def _keep(node: Node, result, known: dict[int, Any]) -> None:
    made = node.result
    if isinstance(made, Value):
        known[id(made)] = result
    elif isinstance(made, (tuple, list)):
        _keep_parts(made, result, known)


def _keep_parts(made, result, known) -> None:
    for part, value in zip(made, result, strict=True):
        if isinstance(part, Value):
            known[id(part)] = value
        elif isinstance(part, (tuple, list)):
            _keep_parts(part, value, known)
