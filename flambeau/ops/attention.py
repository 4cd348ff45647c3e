"""Attention: each query takes a mean of values, weighted by how well its key matches."""

from __future__ import annotations

import functools
import math

from ..core import dtype as dt
from ..core import expr as e
from ..core.lazily import np
from ..core.rows import each, row_program
from .declare import T, composite, engine, registry
from .dropout import dropout

# -- weights ---------------------------------------------------------------------------------------


def _masked(score, mask):
    if mask is None:
        return score
    if mask.dtype is dt.bool_:
        return e.where(mask, score, e.const(-math.inf, score.dtype))
    return score + mask


@row_program
def masked_softmax(rows, scores: each, mask: each, *, scale):
    """softmax of scaled and masked scores; a row that is masked altogether is zero."""
    score = rows.draft(_masked(scores * scale, mask)) if mask is not None else scores * scale
    largest = rows.max(score)
    raised = rows.draft(e.call("exp", score - largest))
    share = raised * (1 / rows.sum(raised))
    return rows.each(e.where(largest == -math.inf, e.const(0, share.dtype), share))


@row_program
def softmax_slopes(rows, weights: each, g: each):
    """The gradient before a softmax, from its result."""
    part = g * weights
    return rows.each(part - weights * rows.sum(part))


@composite(method=False, function_form=False, backward="SafeSoftmaxBackward0")
def attention_weights(scores: T, mask: T, scale):
    """How much each query takes of each value."""
    return masked_softmax(scores, mask, dims=(scores.dim() - 1,), scale=scale)


@attention_weights.gradient
def attention_weights(g, out, mask_meta, scale):
    if engine.recording():
        part = g * out
        slopes = part - out * registry["sum"](part, -1, True)
    else:
        slopes = softmax_slopes(out, g, dims=(out.dim() - 1,))
    wants_mask = mask_meta is not None and mask_meta.dtype.kind == "f"
    return slopes * scale, (lambda: engine.cast(
        engine.sum_to(slopes, tuple(mask_meta.shape)), mask_meta.dtype)) if wants_mask else None


@functools.lru_cache(maxsize=16)
def _causal_mask(rows: int, columns: int):
    """True where a key is not later than the query."""
    return engine.tensor(np.tril(np.ones((rows, columns), bool)))


# -- public ----------------------------------------------------------------------------------------


def _check(query, key, value, attn_mask, is_causal: bool) -> None:
    name = "scaled_dot_product_attention"
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError(f"{name}: Expected query, key, and value to have the same dtype, but "
                           f"got query.dtype: {query.dtype}, key.dtype: {key.dtype}, and "
                           f"value.dtype: {value.dtype} instead.")
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise RuntimeError(f"{name}: Expected query, key, and value to all be at least 2 "
                           f"dimensional, but got query.dim: {query.dim()}, key.dim: {key.dim()} "
                           f"and value.dim: {value.dim()} instead.")
    if attn_mask is None:
        return
    if attn_mask.dtype is not dt.bool_ and attn_mask.dtype not in (query.dtype, dt.float32):
        raise RuntimeError(f"{name}: Expected attn_mask dtype to be bool or float or to match "
                           f"query dtype, but got attn_mask.dtype: {attn_mask.dtype} and  "
                           f"query.dtype: {query.dtype} instead.")
    if is_causal:
        raise RuntimeError(f"{name}: Explicit attn_mask should not be set when is_causal=True")


def _repeated(x, times: int):
    """Heads of keys or values repeated for groups of queries."""
    return x if times == 1 else registry["repeat_interleave"](x, times, -3)


@composite(where="nn.functional")
def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
                                 scale=None, enable_gqa=False):
    """softmax(query key^T scale + mask) value"""
    _check(query, key, value, attn_mask, is_causal)
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3], query.shape[-3] // value.shape[-3]
        key, value = _repeated(key, groups[0]), _repeated(value, groups[1])
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    scores = registry["matmul"](query, registry["transpose"](key, -2, -1))
    if is_causal:
        attn_mask = _causal_mask(query.shape[-2], key.shape[-2])
    weights = attention_weights(scores, attn_mask, float(scale))
    if dropout_p > 0:
        weights = dropout(weights, dropout_p, True)
    return registry["matmul"](weights, value)
