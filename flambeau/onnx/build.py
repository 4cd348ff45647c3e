"""Building an ONNX graph: nodes, initializers, and sizes that are computed while it runs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("flambeau.onnx needs the package onnx: pip install flambeau[onnx]",
                              name=error.name) from error

import flambeau
from flambeau.export.graph import Extent, Graph, Size, Value, example

#: flambeau's dtypes as ONNX's
ELEMENTS: dict[Any, Any] = {
    flambeau.float32:    TensorProto.FLOAT,
    flambeau.float64:    TensorProto.DOUBLE,
    flambeau.float16:    TensorProto.FLOAT16,
    flambeau.bfloat16:   TensorProto.BFLOAT16,
    flambeau.int8:       TensorProto.INT8,
    flambeau.int16:      TensorProto.INT16,
    flambeau.int32:      TensorProto.INT32,
    flambeau.int64:      TensorProto.INT64,
    flambeau.uint8:      TensorProto.UINT8,
    flambeau.bool:       TensorProto.BOOL,
    flambeau.complex64:  TensorProto.COMPLEX64,
    flambeau.complex128: TensorProto.COMPLEX128,
}  # fmt: skip
DTYPES = {element: dtype for dtype, element in ELEMENTS.items()}


class UnsupportedOperatorError(RuntimeError):
    """An op that ONNX has no words for, or none are known here."""


def array_of(x: flambeau.Tensor) -> np.ndarray:
    """A tensor's elements as a packed array."""
    return np.ascontiguousarray(x.detach().numpy()).reshape(tuple(x.shape))


def tensor_of(x: Any, name: str) -> TensorProto:
    """A tensor as ONNX stores it."""
    if x.dtype is flambeau.bfloat16:
        bits = array_of(x.contiguous().view(flambeau.int16))
        return helper.make_tensor(name, TensorProto.BFLOAT16, tuple(x.shape), bits.tobytes(), True)
    return numpy_helper.from_array(array_of(x), name)


