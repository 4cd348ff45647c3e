"""The three instruments as text, for terminals: the same answers as the page draws."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from flambeau.cli import terminal
from flambeau.cli.explore.broadcasting import NAMES
from flambeau.cli.explore.numbers import shape_text, short, size

WIDTH = 92


def table(rows: list[list[str]], indent: str = "  ") -> Iterator[str]:
    """Rows in columns: the first to the left, all others to the right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for first, *rest in rows:
        line = first.ljust(widths[0])
        yield indent + (line + "".join("   " + word.rjust(w)
                                       for word, w in zip(rest, widths[1:]))).rstrip()


def said(words: list[str]) -> Iterator[str]:
    for sentence in words:
        yield ""
        yield from textwrap.wrap(sentence, WIDTH)


# -- shapes --------------------------------------------------------------------------------------


def broadcasting(answer: dict) -> Iterator[str]:
    axes, shapes = answer["axes"], answer["shapes"]
    yield "  ".join(f"{name} {shape_text(shape)}" for name, shape in zip(NAMES, shapes))
    yield ""
    yield "aligned from the right"
    rows = [["axis", *[str(axis["axis"]) for axis in axes]]]
    for k, _ in enumerate(shapes):
        rows.append([NAMES[k], *["·" if axis["sizes"][k] is None else str(axis["sizes"][k])
                                 for axis in axes]])
    rows.append(["result", *["clash" if axis["clash"] else str(axis["result"]) for axis in axes]])
    for k, _ in enumerate(shapes):
        rows.append([f"{NAMES[k]} is", *[axis["states"][k] for axis in axes]])
    yield from table(rows)
    if answer["refused"]:
        yield from said([answer["refused"], *answer["notes"]])
        return
    result = answer["result"]
    yield ""
    yield (f"result {shape_text(result['shape'])}: {result['elements']:,} element"
           f"{'s' * (result['elements'] != 1)}, "
           f"{size(result['bytes'])}")
    yield ""
    yield from table([["", "shape", "strides", "expanded", "held", "if copied"], *[
        [each["name"], shape_text(each["shape"]), shape_text(each["strides"]),
         shape_text(each["expanded_strides"]), size(each["held"]), size(each["copied"])]
        for each in answer["operands"]]])
    yield from said(answer["notes"])


def strides(answer: dict) -> Iterator[str]:
    yield f"x {shape_text(answer['shape'])} holds {', '.join(map(str, answer['memory']))}"
    yield ""
    yield from table([["", "shape", "strides", "offset", "contiguous", "storage"], *[
        [step["source"], shape_text(step["shape"]), shape_text(step["strides"]),
         str(step["offset"]), "yes" if step["contiguous"] else "no",
         "x's own" if step["shares"] else "a copy"] for step in answer["steps"]]])
    yield ""
    yield f"{answer['steps'][-1]['source']} ="
    yield from matrix(answer["steps"][-1]["values"])
    if answer["refused"]:
        yield from said([answer["refused"]])


def matrix(values: Any, indent: str = "  ") -> Iterator[str]:
    """Nested lists, a row to a line."""
    if isinstance(values, list) and values and isinstance(values[0], list):
        for k, row in enumerate(values):
            if k and isinstance(row[0] if row else None, list):
                yield ""
            yield from matrix(row, indent)
    elif isinstance(values, list):
        yield indent + " ".join(f"{short(value):>4}" for value in values)
    else:
        yield indent + short(values)


# -- the graph -----------------------------------------------------------------------------------


