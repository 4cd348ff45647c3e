"""onnx.load: an ONNX model as a module. Each node is a call of the function registered for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import numpy_helper

import flambeau
from flambeau import Tensor, nn
from flambeau.export.play import plant

from . import read_control, read_layers, read_tensors
from .build import UnsupportedOperatorError, onnx
from .reading import READERS

#: types of weights that may be trained
_TRAINED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "LayerNormalization", "LSTM", "GRU", "RNN",
            "PRelu", "InstanceNormalization")


class Step:
    """One node: what it calls, on which names, and what it makes."""

    def __init__(self, node, opset: int):
        self.kind, self.name = node.op_type, node.name
        self.inputs, self.outputs = list(node.input), list(node.output)
        self.attributes = {"opset": opset, **{a.name: _attribute(a, opset) for a in node.attribute}}
        self.bodies = {k: v for k, v in self.attributes.items() if isinstance(v, Body)}
        #: names it reads: its inputs, and what graphs inside it take from outside
        self.needs: list[str] = [*self.inputs]
        for body in self.bodies.values():
            self.needs += body.needs
        function = READERS.get(node.op_type)
        if function is None or node.domain not in ("", "ai.onnx"):
            raise UnsupportedOperatorError(
                f"onnx.load: the ONNX operator {node.domain + '.' if node.domain else ''}"
                f"{node.op_type} is not known. flambeau.onnx.reads({node.op_type!r}) registers it.")
        self.function: Callable = function

    def run(self, known: dict[str, Any]) -> None:
        given = [known[name] if name else None for name in self.inputs]
        attributes = self.attributes
        if self.bodies:
            attributes = {**attributes, **{k: b.within(known) for k, b in self.bodies.items()}}
        made = self.function(*given, results=len(self.outputs), **attributes)
        if not isinstance(made, (tuple, list)):
            made = (made,)
        known.update({name: value for name, value in zip(self.outputs, made, strict=False) if name})

    def __repr__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.kind}({', '.join(self.inputs)})"


class Body:
    """A graph inside a node: it is run as often as the node says, and sees names from outside."""

    def __init__(self, graph, opset: int):
        self.inputs = [i.name for i in graph.input]
        self.outputs = [o.name for o in graph.output]
        self.constants: dict[str, Any] = {t.name: tensor_from(t) for t in graph.initializer}
        self.steps = [Step(node, opset) for node in graph.node]
        own = {*self.inputs, *self.constants, *(n for s in self.steps for n in s.outputs)}
        read = [*self.outputs, *(n for s in self.steps for n in s.needs)]
        self.needs: list[str] = [n for n in dict.fromkeys(read) if n and n not in own]

    def within(self, outside: dict[str, Any]) -> Callable:
        """The function that the graph is, among these names."""

        def run(*given):
            known = {**outside, **self.constants, **dict(zip(self.inputs, given, strict=True))}
            for step in self.steps:
                step.run(known)
            return [known[name] for name in self.outputs]

        return run


def _attribute(attribute, opset: int):
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return tensor_from(value)
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [v.decode() for v in value]
    return Body(value, opset) if isinstance(value, onnx.GraphProto) else value


def tensor_from(stored) -> Tensor:
    """A tensor of what ONNX stored."""
    if stored.data_type == onnx.TensorProto.BFLOAT16:
        bits = np.frombuffer(stored.raw_data, np.int16).reshape(tuple(stored.dims))
        return flambeau.from_numpy(bits.copy()).view(flambeau.bfloat16)
    return flambeau.from_numpy(np.array(numpy_helper.to_array(stored)))


class ONNXModule(nn.Module):
    """An ONNX graph that runs here: weights have the names they have in the file."""

    def __init__(self, model):
        super().__init__()
        graph = model.graph
        self.opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
        self.input_names = [i.name for i in graph.input
                            if i.name not in {t.name for t in graph.initializer}]
        self.output_names = [o.name for o in graph.output]
        self.steps = [Step(node, self.opset) for node in graph.node]
        constants = {t.name: tensor_from(t) for t in graph.initializer}
        weights = self._weights(constants)
        self.weights = {name: plant(self, name, constants[name], True) for name in weights}
        self.constants = {k: v for k, v in constants.items() if k not in weights}
        self._fold()
        self.eval()

    def _weights(self, constants) -> set[str]:
        """Initializers that are trained: real tensors that layers take as weights."""
        found: set[str] = set()
        for step in self.steps:
            names = step.inputs[1:3] if step.kind == "BatchNormalization" else step.inputs
            if step.kind in (*_TRAINED, "BatchNormalization"):
                found.update(n for n in names if n in constants
                             and constants[n].dtype.is_floating_point)
        # A tensor with a dotted name was a parameter or a buffer of a module.
        return found | {n for n, t in constants.items() if "." in n and t.dtype.is_floating_point
                        and not n.endswith(("running_mean", "running_var"))}

    def _fold(self) -> None:
        """Steps that depend on constants only are taken once, here."""
        known: dict[str, Any] = dict(self.constants)
        rest = []
        with flambeau.no_grad():
            for step in self.steps:
                if (step.needs and all(n in known or not n for n in step.needs)) or (
                        not step.inputs and step.kind == "Constant"):
                    step.run(known)
                else:
                    rest.append(step)
        self.steps = rest
        needed = {n for s in rest for n in s.needs} | set(self.output_names)
        self.constants = {k: v for k, v in known.items() if k in needed}

    def forward(self, *args, **kwargs):
        names = self.input_names
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__}: the graph takes {len(names)} inputs "
                            f"({', '.join(names)}), but {len(args)} were given")
        known: dict[str, Any] = dict(self.constants)
        known.update(zip(names, args, strict=False))
        known.update(kwargs)
        missing = [n for n in names if n not in known]
        if missing:
            raise TypeError(f"{type(self).__name__}: missing inputs: {', '.join(missing)}")
        for name, path in self.weights.items():
            known[name] = _found(self, path)
        for step in self.steps:
            try:
                step.run(known)
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                error.add_note(f"in the ONNX node {step!r}")
                raise
        results = tuple(known[n] for n in self.output_names)
        return results[0] if len(results) == 1 else results

    def extra_repr(self) -> str:
        return (f"{', '.join(self.input_names)} -> {', '.join(self.output_names)}, "
                f"{len(self.steps)} nodes, opset {self.opset}")


def _found(module, path: tuple[str, ...]) -> Tensor:
    for part in path[:-1]:
        module = module._modules[part]
    return getattr(module, path[-1])


def load(source) -> ONNXModule:
    """A module that runs an ONNX model. `source`: a path, a file, bytes, or a ModelProto."""
    if isinstance(source, onnx.ModelProto):
        model = source
    elif isinstance(source, (bytes, bytearray)):
        model = onnx.load_model_from_string(bytes(source))
    else:
        model = onnx.load(source if hasattr(source, "read") else os.fspath(source))
    return ONNXModule(model)


__all__ = ["ONNXModule", "load", "read_control", "read_layers", "read_tensors"]
