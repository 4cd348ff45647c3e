"""INSTRUMENT F1.1: how shapes meet.

Two or three tensors without memory (device "meta") are aligned, expanded and added by the library:
strides, offsets, results and refusals are what it says of them, however large they would be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import flambeau
from flambeau.cli.explore.numbers import shape_text
from flambeau.cli.usage import UsageError

DEFAULT = ["64, 1", "768"]
NAMES = "ABC"
MOST_AXES, LARGEST = 6, 2**40
DRAWN = 8     # at most so many indices of each axis are drawn
PANELS = 3    # and so many of each axis before the last two


def compute(asked: Mapping[str, Any]) -> dict:
    """What the page and the terminal show of {"shapes": ["64, 1", "768"]}."""
    given = asked.get("shapes", DEFAULT)
    if not isinstance(given, list) or not 1 < len(given) <= len(NAMES):
        raise UsageError("two or three shapes are compared, such as  64,1  and  768")
    shapes = [shape_of(text, name) for text, name in zip(given, NAMES)]
    tensors = [flambeau.empty(shape, device="meta") for shape in shapes]
    refused = refusal(tensors)
    result = None if refused else sum(tensors[1:], start=tensors[0])
    axes = alignment(shapes, None if result is None else list(result.shape))
    answer = {
        "shapes": [list(shape) for shape in shapes], "axes": axes, "refused": refused,
        "operands": [], "result": None, "cells": None, "notes": [],
    }
    if result is None:
        answer["notes"] = clash_notes(axes)
        return answer
    if result.numel() > LARGEST:
        raise UsageError(f"the result would have {result.numel():,} elements; at most "
                         f"{LARGEST:,} are shown")
    expanded = flambeau.broadcast_tensors(*tensors)
    answer.update(
        operands=[operand(*each) for each in zip(NAMES, tensors, expanded)],
        result={"shape": list(result.shape), "strides": list(result.stride()),
                "elements": result.numel(), "bytes": result.nbytes},
        cells=cells(expanded, result), notes=outer_notes(shapes, list(result.shape)))
    return answer


def shape_of(text: Any, name: str) -> tuple[int, ...]:
    """A shape as people write it: 64,1 or (64, 1) or 64 1 or 64x1; nothing is a scalar's."""
    if isinstance(text, list):
        text = ",".join(map(str, text))
    if not isinstance(text, str) or len(text) > 100:
        raise UsageError(f"the shape of {name} must be a short text such as 64,1")
    words = [word for word in re.split(r"[\s,x×*;]+", text.strip("()[] \t\n")) if word]
    for word in words:
        if re.fullmatch(r"-\d+", word):
            raise UsageError(f"{name} = ({', '.join(words)}): a size is never negative, "
                             f"and {word} is")
        if not re.fullmatch(r"\d{1,15}", word):
            raise UsageError(f"{name}: {word[:20]!r} is not a size; a shape is whole numbers such "
                             "as 64,1")
    sizes = tuple(int(word) for word in words)
    if len(sizes) > MOST_AXES:
        raise UsageError(f"{name} has {len(sizes)} axes; at most {MOST_AXES} are shown")
    count = 1
    for axis in sizes:
        count *= axis
    if count > LARGEST:
        raise UsageError(f"{name} = {shape_text(sizes)} has {count:,} elements; at most "
                         f"{LARGEST:,} are shown")
    return sizes


def refusal(tensors: list) -> str | None:
    """What the library says when it is asked to add these, if it does not."""
    try:
        sum(tensors[1:], start=tensors[0])
    except RuntimeError as refused:
        return str(refused).partition("\n")[0]
    return None


def alignment(shapes: list[tuple[int, ...]], result: list[int] | None) -> list[dict]:
    """Axis by axis from the left, shapes being aligned from the right: what becomes of each."""
    rank = max(map(len, shapes))
    padded = [[None] * (rank - len(shape)) + list(shape) for shape in shapes]
    axes = []
    for axis in range(rank):
        sizes = [shape[axis] for shape in padded]
        wanted = {size for size in sizes if size is not None and size != 1}
        clash = len(wanted) > 1
        large = None if clash else next(iter(wanted), 1)
        axes.append({
            "axis": axis - rank, "sizes": sizes, "clash": clash,
            "result": result[axis] if result else large,
            "states": [state(size, large, clash) for size in sizes],
        })
    return axes


def state(size: int | None, large: int | None, clash: bool) -> str:
    """What happens to an operand along an axis whose result has `large` elements."""
    if size is None:
        return "missing"
    if clash and size != 1:
        return "clash"
    return "equal" if size == large else "stretched"


def operand(name: str, tensor: Any, expanded: Any) -> dict:
    """An operand and its expanded view: what is held, and what a copy would hold."""
    return {
        "name": name, "shape": list(tensor.shape), "strides": list(tensor.stride()),
        "expanded_strides": list(expanded.stride()), "elements": tensor.numel(),
        "held": tensor.nbytes, "copied": expanded.contiguous().nbytes,
        "contiguous": expanded.is_contiguous(),
    }


def cells(expanded: Sequence, result: Any) -> dict:
    """The first cells of the result: where in each operand's storage the value comes from."""
    sizes = list(result.shape)
    drawn = [min(size, DRAWN if axis >= len(sizes) - 2 else PANELS)
             for axis, size in enumerate(sizes)]
    found = []
    for index in product(*map(range, drawn)):
        places = [view[index].storage_offset() if index else view.storage_offset()
                  for view in expanded]
        found.append({"index": list(index), "offsets": places,
                      "offset": result[index].storage_offset() if index else 0})
        if len(found) >= DRAWN * DRAWN * PANELS * PANELS:
            break
    return {"drawn": drawn, "whole": drawn == sizes, "list": found}


def clash_notes(axes: list[dict]) -> list[str]:
    said = []
    for axis in axes:
        if axis["clash"]:
            sizes = [f"{name} has {size}" for name, size in zip(NAMES, axis["sizes"])
                     if size is not None and size != 1]
            said.append(f"axis {axis['axis']}: {' and '.join(sizes)}; sizes must be equal, or one "
                        "of them 1")
    return said


def outer_notes(shapes: list[tuple[int, ...]], result: list[int]) -> list[str]:
    """Whether operands stretch each other, which nobody may have meant."""
    first, second = shapes[:2]
    if len(shapes) > 2 or list(first) == result or list(second) == result:
        return []
    said = [f"Neither operand has the shape of the result: {shape_text(first)} and "
            f"{shape_text(second)} stretch each other to {shape_text(result)}, an outer product."]
    column, row = sorted((first, second), key=len, reverse=True)
    if len(column) == 2 and len(row) == 1 and column == (*row, 1):
        said.append("If one value for each row was meant, this is the silent mistake: add "
                    f"{shape_text(column)} and {shape_text(column)} with x.unsqueeze(1), or "
                    f"{shape_text(row)} and {shape_text(row)} with x.squeeze(1).")
    return said
