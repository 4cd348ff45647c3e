"""Attention in one kernel each way: plans by signature, and the step back.

Queries, keys and values are read where they lie if their last dimension is contiguous; results and
gradients lie in memory as what they belong to, so that heads need not be moved again.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod
from typing import Any, NamedTuple

from ..core import dtype as dt
from ..core import shape as sh
from ..core.lazily import Lazily
from ..ops.declare import engine, registry
from .eager import new_table
from .fresh import empty
from .modes import modes
from .node import edge_of, kept_values, new_node
from .tensor import Signature, Tensor, make, signature

kernel: Any = Lazily("flambeau.devices.cpu.attention")

_SUPPORTED = (dt.float32, dt.float64)
#: multiply-adds that are worth a range of their own
_GRAIN = 1 << 20
#: few heads over many keys are cut into so many spans of keys
_SPANS, _LONG, _FEW = 4, 512, 4

_plans = new_table()


class Plan(NamedTuple):
    out: Signature
    lse: Signature
    forward: Callable
    layout: kernel.Layout
    shape: tuple  # of the scores
    make_back: Callable


def attention(q: Tensor, k: Tensor, v: Tensor, mask, causal: bool, scale: float, keep_p):
    """The result, recorded; None where no kernel serves. `keep_p` is the share dropout leaves."""
    if mask is not None and mask.node is not None and modes.grad:
        return None
    key = (q.sig, k.sig, v.sig, None if mask is None else mask.sig, causal, scale, keep_p)
    plan = _plans.get(key)
    if plan is None:
        if not _served(q.sig, k.sig, v.sig, mask):
            return None
        q, k, v = (_rows_contiguous(x) for x in (q, k, v))
        key = (q.sig, k.sig, v.sig, *key[3:])
        plan = _plans.get(key)
        if plan is None:
            plan = _plans[key] = _plan(*key)
    drop = None
    if keep_p is not None:
        drop = engine.keep_mask(plan.shape, keep_p, dt.bool_)
    out, lse = empty(plan.out), empty(plan.lse)
    plan.forward(out.ptr, lse.ptr, q.ptr, k.ptr, v.ptr, 0 if mask is None else mask.ptr,
                 0 if drop is None else drop.ptr, plan.layout.address)
    if modes.grad and not (q.node is None and k.node is None and v.node is None):
        parents = tuple([None if x.node is None else edge_of(x) for x in (q, k, v)])
        out.node = new_node(AttentionBack(plan, key), parents,
                            (q, k, v, mask, drop, make(plan.out, out.mem, out.ptr), lse),
                            (plan.out,))
    return out


def _served(q: Signature, k: Signature, v: Signature, mask) -> bool:
    if q.dtype not in _SUPPORTED or q.device.type != "cpu" or 0 in (*q.shape, *k.shape, *v.shape):
        return False
    if mask is not None and mask.sig.dtype is not dt.bool_ and mask.sig.dtype is not q.dtype:
        return False
    lead, group = q.shape[:-2], 1
    if lead != k.shape[:-2]:
        if not (lead and len(lead) == k.rank - 2 and lead[:-1] == k.shape[:-3]):
            return False
        group = lead[-1] // k.shape[-3]
        if group * k.shape[-3] != lead[-1]:
            return False
    return (k.shape[:-2] == v.shape[:-2] and q.shape[-1] == k.shape[-1]
            and k.shape[-2] == v.shape[-2])


def _rows_contiguous(x: Tensor) -> Tensor:
    return x if x.sig.strides[-1] == 1 or x.sig.shape[-1] == 1 else engine.contiguous(x)


def _dense_like(sig: Signature, breadth: int) -> Signature:
    """A signature whose dimensions lie in memory in the order of another's, the last innermost."""
    shape = (*sig.shape[:-1], breadth)
    strides = [0] * len(shape)
    order = [d for d in range(len(shape) - 1) if shape[d] > 1]
    if all(sig.strides[d] for d in order):
        order.sort(key=lambda d: -sig.strides[d])
    step = breadth
    strides[-1] = 1
    for d in reversed(order):
        strides[d], step = step, step * shape[d]
    for d in range(len(shape) - 2, -1, -1):
        if shape[d] == 1:
            strides[d] = strides[d + 1] * shape[d + 1]
    return signature(sig.dtype, shape, tuple(strides), sig.device)


def _heads(sig: Signature, repeat: int = 1) -> list[int]:
    """The byte offset of each head, each repeated for a group of queries' heads."""
    found = sh.offsets(tuple(sig.shape)[:-2], sig.strides[:-2], sig.dtype.itemsize)
    return found if repeat == 1 else [at for at in found for _ in range(repeat)]


def _spread(mask, lead, length: int, source: int):
    """A mask over the whole scores, with strides of 0 where it repeats."""
    shape = (*lead, length, source)
    return signature(mask.dtype, shape, sh.expand_strides(mask.shape, mask.strides, shape),
                     mask.device)


