"""A model as a graph of ops of which nothing is hidden: its parameters are inputs like others.

    program = export(model, (x,))
    print(program)
    program.module()(x)
    save(program, "model.pt2")

The model is run once, and every op it calls is a node (see utils/_python_dispatch.py). Whatever
Python decided is as in the example, and so are sizes, but those that `dynamic_shapes` names: then
the model is run at several sizes (see dynamic.py).
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
from typing import Any

import flambeau
from flambeau import Tensor, fx, nn
from flambeau.export.dynamic import Guards, Sizes, general, sizes_said
from flambeau.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from flambeau.fx._codegen import _PyTreeCodeGen, _PyTreeInfo
from flambeau.utils._python_dispatch import Called, TorchDispatchMode
from flambeau.utils._pytree import (
    register_pytree_node,
    tree_flatten,
    tree_map,
    tree_unflatten,
)

__all__ = ["ExportedProgram", "export", "load", "register_dataclass", "save"]

READS = "aten._local_scalar_dense.default"


class ExportedProgram:
    """The graph of a model, what its inputs and outputs are, and the tensors it owns."""

    dialect = "TRAINING"

    def __init__(self, graph: fx.Graph, graph_signature: ExportGraphSignature, state_dict: dict,
                 constants: dict, arguments: list[str], specs: tuple, example_inputs: tuple,
                 sizes: Sizes | None = None):
        self.graph_module = fx.GraphModule({}, graph)
        self.graph_signature, self.state_dict = graph_signature, state_dict
        self.constants, self.example_inputs = constants, example_inputs
        self._sizes = sizes or Sizes()
        self._arguments, self._specs = arguments, specs

    @property
    def graph(self) -> fx.Graph:
        """The graph; its first inputs are parameters, buffers and constants."""
        return self.graph_module.graph

    @property
    def range_constraints(self) -> dict:
        """The bounds of sizes that vary, by name."""
        return dict(self._sizes.bounds)

    @property
    def tensor_constants(self) -> dict:
        """Tensors that the model made of nothing."""
        return self.constants

    def named_parameters(self):
        """(name, parameter) pairs."""
        return ((name, self.state_dict[name]) for name in self.graph_signature.parameters)

    def parameters(self):
        """The parameters."""
        return (value for _, value in self.named_parameters())

    def named_buffers(self):
        """(name, buffer) pairs."""
        owned = {**self.constants, **self.state_dict}
        return ((name, owned[name]) for name in self.graph_signature.buffers)

    def buffers(self):
        """The buffers."""
        return (value for _, value in self.named_buffers())

    def module(self, check_guards: bool = True) -> fx.GraphModule:
        """A module that is called as the model was, and owns its tensors by the same names."""
        targets = {**self.graph_signature.inputs_to_parameters,
                   **self.graph_signature.inputs_to_buffers,
                   **self.graph_signature.inputs_to_lifted_tensor_constants}
        graph = fx.Graph()
        made: dict[fx.Node, fx.Node] = {}
        for node in self.graph.nodes:
            target = targets.get(node.name) if node.op == "placeholder" else None
            if target is None:
                made[node] = graph.node_copy(node, lambda n: made[n])
            else:
                made[node] = graph.get_attr(target)
        graph._codegen = _PyTreeCodeGen(_PyTreeInfo(self._arguments, *self._specs))
        root = self._root(targets)
        if check_guards:
            self._guard(root, graph, made)
        module = fx.GraphModule(root, graph)
        for target in self._unsaved():
            path, _, name = target.rpartition(".")
            module.get_submodule(path)._non_persistent_buffers_set.add(name)
        return module

    def _guard(self, root: nn.Module, graph: fx.Graph, made: dict) -> None:
        """Calls are checked first: the sizes of their tensors are those that the graph is for."""
        names = self.graph_signature.user_inputs
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"][-len(names):]
        shapes = [tuple(n.meta["val"].shape) if "val" in n.meta else None for n in inputs]
        root.add_module("_guards_fn", Guards(list(map(str, names)), shapes, self._sizes))
        first = next(n for n in graph.nodes if n.op not in ("placeholder", "get_attr"))
        with graph.inserting_before(first):
            graph.call_module("_guards_fn", tuple(made[n] for n in inputs))

    def _unsaved(self) -> tuple[str, ...]:
        """Names of tensors that are no part of a state_dict."""
        signature = self.graph_signature
        return (*signature.non_persistent_buffers, *signature.lifted_tensor_constants)

    def _root(self, targets: dict) -> nn.Module:
        root, owned = nn.Module(), {**self.constants, **self.state_dict}
        for target in dict.fromkeys(targets.values()):
            *path, name = target.split(".")
            place = root
            for part in path:
                if part not in place._modules:
                    place.add_module(part, nn.Module())
                place = place._modules[part]
            value = owned[target]
            if isinstance(value, nn.Parameter):
                place.register_parameter(name, value)
            else:
                place.register_buffer(name, value)
        return root

    def __call__(self, *args: Any, **kwargs: Any):
        raise RuntimeError("Unable to call ExportedProgram directly. You should use "
                           "`exported_program.module()` instead.")

    def run_decompositions(self, decomp_table: Any = None) -> ExportedProgram:
        """The same program: ops are those that the library has."""
        return self

    def __str__(self) -> str:
        code = "\n".join(f"    {line}".rstrip() for line in
                         ("class GraphModule(torch.nn.Module):\n" + "\n".join(
                             f"    {line}" for line in self.graph_module.code.strip().split("\n"))
                          ).split("\n"))
        told = str(self.graph_signature).replace("\n", "\n    ")
        return (f"ExportedProgram:\n{code}\n\nGraph signature: {told}\n"
                f"Range constraints: {self.range_constraints}\n")


def export(mod: nn.Module, args: tuple, kwargs: dict | None = None, *, dynamic_shapes: Any = None,
           strict: bool = False, preserve_module_call_signature: tuple = (),
           prefer_deferred_runtime_asserts_over_guards: bool = False) -> ExportedProgram:
    """The program of one call of a model with example arguments."""
    if not isinstance(mod, nn.Module):
        raise ValueError("Expected `mod` to be an instance of `torch.nn.Module`, got "
                         f"{type(mod)}.")
    if not isinstance(args, tuple):
        raise TypeError("Expecting `args` to be a tuple of example positional inputs, got "
                        f"{type(args)}")
    kwargs = kwargs or {}
    if not dynamic_shapes:
        return _Recording(mod).program(args, kwargs)
    names, values = _named(mod.forward, args, kwargs)
    sizes = sizes_said(names, values, dynamic_shapes, _leaf_names(names, values))
    program, sizes = general(lambda a, k: _Recording(mod).program(a, k), args, kwargs, sizes)
    program._sizes, program.example_inputs = sizes, (args, kwargs)
    return program


class _Recording(TorchDispatchMode):
    """Writes down the ops of one call."""

    decomposes = False

    def __init__(self, mod: nn.Module):
        super().__init__()
        self.mod, self.graph = mod, fx.Graph()
        self.nodes: dict[int, fx.Node] = {}
        self.kept: list = []  # tensors whose numbers are in use
        self.inputs: list[InputSpec] = []
        self.state: dict[str, Tensor] = {}
        self.constants: dict[str, Tensor] = {}
        self.first: fx.Node | None = None  # of the user's inputs

    def program(self, args: tuple, kwargs: dict) -> ExportedProgram:
        self._own()
        names, values = _named(self.mod.forward, args, kwargs)
        leaves, in_spec = tree_flatten(values)
        for name, leaf in zip(_leaf_names(names, values), leaves, strict=True):
            node = self._input(name, InputKind.USER_INPUT, leaf, None)
            self.first = self.first or node
        with self:
            result = self.mod(*args, **kwargs)
        found, out_spec = tree_flatten(result)
        outputs = [self._node(x) if isinstance(x, Tensor) else x for x in found]
        self.graph.output(tuple(outputs))
        told = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(x.name) if isinstance(x, fx.Node)
                           else ConstantArgument("", x), None) for x in outputs]
        specs = [spec for spec in self.inputs if spec.kind is not InputKind.USER_INPUT]
        specs += [spec for spec in self.inputs if spec.kind is InputKind.USER_INPUT]
        return ExportedProgram(self.graph, ExportGraphSignature(specs, told), self.state,
                               self.constants, names, (in_spec, out_spec), (args, kwargs))

    def _own(self) -> None:
        """Parameters and buffers, which come first."""
        for name, value in self.mod.named_parameters(remove_duplicate=False):
            self._owned(InputKind.PARAMETER, "p", name, value, None)
        hidden = {f"{path}.{name}" if path else name for path, module in self.mod.named_modules()
                  for name in module._non_persistent_buffers_set}
        for name, value in self.mod.named_buffers(remove_duplicate=False):
            self._owned(InputKind.BUFFER, "b", name, value, name not in hidden)

    def _owned(self, kind: InputKind, letter: str, name: str, value: Tensor, kept: Any) -> None:
        (self.constants if kept is False else self.state)[name] = value
        if id(value) not in self.nodes:
            self._input(f"{letter}_{name.replace('.', '_')}", kind, value, name, kept)

    def _input(self, name: str, kind: InputKind, value: Any, target: str | None,
               kept: bool | None = None) -> fx.Node:
        node = self.graph.placeholder(name)
        is_tensor = isinstance(value, Tensor)
        self.inputs.append(InputSpec(kind, TensorArgument(node.name) if is_tensor else
                                     ConstantArgument(node.name, value), target, kept))
        if is_tensor:
            self._bind(value, node)
        return node

    def _bind(self, value: Tensor, node: fx.Node) -> None:
        self.nodes[id(value)] = node
        self.kept.append(value)
        node.meta["val"] = value.detach().to("meta")

    # -- calls -------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: tuple, args: tuple = (), kwargs: Any = None):
        kwargs = kwargs or {}
        if str(func) == READS:
            raise RuntimeError("export: the model reads the value of a tensor (item), which "
                               "a program of ops cannot follow; torch.where or torch.cond can")
        given, named = self._said((args, kwargs))
        result = func(*args, **kwargs)
        target = func.function if isinstance(func, Called) else func
        self._result(result, self.graph.create_node(
            "call_function", target, given, named, name=func.overloadpacket.__name__))
        return result

    def _said(self, given: Any) -> Any:
        return tree_map(lambda a: self._node(a) if isinstance(a, Tensor) else a, given)

    def _result(self, result: Any, node: fx.Node) -> None:
        if isinstance(result, Tensor):
            self._bind(result, node)
        elif isinstance(result, list | tuple):
            for k, part in enumerate(result):
                if isinstance(part, Tensor):
                    self._bind(part, self.graph.call_function(operator.getitem, (node, k)))

    def _node(self, value: Tensor) -> fx.Node:
        """What stands for a tensor; one that was never seen is a constant."""
        found = self.nodes.get(id(value))
        if found is not None:
            return found
        if any(value.data_ptr() == x.data_ptr() and x.numel() for x in self.kept):
            raise RuntimeError("export: a tensor shares memory with another one in a way that is "
                               "no op (`data`, `set_`, numpy)")
        name = f"lifted_tensor_{sum(s.kind is InputKind.CONSTANT_TENSOR for s in self.inputs)}"
        self.constants[name] = value
        before = self.first or next(iter(self.graph.nodes))
        with self.graph.inserting_before(before):
            return self._input(f"c_{name}", InputKind.CONSTANT_TENSOR, value, name)


def _named(forward: Any, args: tuple, kwargs: dict) -> tuple[list[str], list]:
    """The arguments of a call by name, in order."""
    signature = inspect.signature(forward)
    names, values = [], []
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{name}_{k}" for k in range(len(value))]
            values += value
        elif kind is inspect.Parameter.VAR_KEYWORD:
            names += value
            values += value.values()
        else:
            names.append(name)
            values.append(value)
    return names, values


def _leaf_names(names: list[str], values: list) -> list[str]:
    """A name for each leaf: that of its argument, with its place where there are several."""
    found = []
    for name, value in zip(names, values, strict=True):
        leaves, spec = tree_flatten(value)
        found += [name] if spec.is_leaf() else [f"{name}_{k}" for k in range(len(leaves))]
    return found


def register_dataclass(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Let instances of a dataclass be arguments and results of programs, field by field."""
    if not dataclasses.is_dataclass(cls):
        raise ValueError(f"Only dataclasses can be registered with this function: got {cls}")
    names = [f.name for f in dataclasses.fields(cls)]

    def apart(x: Any) -> tuple[list, tuple]:
        present = tuple(name for name in names if getattr(x, name) is not None)
        return [getattr(x, name) for name in present], present

    register_pytree_node(cls, apart, lambda parts, present: cls(
        **{**dict.fromkeys(names), **dict(zip(present, parts, strict=True))}))


