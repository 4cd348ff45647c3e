"""INSTRUMENT F1.2: the graph that autograd recorded for a few lines, and the walk back through it.

The graph is the library's own: reached from the result by `grad_fn` and `next_functions`, with the
tensors each step keeps; adjoints are what hooks on the steps are given while backward() runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flambeau
from flambeau.cli.explore.layers import place
from flambeau.cli.explore.numbers import plain, short
from flambeau.cli.explore.program import REFUSALS, Program, Record
from flambeau.cli.explore.recorded import kept_by, leaf_of, steps_from
from flambeau.cli.usage import UsageError

DEFAULT = "c = a*b\nd = c + a\nL = d**2"
DEFAULT_INPUTS = {"a": 2, "b": 3}


def compute(asked: Mapping[str, Any]) -> dict:
    """What the page and the terminal show of {"program", "inputs", "frozen"}."""
    given, frozen = asked.get("inputs") or {}, asked.get("frozen") or []
    if not isinstance(given, Mapping) or not isinstance(frozen, (list, tuple)):
        raise UsageError("inputs are a table of names and values, frozen a list of names")
    with flambeau.enable_grad():
        program = Program(asked.get("program", DEFAULT), given, map(str, frozen)).run()
    if program.output is None:
        raise UsageError("the program names no result; the last name it assigns is taken")
    drawing = Drawing(program)
    said = drawing.go_back()
    return {
        "output": program.output,
        "inputs": [input_of(program, name) for name in program.inputs],
        "nodes": drawing.nodes,
        "edges": drawing.edges,
        "steps": drawing.steps,
        "refused": said,
        "notes": notes(program),
    }


def input_of(program: Program, name: str) -> dict:
    tensor = next(r.tensor for r in program.records if name in r.names)
    return {"name": name, "value": plain(tensor), "shape": list(tensor.shape),
            "requires_grad": tensor.requires_grad, "in_program": program.inputs[name]}


class Drawing:
    """Boxes and lines for everything the program made, and what backward() does to them."""

    def __init__(self, program: Program) -> None:
        self.program, self.records = program, program.records
        result = program.names[program.output or ""]
        self.result = result if isinstance(result, flambeau.Tensor) else None
        self.steps: list[dict] = []
        self.found: dict[int, Any] = {}      # number of a box -> step of the library's graph
        self.number: dict[int, int] = {}     # id of a step or leaf -> number of its box
        for record in self.records:
            tensor = record.tensor
            own = tensor if tensor.grad_fn is None else tensor.grad_fn
            self.number[id(own)] = record.number
        self.nodes = [self._box(record) for record in self.records]
        self.edges: list[dict] = []
        self._walk()
        self._cut()
        self._lay_out()

    # -- drawing ---------------------------------------------------------------------------------

    def _box(self, record: Record) -> dict:
        tensor = record.tensor
        return {
            "id": record.number, "names": record.names, "label": record.label,
            "source": record.source, "line": record.line, "shape": list(tensor.shape),
            "value": plain(tensor), "requires_grad": tensor.requires_grad,
            "leaf": tensor.is_leaf, "input": record.names[:1] == [record.label],
            "retains": bool(tensor.retains_grad), "live": False, "kept": [],
            "grad_fn": None if tensor.grad_fn is None else tensor.grad_fn.name(),
            "sequence": None, "grad": None, "cut": None,
        }

    def _walk(self) -> None:
        """Follow the library's graph from the result: boxes it reaches are live."""
        if self.result is None or not self.result.requires_grad:
            return
        if self.result.grad_fn is None:
            self.nodes[self.number[id(self.result)]]["live"] = True
        for step in steps_from([self.result]):
            here = self._number_of(step)
            self.found[here] = step
            self.nodes[here].update(live=True, sequence=step._sequence_nr(),
                                    kept=self._kept(here, step))
            for slot, (behind, _) in enumerate(step.next_functions):
                if behind is not None:
                    leaf = leaf_of(behind)
                    there = self._number_of(behind if leaf is None else leaf)
                    self.nodes[there]["live"] = True
                    self.edges.append({"from": there, "to": here, "slot": slot, "live": True})

    def _number_of(self, thing: Any) -> int:
        """The box of a step or leaf; steps that the program names nowhere are given one."""
        if id(thing) not in self.number:
            box = self._box(Record(len(self.nodes), flambeau.tensor(0.0), thing.name()))
            box.update(value=None, shape=None, leaf=False, input=False, grad_fn=thing.name(),
                       requires_grad=True)
            self.number[id(thing)] = box["id"]
            self.nodes.append(box)
        return self.number[id(thing)]

    def _kept(self, number: int, step: Any) -> list[str]:
        """What a step keeps for its way back, by the names of the program where it has them."""
        return [self._called(kept, number) for kept in kept_by(step)]

    def _called(self, kept: Any, number: int) -> str:
        own = self.records[number:number + 1]
        near = [self.records[k] for record in own for k in record.operands]
        for record in (*near, *own, *self.records):
            have = record.tensor
            if have.data_ptr() == kept.data_ptr() and have.shape == kept.shape:
                name = record.names[0] if record.names else record.source
                value = short(plain(have))
                return name if name == value else f"{name} = {value}"
        return short(plain(kept))

    def _cut(self) -> None:
        """Lines that the program has and the graph has not, and why they are not in it."""
        joined = {(edge["from"], edge["to"]) for edge in self.edges}
        for record in self.records:
            for operand in dict.fromkeys(record.operands):
                if (operand, record.number) not in joined:
                    self.edges.append({"from": operand, "to": record.number, "slot": None,
                                       "live": False})
            self.nodes[record.number]["cut"] = self._why(record)

    def _why(self, record: Record) -> str | None:
        box = self.nodes[record.number]
        if box["live"]:
            return None
        if record.label == "detach":
            return "detach() cuts here: the same value, with no way back"
        if not record.operands:
            return "requires no gradient" if not box["requires_grad"] else (
                f"no way leads back to it from {self.program.output}")
        if not record.recording:
            return "made under no_grad(): nothing was recorded"
        if not box["requires_grad"]:
            return "made of values that require no gradient"
        return f"not used by {self.program.output}"

    def _lay_out(self) -> None:
        ends = [(edge["from"], edge["to"]) for edge in self.edges]
        places, points = place(len(self.nodes), ends)
        for box, (layer, height) in zip(self.nodes, places):
            box["layer"], box["height"] = layer, height
        for edge, between in zip(self.edges, points):
            edge["through"] = between

    # -- going back ------------------------------------------------------------------------------

    def go_back(self) -> str | None:
        """Run backward() with a hook on every step; what the library says if it refuses."""
        if self.result is None:
            return f"{self.program.output} is a number, not a tensor: nothing was recorded"
        for number, step in self.found.items():
            step.register_hook(self._hook(number, step))
        try:
            self.result.backward()
        except REFUSALS as refusal:
            return str(refusal).partition("\n")[0]
        self._settle()
        for record in self.records:
            if record.tensor.is_leaf or record.tensor.retains_grad:
                self.nodes[record.number]["grad"] = plain(record.tensor.grad)
        return None

    def _hook(self, number: int, step: Any) -> Any:
        slots = {edge["slot"]: k for k, edge in enumerate(self.edges)
                 if edge["live"] and edge["to"] == number}

        def told(gives: tuple, given: tuple) -> None:
            self._settle()
            self.steps.append({
                "node": number, "grad_fn": step.name(),
                "adjoint": plain(given[0]),
                "gives": [{"edge": slots[slot], "value": plain(g)}
                          for slot, g in enumerate(gives) if g is not None and slot in slots],
            })

        return told

    def _settle(self) -> None:
        """What the last step has left: gradients of leaves so far, and who still keeps tensors."""
        if self.steps:
            leaves = [r for r in self.records if r.tensor.is_leaf and r.tensor.requires_grad]
            self.steps[-1]["grads"] = {
                r.number: plain(r.tensor.grad) for r in leaves if r.tensor.grad is not None}
            self.steps[-1]["keeping"] = sorted(
                number for number, step in self.found.items() if kept_by(step))


def notes(program: Program) -> list[str]:
    """What somebody should know who reads the numbers."""
    for record in program.records:
        if not flambeau.isfinite(record.tensor).all():
            worst = "nan" if flambeau.isnan(record.tensor).any() else "inf"
            return [f"line {record.line}: {record.source} is the first that is {worst}; whatever "
                    "is made of it is no use"]
    return []