def _plan(q, k, v, mask, causal: bool, scale: float, keep_p) -> Plan:
    out = _dense_like(q, v.shape[-1])
    lead, length, source = tuple(q.shape[:-2]), q.shape[-2], k.shape[-2]
    lse = signature(q.dtype, (*lead, length))
    wide = None if mask is None else _spread(mask, lead, length, source)
    name, group = q.dtype.name, prod(lead) // max(1, prod(k.shape[:-2]))

    def layout(backward: bool, given: dict):
        return _layout(q, k, v, wide, causal, scale, keep_p, group, backward, given)

    def make_back():
        grads = [_dense_like(x, x.shape[-1]) for x in (q, k, v)]
        spans = _SPANS if prod(lead) // group < _FEW and source >= _LONG else 1
        partial = grads[0]
        if spans > 1:
            partial = signature(q.dtype, (spans, *q.shape))
        found: dict = {}

        def back_layout(g: Signature):
            if g not in found:
                rows = dict(zip(("dq", "dk", "dv"), grads, strict=True))
                if spans > 1:
                    rows["dq"] = signature(q.dtype, q.shape)
                found[g] = layout(True, {"out": out, "g": g, **rows, "spans": spans})
            return found[g]

        return grads, partial, spans, back_layout, kernel.function("backward", name)

    return Plan(out, lse, kernel.function("forward", name), layout(False, {"out": out}),
                (*lead, length, source), make_back)


def _layout(q, k, v, mask, causal, scale, keep_p, group, backward, given) -> kernel.Layout:
    (length, depth), (source, breadth) = q.shape[-2:], v.shape[-2:]
    size, heads = q.dtype.itemsize, prod(q.shape[:-2])
    block, keys = kernel.blocks_of(q.dtype, length, causal, backward)
    blocks, spans = -(-length // block), given.pop("spans", 1)
    span = -(-source // (spans * keys)) * keys
    count = heads // group * spans if backward else heads * blocks
    work = length * source * (depth + breadth) * heads * (3 if backward else 1)
    numbers = {
        "count": count, "grain": max(1, ceil(_GRAIN * count / work)), "length": length,
        "source": source, "depth": depth, "breadth": breadth, "block": block, "keys": keys,
        "causal": causal, "factor": float(scale) * kernel.LOG2E, "scale": float(scale),
        "keep": 0.0 if keep_p is None else 1 / keep_p, "blocks": blocks, "group": group,
        "spans": spans, "span": span, "partial": heads * length * depth * size,
        "scratch": kernel.scratch_of(q.dtype, block, keys, depth, breadth)}
    columns = {"q": _heads(q), "k": _heads(k, group), "v": _heads(v, group)}
    if mask is not None:
        numbers["mask"] = kernel.BOOLEAN if mask.dtype is dt.bool_ else kernel.ADDITIVE
        numbers["mask_q"], numbers["mask_k"] = (s * mask.dtype.itemsize for s in mask.strides[-2:])
        columns["mask"] = _heads(mask)
    for name, sig in {"q": q, "k": k, "v": v, **given}.items():
        numbers[name] = sig.strides[-2] * size
        if name not in columns:
            columns[name] = _heads(sig, group if name in ("dk", "dv") else 1)
    none = [0] * heads
    rows = zip(*[columns.get(name, none) for name in kernel.COLUMNS], strict=True)
    return kernel.Layout(work >> 4, numbers, rows)


class AttentionBack:
    """Goes back by the kernel; by ops where the way back is itself to be differentiated."""

    __slots__ = ("key", "plan")

    def __init__(self, plan: Plan, key):
        self.plan, self.key = plan, key

    def name(self) -> str:
        return "ScaledDotProductFlashAttentionForCpuBackward0"

    __repr__ = name

    def pull(self, node, g):
        q, k, v, mask, drop, out, lse = kept_values(node)
        if modes.grad:
            return self._by_ops(node, g, (q, k, v), mask, drop)
        found = _backs.get(self.key)
        if found is None:
            found = _backs[self.key] = self.plan.make_back()
        grads, partial, spans, layout, run = found
        g = _rows_contiguous(g)
        dq, dk, dv = empty(partial), empty(grads[1]), empty(grads[2])
        run(dq.ptr, dk.ptr, dv.ptr, g.ptr, out.ptr, lse.ptr, q.ptr, k.ptr, v.ptr,
            0 if mask is None else mask.ptr, 0 if drop is None else drop.ptr, layout(g.sig).address)
        if spans > 1:
            dq = registry["sum"].run(dq, 0)
        return [None if parent is None else part
                for parent, part in zip(node.parents, (dq, dk, dv), strict=True)]

    def _by_ops(self, node, g, inputs, mask, drop):
        _, _, _, _, causal, scale, keep_p = self.key
        out = registry["attention_by_ops"].run(*inputs, mask, causal, scale, drop, keep_p)
        wanted = [x for x, parent in zip(inputs, node.parents, strict=True) if parent is not None]
        found = iter(engine.gradients([out], wanted, [g]))
        return [None if parent is None else next(found) for parent in node.parents]

    def saved(self, node, name):
        names = ("query", "key", "value", "attn_mask", "dropout_mask", "output", "logsumexp")
        return kept_values(node)[names.index(name)]


_backs = new_table()
engine.attention = attention
