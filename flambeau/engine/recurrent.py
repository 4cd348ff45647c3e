"""Recurrent layers in one kernel each way: plans by sizes, and the step back."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from ..core import dtype as dt
from ..core.lazily import Lazily
from ..ops.declare import engine, registry
from .eager import new_table
from .fresh import empty
from .modes import modes
from .node import Edge, again, edge_of, kept_values, new_node
from .tensor import Tensor, signature

kernel: Any = Lazily("flambeau.devices.cpu.recurrent")

_SUPPORTED = (dt.float32, dt.float64)
_plans = new_table()


class Plan:
    """What a layer of one kind needs to know of its sizes."""

    def __init__(self, kind: str, x, units: int, sizes: tuple[int, ...], reverse: bool):
        self.kind, self.cell = kind, kernel.KINDS[kind]
        starts = [0, *accumulate(sizes)]
        steps = list(zip(starts, sizes, strict=False))
        dtype = x.dtype
        # carried to the states before the first step on the way back, and not
        self.layout, self.short = (
            kernel.Layout(kind, dtype, units, steps[::-1] if reverse else steps, sizes[0], carried)
            for carried in (True, False))
        self.each = signature(dtype, (starts[-1], units))
        self.gates = signature(dtype, (starts[-1], self.cell.gates * units))
        self.state = signature(dtype, (sizes[0], units))
        self.dtype, self.sizes, self.reverse = dtype, sizes, reverse
        self.forward = kernel.function("forward", kind, dtype.name)

    @property
    def backward(self):
        return kernel.function("backward", self.kind, self.dtype.name)


def layer(kind: str, x: Tensor, states, weights, sizes: tuple[int, ...], reverse: bool):
    """Results of all steps, and the last states; None where no kernel serves.

    `x` has the rows of all steps one after another, `sizes` of them in each, falling.
    """
    units = states[0].sig.shape[-1]
    key = (kind, x.sig, *[s.sig for s in states],
           *[None if w is None else w.sig for w in weights], sizes, reverse)
    plan = _plans.get(key)
    if plan is None:
        if not _served(kind, x, states, weights, sizes):
            return None
        plan = _plans[key] = Plan(kind, x.sig, units, sizes, reverse)
    inputs = (x, *states, *weights)
    wanted = modes.grad and any([t is not None and t.node is not None for t in inputs])
    gates = engine.without_grad(_by_input, plan, x, *weights)
    cell, bias = plan.cell, weights[3]
    extra = empty(plan.each) if cell.apart else None
    if cell.apart:
        bias = engine.full((cell.gates * units,), 0, plan.dtype) if bias is None else (
            engine.contiguous(bias.detach()))
    out, before = empty(plan.each), empty(plan.each)
    before_c = empty(plan.each) if cell.paired else None
    last, inner = [_copy(s) for s in states], engine.contiguous(weights[1].detach())
    plan.forward(gates.ptr, _address(extra), out.ptr, before.ptr, _address(before_c), last[0].ptr,
                 last[1].ptr if cell.paired else 0, inner.ptr,
                 bias.ptr if cell.apart else 0, plan.layout.address)
    outs = (out, *last)
    if wanted:
        parents = tuple([None if t is None or t.node is None else edge_of(t) for t in inputs])
        node = new_node(RecurrentBack(plan), parents,
                        (*inputs, gates, extra, before, before_c), tuple([o.sig for o in outs]))
        for number, o in enumerate(outs):
            o.node = Edge(node, number)
    return outs


def _served(kind: str, x: Tensor, states, weights, sizes) -> bool:
    cell, sig = kernel.KINDS[kind], x.sig
    given = [sig, *[s.sig for s in states], *[w.sig for w in weights if w is not None]]
    if sig.dtype not in _SUPPORTED or sig.device.type != "cpu" or any(
            s.dtype is not sig.dtype or s.device is not sig.device or not s.numel for s in given):
        return False
    units = states[0].sig.shape[-1]
    wide = cell.gates * units
    shapes = [(sum(sizes), sig.shape[-1]), *[(sizes[0], units)] * len(states),
              (wide, sig.shape[-1]), (wide, units), *[(wide,)] * (len(given) - len(states) - 3)]
    return all(s.shape == shape for s, shape in zip(given, shapes, strict=True))


def _address(t: Tensor | None) -> int:
    return 0 if t is None else t.ptr


def _copy(x: Tensor) -> Tensor:
    """A contiguous copy outside the graph."""
    x = x.detach()
    return engine.clone(x if x.sig.contiguous else engine.contiguous(x))


def _by_input(plan: Plan, x, w_ih, w_hh, b_ih, b_hh) -> Tensor:
    """What the input gives to the gates, for all steps."""
    bias = b_ih
    if b_ih is not None and not plan.cell.apart:
        bias = registry["add"].run(b_ih, b_hh)
    out = registry["nn.functional.linear"].run(x, w_ih, bias)
    return out if out.sig.contiguous else engine.contiguous(out)


class RecurrentBack:
    """Goes back by the kernel; by ops where the way back is itself to be differentiated."""

    __slots__ = ("plan",)

    def __init__(self, plan: Plan):
        self.plan = plan

    def name(self) -> str:
        return f"{self.plan.kind.split('_')[0].capitalize()}LayerBackward0"

    __repr__ = name

    def pull(self, node, g):
        *inputs, gates, extra, before, before_c = kept_values(node)
        if modes.grad:
            return self._by_ops(node, g, inputs)
        plan = self.plan
        cell, count = plan.cell, 1 + plan.cell.paired
        x, w_ih, w_hh = inputs[0], inputs[1 + count], inputs[2 + count]
        g_out = engine.zeros_of(plan.each) if g[0] is None else engine.contiguous(g[0])
        states = [engine.zeros_of(plan.state) if part is None else _copy(part) for part in g[1:]]
        to_states = node.parents[1:1 + count]
        layout = plan.short if to_states == (None,) * count else plan.layout
        slopes, inner = empty(plan.gates), engine.contiguous(w_hh)
        other = empty(plan.gates) if cell.apart else slopes
        plan.backward(slopes.ptr, other.ptr, states[0].ptr, states[1].ptr if cell.paired else 0,
                      g_out.ptr, gates.ptr, _address(extra), before.ptr, _address(before_c),
                      inner.ptr, layout.address)
        if layout is plan.short:
            states = [None] * count
        return self._parts(node.parents, x, w_ih, slopes, other, before, states)

    def _parts(self, parents, x, w_ih, slopes, other, before, states):
        """Gradients of input, states, weights and biases, as far as they are wanted."""
        mm, total = registry["mm"].run, registry["sum"].run
        count = len(states)
        to_x, (to_ih, to_hh, to_b_ih, to_b_hh) = parents[0], parents[1 + count:]
        by_ih = None if to_b_ih is None else total(slopes, 0)
        by_hh = None
        if to_b_hh is not None:
            shared = by_ih is not None and other is slopes
            by_hh = again(by_ih) if shared else total(other, 0)
        return [None if to_x is None else mm(slopes, w_ih), *states,
                None if to_ih is None else mm(_turned(slopes), x),
                None if to_hh is None else mm(_turned(other), before), by_ih, by_hh]

    def _by_ops(self, node, g, inputs):
        plan = self.plan
        count = 1 + plan.cell.paired
        outs = registry["recurrent_layer_by_ops"].run(
            plan.kind, inputs[0], tuple(inputs[1:1 + count]), tuple(inputs[1 + count:]),
            plan.sizes, plan.reverse)
        pairs = [(o, part) for o, part in zip(outs, g, strict=True) if part is not None]
        wanted = [t for t, parent in zip(inputs, node.parents, strict=True) if parent is not None]
        found = iter(engine.gradients([o for o, _ in pairs], wanted, [part for _, part in pairs]))
        return [None if parent is None else next(found) for parent in node.parents]

    def saved(self, node, name):
        names = ("input", "hx", *(("cx",) if self.plan.cell.paired else ()), "weight_ih",
                 "weight_hh", "bias_ih", "bias_hh")
        return kept_values(node)[names.index(name)]


def _turned(x: Tensor) -> Tensor:
    return registry["transpose"].run(x, 0, 1)


engine.recurrent_layer = layer