def graph(answer: dict) -> Iterator[str]:
    letters = TREE[terminal.alphabet()]
    nodes, edges = answer["nodes"], answer["edges"]
    gives = {given["edge"]: given["value"] for step in answer["steps"] for given in step["gives"]}
    adjoint = {step["node"]: step["adjoint"] for step in answer["steps"]}
    root = next((node["id"] for node in reversed(nodes) if answer["output"] in node["names"]), None)
    yield f"the graph of {answer['output']}: values, and the adjoint that comes to each step"
    shown: set[int] = set()

    def tree(number: int, stem: str, joint: str, through: int | None) -> Iterator[str]:
        node = nodes[number]
        came = f"  <- {short(gives[through])}" if through in gives else ""
        again = number in shown and any(edge["to"] == number for edge in edges)
        yield f"  {stem}{joint}{words(node, adjoint)}{came}{'  (see above)' * again}"
        if again:
            return
        shown.add(number)
        inner = stem + (letters["pass"] if joint == letters["more"] else
                        letters["none"] if joint else "")
        behind = [(k, edge) for k, edge in enumerate(edges) if edge["to"] == number]
        for place, (k, edge) in enumerate(behind):
            last = place == len(behind) - 1
            yield from tree(edge["from"], inner, letters["last" if last else "more"], k)

    if root is not None:
        yield from tree(root, "", "", None)
    if answer["refused"]:
        yield from said([answer["refused"]])
    else:
        yield from walk(answer)
    yield from said(answer["notes"])


TREE = {
    "unicode": {"more": "├─ ", "last": "└─ ", "pass": "│  ", "none": "   "},
    "ascii":   {"more": "|- ", "last": "`- ", "pass": "|  ", "none": "   "},
}  # fmt: skip


def words(node: dict, adjoint: dict) -> str:
    """A node of the tree: its name, value and what is special about it."""
    name = ", ".join(node["names"])
    text = f"{name} = {short(node['value'])}" if name else (
        f"{node['source']} = {short(node['value'])}" if node["value"] is not None
        and node["source"] != short(node["value"]) else node["source"])
    if node["grad_fn"] and node["live"]:
        text += f"   {node['grad_fn']}"
    if node["cut"]:
        text += f"   cut off: {node['cut']}"
    if node["id"] in adjoint:
        text += f"   adjoint {short(adjoint[node['id']])}"
    return text


def walk(answer: dict) -> Iterator[str]:
    nodes = answer["nodes"]
    label = {node["id"]: (node["names"] or [node["source"]])[0] for node in nodes}
    if answer["steps"]:
        yield ""
        yield "backward, in the order in which the engine walks"
    for number, step in enumerate(answer["steps"], 1):
        given = ", ".join(f"{label[answer['edges'][each['edge']]['from']]} += "
                          f"{short(each['value'])}" for each in step["gives"])
        yield f"  {number}. {label[step['node']]}  {step['grad_fn']}: {given}"
        kept = nodes[step["node"]]["kept"]
        if kept:
            yield f"     kept {'; '.join(kept)}"
    yield ""
    for node in nodes:
        name = (node["names"] or [None])[0]
        if name and node["requires_grad"] and (node["leaf"] or node["retains"]):
            yield f"  {name}.grad = {short(node['grad'])}"


# -- the loop ------------------------------------------------------------------------------------


def loop(answer: dict) -> Iterator[str]:
    without = [f"without {each}" for each in answer["without"]]
    early = ["step before backward"] * answer["early"]
    yield answer["about"]
    yield ", ".join([f"learning rate {answer['lr']:g}", f"{answer['steps']} steps",
                     f"{answer['per_epoch']} to a pass", *without, *early])
    yield ""
    yield f"step {answer['at'] + 1}, line by line"
    left = [line["call"] for line in answer["lines"] if not line["runs"]]
    for call in left:
        yield f"  # {call}   left out"
    calls = {line["key"]: line["call"] for line in answer["lines"]}
    for seen in answer["detail"][1:]:
        yield f"  {calls[seen['line']]}"
        for line in textwrap.wrap(seen["says"], WIDTH - 6):
            yield f"      {line}"
        yield f"      {state(seen)}"
    yield ""
    numbers = [loss for loss in answer["losses"] if not isinstance(loss, str)]
    yield terminal.chart(numbers, "loss") if numbers else "no loss is a number"
    yield from said(answer["verdict"])


def state(seen: dict) -> str:
    """The graph and the first two parameters with their gradients, in one line."""
    graph = seen["graph"]
    parts = [f"graph: {graph['steps']} steps" + (" (freed)" if graph["freed"] else "")]
    for name, value in list(seen["params"].items())[:2]:
        if len(short(value)) < 24:
            parts.append(f"{name} {short(value)} grad {short(seen['grads'][name])}")
    return "; ".join(parts)
