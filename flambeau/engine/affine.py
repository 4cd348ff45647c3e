"""The native front of three tensors: x @ w.T + bias, run and recorded in machine code.

It is to three operands what the fronts in native.py are to two, and shares their parts: its text is
in front_text/ternary.py.
"""

from __future__ import annotations

from array import array

from ..devices.cpu.objects import addresses, cache
from .front_parts import offsets
from .native import SOURCE
from .node import Node, fronts


def _text() -> str:
    from .front_text.module import ternary_text  # not needed where the code is on disk already

    return ternary_text(Node)


def adopt(front, plans: dict, op):
    """A function of three tensors that runs natively what it can, and `front` otherwise."""
    key = cache().key(f"affine {SOURCE} {offsets(Node)}")
    (address,) = addresses(key, ("affine_front",), _text, True)
    context = array("q", [id(plans), id(front), 0, 0, id(op)])
    fronts.keep.extend((plans, front, context, op))
    return fronts._function(address, op.name, op.doc, context)
