"""Graphs in files: a zip with program.json and the bytes of every weight and constant.

Nothing in the file is code: ops are names, looked up when it is loaded.
"""

from __future__ import annotations

import json
import zipfile
from fractions import Fraction
from typing import Any

import numpy as np

import flambeau

from .graph import Extent, Graph, Node, Value
from .record import Input

FORMAT = "flambeau program"
VERSION = 1
_PROGRAM = "program.json"

_DTYPES = {str(d).removeprefix("torch."): d for d in vars(flambeau).values()
           if isinstance(d, flambeau.dtype)}


class Writer:
    """A graph as JSON: tensors are numbers of a table."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.table: list[dict] = []
        self.numbers: dict[int, int] = {}
        self.data: list[flambeau.Tensor] = []

    def document(self) -> dict:
        graph = self.graph
        return {
            "format": FORMAT, "version": VERSION, "name": graph.name,
            "inputs": [self.put(v) for v in graph.inputs],
            "weights": [[name, self.put(v), name in graph.parameters]
                        for name, v in graph.weights.items()],
            "constants": [[name, self.put(v)] for name, v in graph.constants.items()],
            "nodes": [self._node(n) for n in graph.nodes],
            "outputs": self.put(graph.outputs),
            "structure": self.put(graph.structure),
            "symbols": {s: list(place) for s, place in graph.symbols.items()},
            "aliases": graph.aliases,
            "values": self.table,
        }

    def _node(self, node: Node) -> dict:
        found = {"op": node.op, "args": self.put(node.args), "kwargs": self.put(node.kwargs),
                 "result": self.put(node.result)}
        if node.into is not None:
            found["into"] = self.put(node.into)
            found["shares"] = [self.put(v) for v in node.shares]
        return found

    def put(self, value) -> Any:
        """A value as JSON; what JSON has no words for is an object of one key."""
        for kind, write in _WRITE:
            if isinstance(value, kind):
                return write(self, value)
        raise TypeError(f"jit.save: an argument of type {type(value).__name__} cannot be saved")

    def value(self, v: Value) -> dict:
        if id(v) not in self.numbers:
            self.numbers[id(v)] = len(self.table)
            entry: dict[str, Any] = {"name": v.name, "dtype": _dtype_name(v.dtype),
                                     "shape": [self.put(n) for n in v.shape]}
            self.table.append(entry)
            if v.data is not None:
                entry["data"] = len(self.data)
                self.data.append(v.data)
        return {"%": self.numbers[id(v)]}


def _dtype_name(dtype: flambeau.dtype) -> str:
    return str(dtype).removeprefix("torch.")


#: in the order they are asked: what kind of value, how it is written
_WRITE: list[tuple[Any, Any]] = [
    (Value,                  lambda w, v: w.value(v)),
    (Input,                  lambda w, v: {"input": v.number}),
    (Extent,                 lambda w, v: {"extent": [[list(s), c.numerator, c.denominator]
                                                      for s, c in v.terms], "was": v.example}),
    ((bool, type(None), str), lambda w, v: v),
    (int,                    lambda w, v: v),
    (float,                  lambda w, v: v if v - v == 0 else {"float": repr(v)}),
    (complex,                lambda w, v: {"complex": [v.real, v.imag]}),
    (tuple,                  lambda w, v: {"tuple": [w.put(p) for p in v]}),
    (list,                   lambda w, v: [w.put(p) for p in v]),
    (dict,                   lambda w, v: {"dict": [[k, w.put(p)] for k, p in v.items()]}),
    (slice,                  lambda w, v: {"slice": [w.put(p) for p in
                                                     (v.start, v.stop, v.step)]}),
    (type(Ellipsis),         lambda w, v: {"ellipsis": 1}),
    (flambeau.dtype,         lambda w, v: {"dtype": _dtype_name(v)}),
    (flambeau.device,        lambda w, v: {"device": str(v)}),
    (flambeau.memory_format, lambda w, v: {"memory_format": str(v).removeprefix("torch.")}),
]


class Reader:
    """A graph from JSON and the bytes that go with it."""

    def __init__(self, document: dict, data):
        self.values = []
        self.document = document
        for entry in document["values"]:
            stored = data(entry["data"], entry) if "data" in entry else None
            self.values.append(Value(entry["name"], _DTYPES[entry["dtype"]],
                                     tuple(self.get(n) for n in entry["shape"]), stored))

    def graph(self) -> Graph:
        d = self.document
        nodes = [Node(n["op"], self.get(n["args"]), self.get(n["kwargs"]), self.get(n["result"]),
                      self.get(n["into"]) if "into" in n else None,
                      tuple(self.get(n.get("shares", [])))) for n in d["nodes"]]
        return Graph(
            d["name"], [self.get(v) for v in d["inputs"]], self.get(d["outputs"]), nodes,
            {name: self.get(v) for name, v, _ in d["weights"]},
            {name: self.get(v) for name, v in d["constants"]}, self.get(d["structure"]),
            {s: (place[0], place[1]) for s, place in d["symbols"].items()},
            frozenset(name for name, _, trained in d["weights"] if trained), d["aliases"])

    def get(self, value) -> Any:
        if isinstance(value, list):
            return [self.get(v) for v in value]
        if not isinstance(value, dict):
            return value
        key = next(iter(value))
        return _READ[key](self, value[key], value)


_READ: dict[str, Any] = {
    "%":             lambda r, v, whole: r.values[v],
    "input":         lambda r, v, whole: Input(v),
    "extent":        lambda r, v, whole: Extent(tuple((tuple(s), Fraction(n, d)) for s, n, d in v),
                                                whole["was"]),
    "float":         lambda r, v, whole: float(v),
    "complex":       lambda r, v, whole: complex(*v),
    "tuple":         lambda r, v, whole: tuple(r.get(p) for p in v),
    "dict":          lambda r, v, whole: {k: r.get(p) for k, p in v},
    "slice":         lambda r, v, whole: slice(*(r.get(p) for p in v)),
    "ellipsis":      lambda r, v, whole: Ellipsis,
    "dtype":         lambda r, v, whole: _DTYPES[v],
    "device":        lambda r, v, whole: flambeau.device(v),
    "memory_format": lambda r, v, whole: getattr(flambeau, v),
}


def _bytes(x: flambeau.Tensor) -> bytes:
    x = x.detach().contiguous()
    if x.dtype is flambeau.bfloat16:
        x = x.view(flambeau.int16)
    return x.numpy().tobytes()


def write(graph: Graph, file, extra: dict[str, bytes] | None = None) -> None:
    """Save a graph with its weights to a path or a file."""
    writer = Writer(graph)
    document = writer.document()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_PROGRAM, json.dumps(document, allow_nan=False))
        for number, x in enumerate(writer.data):
            archive.writestr(f"data/{number}", _bytes(x))
        for name, raw in (extra or {}).items():
            archive.writestr(f"extra/{name}", raw)


def read(file, extra: dict[str, Any] | None = None) -> Graph:
    """Load a graph with its weights."""
    try:
        with zipfile.ZipFile(file) as archive:
            document = json.loads(archive.read(_PROGRAM))
            if document.get("format") != FORMAT:
                raise RuntimeError("jit.load: the file is no saved program")
            if document["version"] > VERSION:
                raise RuntimeError(f"jit.load: the program is of version {document['version']}, "
                                   f"and this library reads up to {VERSION}")
            for name in extra or ():
                extra[name] = archive.read(f"extra/{name}")  # type: ignore[index]
            return Reader(document, lambda number, entry: _tensor(
                archive.read(f"data/{number}"), entry)).graph()
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
        raise RuntimeError(f"jit.load: the file is no saved program, or is damaged: "
                           f"{error}") from error


def _tensor(raw: bytes, entry: dict) -> flambeau.Tensor:
    dtype = _DTYPES[entry["dtype"]]
    half = dtype is flambeau.bfloat16
    kind = np.dtype(np.int16) if half else dtype.numpy
    shape = tuple(entry["shape"])
    if len(raw) != kind.itemsize * int(np.prod(shape)):
        raise RuntimeError(f"jit.load: the file is damaged: {entry['name']} has {len(raw)} bytes")
    x = flambeau.from_numpy(np.frombuffer(bytearray(raw), kind).reshape(shape))
    return x.view(flambeau.bfloat16) if half else x