class Builder:
    """An ONNX graph under construction. Names are strings; inputs may be Values or numbers."""

    def __init__(self, graph: Graph, opset: int):
        self.graph, self.opset = graph, opset
        self.nodes: list = []
        self.initializers: list = []
        self.names: dict[int, str] = {}         # id of a Value -> its name
        self.types: dict[str, Any] = {}         # name -> dtype, where it is known
        self._constants: dict[tuple, str] = {}
        self._sizes: dict[Extent, str] = {}
        self._taken: set[str] = set()
        self._shapes: dict[str, str] = {}

    # -- names -----------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """A name nobody has."""
        name, number = hint, 0
        while name in self._taken:
            number += 1
            name = f"{hint}_{number}"
        self._taken.add(name)
        return name

    def declare(self, value: Value, name: str) -> str:
        """Let a Value go by a name from here on."""
        self.names[id(value)] = name
        self.types[name] = value.dtype
        return name

    def name(self, x, dtype: Any = None) -> str:
        """The name of a Value, of an intermediate result, or of a number as a constant."""
        if x is None:
            return ""
        if isinstance(x, str):
            return x
        if isinstance(x, Value):
            if id(x) not in self.names:
                raise UnsupportedOperatorError(f"{x} is used before it is computed")
            return self.names[id(x)]
        if isinstance(x, Extent):
            return self.scalar(x)
        if isinstance(x, (list, tuple)):
            return self.ints(x)
        return self.const(x, dtype)

    def const(self, value, dtype: Any = None) -> str:
        """A number or array as an initializer, once."""
        if dtype is flambeau.bfloat16:
            return self.op("Cast", self.const(value, flambeau.float32), to=TensorProto.BFLOAT16)
        array = np.asarray(value, None if dtype is None else dtype.numpy)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self.fresh("c")
            self.initializers.append(numpy_helper.from_array(array, name))
            self.types[name] = DTYPES[helper.np_dtype_to_tensor_dtype(array.dtype)]
        return self._constants[key]

    # -- nodes -----------------------------------------------------------------------------------

    def op(self, kind: str, *inputs, results: int = 1, like=None, **attributes):
        """Add a node; the name of its result, or a list of names if `results` is not 1."""
        given = [self.name(x, like) for x in inputs]
        while given and given[-1] == "":
            given.pop()
        outs = [self.fresh(f"{kind.lower()}") for _ in range(results)]
        attributes = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(helper.make_node(kind, given, outs, **attributes))
        return outs[0] if results == 1 else outs

    def scan(self, body: Callable, states: list[tuple[str, Any]], steps: list[tuple[str, Any]],
             results: list[Any], backwards: bool = False) -> list[str]:
        """A loop over the first axis of `steps`: last states, then what was put out at each step.

        `body(*states, *steps)` gives the names of the next states and of the outputs, whose dtypes
        `results` are; states and steps come as (name, dtype). It may use any name from outside.
        """
        outer, sizes, shapes = self.nodes, dict(self._sizes), dict(self._shapes)
        self.nodes = []
        inside = [(self.fresh(name), dtype) for name, dtype in (*states, *steps)]
        made = [self.op("Identity", name) for name in body(*(name for name, _ in inside))]
        kinds = [*(dtype for _, dtype in states), *results]
        graph = helper.make_graph(
            self.nodes, self.fresh("body"),
            [helper.make_tensor_value_info(n, ELEMENTS[d], None) for n, d in inside],
            [helper.make_tensor_value_info(n, ELEMENTS[d], None) for n, d in
             zip(made, kinds, strict=True)])
        # Sizes that were computed inside are not known outside.
        self.nodes, self._sizes, self._shapes = outer, sizes, shapes
        way = int(backwards)
        found = self.op("Scan", *(name for name, _ in (*states, *steps)), results=len(kinds),
                        body=graph, num_scan_inputs=len(steps),
                        scan_input_directions=[way] * len(steps),
                        scan_output_directions=[way] * len(results) or None)
        return [found] if isinstance(found, str) else found

    def cast(self, x, dtype: Any) -> str:
        """As elements of a dtype; a number becomes a constant of it."""
        if not isinstance(x, (Value, str, Extent)):
            return self.const(x, dtype)
        have = x.dtype if isinstance(x, Value) else (
            flambeau.int64 if isinstance(x, Extent) else self.types.get(x))
        name = self.name(x)
        if have is dtype:
            return name
        made = self.op("Cast", name, to=ELEMENTS[dtype])
        self.types[made] = dtype
        return made

    # -- sizes -----------------------------------------------------------------------------------

    def ints(self, numbers) -> str:
        """A vector of integers, some of which may vary."""
        if all(isinstance(n, int) for n in numbers):
            return self.const(np.array(numbers, np.int64))
        parts = [self.op("Reshape", self.name(n), self.const(np.array([1], np.int64)))
                 if isinstance(n, Value) else self.vector(n) for n in numbers]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def vector(self, n: Size) -> str:
        """A size as a vector of one element."""
        if isinstance(n, int):
            return self.const(np.array([n], np.int64))
        if n not in self._sizes:
            self._sizes[n] = self._computed(n)
        return self._sizes[n]

    def scalar(self, n: Size) -> str:
        """A size as a scalar."""
        if isinstance(n, int):
            return self.const(n, flambeau.int64)
        return self.op("Squeeze", self.vector(n), self.const(np.array([0], np.int64)))

    def _computed(self, n: Extent) -> str:
        if n.seen:
            raise UnsupportedOperatorError(
                f"a size that was {list(n.seen)} at several sizes of the inputs is needed, and is "
                "neither a product nor a sum of them; leave that axis fixed, or reshape with -1")
        total = ""
        lowest = 1
        for _, c in n.terms:
            lowest = lowest * c.denominator // np.gcd(lowest, c.denominator)
        for symbols, c in n.terms:
            whole = Fraction(c) * int(lowest)
            term = self.const(np.array([int(whole)], np.int64))
            for s in symbols:
                term = self.op("Mul", term, self._symbol(s))
            total = self.op("Add", total, term) if total else term
        if lowest != 1:
            total = self.op("Div", total, self.const(np.array([int(lowest)], np.int64)))
        return total

    def _symbol(self, symbol: str) -> str:
        if symbol not in self._shapes:
            number, axis = self.graph.symbols[symbol]
            shape = self.op("Shape", self.graph.inputs[number])
            self._shapes[symbol] = self.op("Gather", shape, self.const(np.array([axis], np.int64)))
        return self._shapes[symbol]

    # -- what many ops are made of -----------------------------------------------------------------

    def reshape(self, x, shape) -> str:
        """x in another shape; sizes that vary are taken from x, or left to ONNX to find."""
        shape = list(shape)
        if 0 in shape:
            return self.op("Reshape", x, self.ints(shape), allowzero=1)
        if isinstance(x, Value):  # 0 is the size that x has there
            shape = [0 if not isinstance(n, int) and k < x.rank and n == x.shape[k] else n
                     for k, n in enumerate(shape)]
        varying = [k for k, n in enumerate(shape) if not isinstance(n, int)]
        if len(varying) == 1 and -1 not in shape:
            shape[varying[0]] = -1
        return self.op("Reshape", x, self.ints(shape))

    def transpose(self, x, order) -> str:
        return self.op("Transpose", x, perm=list(order))

    def squeeze(self, x, axes) -> str:
        return self.op("Squeeze", x, self.ints(list(axes))) if axes else self.name(x)

    def unsqueeze(self, x, axes) -> str:
        return self.op("Unsqueeze", x, self.ints(list(axes)))

    def slice(self, x, axis: int, start: Size, end: Size, step: int = 1) -> str:
        return self.op("Slice", x, self.ints([start]), self.ints([end]), self.ints([axis]),
                       self.ints([step]))

    def reduce(self, kind: str, x, axes, keepdim: bool) -> str:
        """ReduceSum and its like; axes are an input of some and an attribute of older others."""
        if axes is not None and len(axes) == 0:
            axes = None
        if kind == "ReduceSum" or self.opset >= 18:
            return self.op(kind, x, None if axes is None else self.ints(list(axes)),
                           keepdims=int(keepdim))
        return self.op(kind, x, axes=None if axes is None else list(axes), keepdims=int(keepdim))

    def require(self, opset: int, what: str) -> None:
        if self.opset < opset:
            raise UnsupportedOperatorError(f"{what} needs opset_version {opset} or later, not "
                                           f"{self.opset}")


def numbers(shape) -> list[int]:
    """A shape as plain numbers, as they were when the graph was made."""
    return [example(n) for n in shape]


__all__ = ["Builder", "DTYPES", "ELEMENTS", "UnsupportedOperatorError", "array_of", "numbers",
           "onnx", "tensor_of"]