# -- files -----------------------------------------------------------------------------------------


def save(ep: ExportedProgram, f: Any, *, extra_files: dict | None = None, opset_version: Any = None,
         pickle_protocol: int = 2) -> None:
    """Write a program; `extra_files` are texts that are kept beside it."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got "
                        f"'{type(ep).__name__}' instead.")
    example = tree_flatten(ep.example_inputs)
    flambeau.save({
        "graph": ep.graph_module, "signature": ep.graph_signature, "state": ep.state_dict,
        "constants": ep.constants, "arguments": ep._arguments, "specs": ep._specs,
        "example": tree_unflatten(*example), "sizes": ep._sizes,
        "shapes": [tuple(n.meta["val"].shape) if "val" in n.meta else None
                   for n in ep.graph.nodes if n.op == "placeholder"],
        "extra": dict(extra_files or {})}, f)


def load(f: Any, *, extra_files: dict | None = None,
         expected_opset_version: Any = None) -> ExportedProgram:
    """Read a program; texts kept beside it are filled into `extra_files`."""
    found = flambeau.load(f, weights_only=False)
    if extra_files is not None:
        extra_files.update({name: found["extra"].get(name, "") for name in extra_files})
    inputs = [n for n in found["graph"].graph.nodes if n.op == "placeholder"]
    for node, shape in zip(inputs, found["shapes"], strict=True):
        if shape is not None:
            node.meta["val"] = flambeau.empty(shape, device="meta")
    return ExportedProgram(found["graph"].graph, found["signature"], found["state"],
                           found["constants"], found["arguments"], found["specs"],
                           found["example"], found["sizes"])
