"""onnx.export: a model's graph, op by op through the lowerings, into a file."""

from __future__ import annotations

import contextlib
import os
import warnings
from enum import IntEnum

import flambeau
from flambeau import Tensor, nn
from flambeau.export.graph import (
    Extent,
    Graph,
    Node,
    Value,
    extent_of_symbol,
    values_of,
)
from flambeau.export.record import names_of_tensors, tensors_of, undisturbed, with_sizes
from flambeau.export.varying import record_varying

from . import (
    lower_ctc,
    lower_embedding,
    lower_index,
    lower_loss,
    lower_nn,
    lower_pointwise,
    lower_pool,
    lower_recurrent,
    lower_reduce,
    lower_shape,
)
from .build import ELEMENTS, Builder, UnsupportedOperatorError, onnx, tensor_of
from .registry import LOWERINGS, Call, bound, known

OLDEST_OPSET, NEWEST_OPSET = 17, 22
DEFAULT_OPSET = 18

#: the version of the file format that goes with an opset
FORMATS = {17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10}


class OperatorExportTypes(IntEnum):
    """What older programs say of ops that ONNX has not; here such a model is refused."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


class TrainingMode(IntEnum):
    """In which mode a model is exported."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


def export(model, args=(), f=None, *, kwargs=None, export_params: bool = True, verbose=None,
           input_names=None, output_names=None, opset_version: int | None = None,
           dynamic_axes=None, dynamic_shapes=None, keep_initializers_as_inputs: bool = False,
           training: TrainingMode = TrainingMode.EVAL, do_constant_folding: bool = True,
           dynamo=None, external_data: bool | None = None, **unused):
    """Write a model as ONNX, from one call with example arguments.

    `f` is a path or a file; without it the ONNX model is returned. `dynamic_axes` names axes whose
    size may vary: {"x": {0: "batch"}} or {"x": [0, 1]}. `dynamic_shapes` is taken in the same
    form. With export_params=False weights become inputs of the graph.
    """
    given, named = _arguments(args, kwargs)
    opset = DEFAULT_OPSET if opset_version is None else opset_version
    if not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        raise ValueError(f"onnx.export: opset_version {opset} is not supported; it is from "
                         f"{OLDEST_OPSET} to {NEWEST_OPSET}")
    names = _input_names(model, given, named, input_names)
    axes = _axes(names, (given, named), dynamic_axes if dynamic_axes is not None
                 else dynamic_shapes)
    with _mode(model, training):
        with_sizes(model, given, named)
        with undisturbed(model):
            graph = record_varying(model, given, named, names, axes, known)
    if verbose:
        print(graph)
    built = Written(graph, opset, output_names, export_params, keep_initializers_as_inputs,
                    dynamic_axes or {}).model
    if f is not None:
        _save(built, f, external_data)
    return built


def _arguments(args, kwargs) -> tuple[tuple, dict]:
    """Arguments by position and by name; a dict at the end of `args` is by name, as in torch."""
    if isinstance(args, (Tensor, list)) or not isinstance(args, tuple):
        args = (args,)
    if kwargs is None and args and isinstance(args[-1], dict):
        return args[:-1], args[-1]
    return args, dict(kwargs or {})


def _input_names(model, args, kwargs, wanted) -> list[str]:
    """One name for each tensor among the arguments: those given, then those of the parameters."""
    found = names_of_tensors(model, args, kwargs)
    names = list(wanted or ())[:len(found)]
    names += found[len(names):]
    if len(set(names)) < len(names):
        raise ValueError(f"onnx.export: input_names {names} are not all different")
    return names


def _axes(names: list[str], structure, dynamic) -> dict[str, list[tuple[int, int]]]:
    """symbol -> the axes of inputs that have its size."""
    found: dict[str, list[tuple[int, int]]] = {}
    inputs = tensors_of(structure)
    if isinstance(dynamic, (tuple, list)):
        dynamic = {name: spec for name, spec in zip(names, dynamic, strict=False) if spec}
    for name, spec in (dynamic or {}).items():
        if name not in names or spec is None:
            continue
        number = names.index(name)
        pairs = spec.items() if isinstance(spec, dict) else (
            (axis, f"{name}_dim_{axis}") for axis in spec)
        for axis, symbol in pairs:
            axis = axis + inputs[number].dim() if axis < 0 else axis
            if not 0 <= axis < inputs[number].dim():
                raise ValueError(f"onnx.export: {name} has no axis {axis}; its shape is "
                                 f"{tuple(inputs[number].shape)}")
            found.setdefault(str(getattr(symbol, "__name__", symbol)), []).append((number, axis))
    return found


@contextlib.contextmanager
def _mode(model, training: TrainingMode):
    """The model in the mode it is exported in, and back."""
    if not isinstance(model, nn.Module) or training == TrainingMode.PRESERVE:
        yield
        return
    before = [(m, m.training) for m in model.modules()]
    model.train(training == TrainingMode.TRAINING)
    try:
        yield
    finally:
        for module, was in before:
            module.training = was


#: ops whose results are as large as values say
_COUNTS = ("nonzero", "masked_select")


