"""The other half of INSTRUMENT F1.1: views, which are other strides over the same bytes (EQ F1.1).

A formula such as `x.T[1:]` is run on a tensor that holds 0, 1, 2, ...; each step of it says its
shape, strides and offset, and where in the memory of x every element lies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import flambeau
from flambeau.cli.explore.broadcasting import shape_of
from flambeau.cli.explore.numbers import plain, shape_text
from flambeau.cli.explore.program import MOST_ELEMENTS, Program, Record, parse
from flambeau.cli.usage import UsageError

DEFAULT = {"shape": "3, 4", "formula": "x.T[1:, ::2]"}
LARGEST = 64
PRESETS = [
    ("transpose", "x.T"), ("rows", "x[1:]"), ("a column", "x[:, 1]"), ("every other", "x[:, ::2]"),
    ("expand", "x[:1].expand(3, -1)"), ("diagonal", "x.diagonal()"), ("reshape", "x.reshape(-1)"),
    ("transpose, reshape", "x.T.reshape(-1)"), ("contiguous", "x.T.contiguous()"),
    ("view refused", "x.T.view(-1)"),
]  # fmt: skip


def compute(asked: Mapping[str, Any]) -> dict:
    """What the page and the terminal show of {"shape": "3, 4", "formula": "x.T"}."""
    shape = shape_of(asked.get("shape", DEFAULT["shape"]), "x")
    if not 0 < math.prod(shape) <= LARGEST:
        raise UsageError(f"x = {shape_text(shape)} has {math.prod(shape):,} elements; here are 1 "
                         f"to {LARGEST}, so that each can be drawn")
    x = flambeau.arange(math.prod(shape)).reshape(shape)
    x = flambeau.empty(shape, dtype=flambeau.int64).copy_(x)
    formula = asked.get("formula", DEFAULT["formula"])
    tree = parse(formula).body
    if len(tree) != 1 or not hasattr(tree[0], "value") or hasattr(tree[0], "targets"):
        raise UsageError("one formula is read, such as  x.T[1:, ::2]")
    program = Program(formula, {}, starts={"x": x})
    refused = None
    try:
        program.value(tree[0].value)
    except UsageError as mistake:
        refused = str(mistake).removeprefix("line 1: ")
        if not program.operations:
            raise UsageError(refused) from None
    if program.inputs:
        raise UsageError(f"the only tensor here is x; {', '.join(program.inputs)} is not known")
    return {
        "shape": list(shape), "formula": formula, "memory": plain(x.reshape(-1)),
        "refused": refused, "steps": [lens(record, x) for record in program.records],
        "presets": [list(preset) for preset in PRESETS],
    }


def lens(record: Record, x: Any) -> dict:
    """One tensor as (shape, strides, offset) over bytes, and whose bytes they are."""
    tensor = record.tensor
    base = x.untyped_storage().data_ptr()
    return {
        "source": record.source, "shape": list(tensor.shape), "strides": list(tensor.stride()),
        "offset": tensor.storage_offset(), "contiguous": tensor.is_contiguous(),
        "shares": tensor.untyped_storage().data_ptr() == base,
        "held": tensor.untyped_storage().nbytes(), "values": plain(tensor),
        "places": plain(places_of(tensor)), "default": list(packed(tensor)),
    }


def places_of(tensor: Any) -> Any:
    """For each element the number of its place in the storage, read through the same lens."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    numbers = flambeau.arange(min(count, MOST_ELEMENTS))
    return numbers.as_strided(tuple(tensor.shape), tensor.stride(), tensor.storage_offset())


def packed(tensor: Any) -> tuple[int, ...]:
    """The strides of a contiguous tensor of this shape."""
    return flambeau.empty(tuple(tensor.shape), device="meta").stride()