class Written:
    """An ONNX model from a graph."""

    def __init__(self, graph: Graph, opset: int, output_names, with_weights: bool,
                 weights_as_inputs: bool, dynamic):
        self.graph = graph.without_dead_code()
        self.dynamic = dynamic
        self.b = b = Builder(graph, opset)
        b._taken.update(v.name for v in graph.inputs)
        b._taken.update(graph.weights)
        b._taken.update(output_names or ())
        inputs = [self._info(v, b.declare(v, v.name)) for v in graph.inputs]
        inputs += self._weights(with_weights, weights_as_inputs)
        for value in graph.constants.values():
            name = b.declare(value, b.fresh(value.name))
            b.initializers.append(tensor_of(value.data, name))
        for number, node in enumerate(self.graph.nodes):
            self._lower(node, number)
        outputs = self._outputs(list(output_names or ()))
        used = _read_by(b.nodes) | {o.name for o in outputs}
        made = onnx.helper.make_graph(
            b.nodes, graph.name, inputs, outputs,
            [i for i in b.initializers if i.name in used or weights_as_inputs])
        self.model = onnx.helper.make_model(
            made, producer_name="flambeau", producer_version=str(flambeau.__version__),
            opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=FORMATS[opset])
        onnx.checker.check_model(self.model)

    def _weights(self, stored: bool, as_inputs: bool) -> list:
        """Weights the graph uses: initializers, inputs, or both."""
        used = {id(v) for n in self.graph.nodes for v in n.inputs} | {
            id(v) for v in self.graph.output_values}
        infos = []
        for name, value in self.graph.weights.items():
            if id(value) not in used:
                continue
            self.b.declare(value, name)
            if stored:
                self.b.initializers.append(tensor_of(value.data, name))
            if not stored or as_inputs:
                infos.append(self._info(value, name))
        return infos

    def _info(self, value: Value, name: str):
        if value.dtype not in ELEMENTS:
            raise UnsupportedOperatorError(f"onnx.export: {name} is of dtype {value.dtype}, which "
                                           "ONNX does not have")
        shape = [n if isinstance(n, int) else n.symbol() or str(n).replace(" ", "")
                 for n in value.shape]
        return onnx.helper.make_tensor_value_info(name, ELEMENTS[value.dtype], shape)

    def _lower(self, node: Node, number: int) -> None:
        b = self.b
        found = LOWERINGS.get(node.op)
        if found is None:
            raise UnsupportedOperatorError(
                f"onnx.export: the op {node.op} has no lowering to ONNX (opset {b.opset}), in "
                f"{node}. flambeau.onnx.lowers({node.op!r}) registers one.")
        if node.into is not None:
            self._check_names(node, number)
        if node.op in _COUNTS or (node.op == "getitem" and any(
                v.dtype is flambeau.bool for v in node.inputs[1:])):
            warnings.warn(f"onnx.export: the size of what {node.op} gives depends on values; what "
                          "the model does with it holds for values like the example's",
                          stacklevel=5)
        function, raw = found
        call = Call(node)
        if raw:
            names = function(b, call, *node.args, **node.kwargs)
        else:
            names = function(b, call, *bound(node))
        names = [names] if isinstance(names, str) else list(names)
        for value, name in zip(node.outputs, names, strict=False):
            b.declare(value, name)

    def _check_names(self, node: Node, number: int) -> None:
        """What changes in place may have been seen under other names, but not used after."""
        for other in node.shares:
            for later in self.graph.nodes[number + 1:]:
                if other in later.inputs:
                    raise UnsupportedOperatorError(
                        f"onnx.export: {node.op} changes {node.into} in place, and {other}, which "
                        f"shares its memory, is used after that by {later.op}: ONNX values do not "
                        "change; use the form that makes a new tensor")

    def _outputs(self, wanted: list[str]) -> list:
        b, infos, seen = self.b, [], set()
        for k, value in enumerate(values_of(self.graph.outputs)):
            name = wanted[k] if k < len(wanted) else b.fresh(f"output_{k}")
            inner = b.name(value)
            b.nodes.append(onnx.helper.make_node("Identity", [inner], [name]))
            if name in seen:
                raise ValueError(f"onnx.export: output_names {wanted} are not all different")
            seen.add(name)
            infos.append(self._info(self._named_axes(value, wanted, k), name))
        return infos

    def _named_axes(self, value: Value, wanted: list[str], k: int) -> Value:
        """An output with the names that dynamic_axes gives its axes."""
        spec = self.dynamic.get(wanted[k]) if k < len(wanted) and isinstance(
            self.dynamic, dict) else None
        if not isinstance(spec, dict):
            return value
        shape = list(value.shape)
        for axis, symbol in spec.items():
            size = shape[axis]
            if isinstance(size, Extent):
                shape[axis] = extent_of_symbol(str(symbol), size.example)
        return Value(value.name, value.dtype, tuple(shape))


def _read_by(nodes) -> set[str]:
    """Names that nodes read, those of graphs inside them too."""
    inner = [a.g.node for node in nodes for a in node.attribute if a.HasField("g")]
    return {name for node in nodes for name in node.input}.union(*map(_read_by, inner))


def _save(model, f, external: bool | None) -> None:
    if hasattr(f, "write"):
        f.write(model.SerializeToString())
        return
    path = os.fspath(f)
    apart = external if external is not None else model.ByteSize() > (1 << 31) - (1 << 20)
    onnx.save(model, path, save_as_external_data=apart,
              location=os.path.basename(path) + ".data" if apart else None)


__all__ = ["TrainingMode", "UnsupportedOperatorError", "export", "lower_ctc", "lower_embedding",
           "lower_index", "lower_loss", "lower_nn", "lower_pointwise", "lower_pool",
           "lower_recurrent", "lower_reduce", "lower_shape"]
