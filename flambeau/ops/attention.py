"""Attention: each query takes a mean of values, weighted by how well its key matches."""

from __future__ import annotations

import functools
import math

from ..core import dtype as dt
from ..core import expr as e
from ..core import shape as sh
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


def _repeated(x, heads: int):
    """Heads of keys or values repeated for groups of queries."""
    times = heads // x.shape[-3]
    return x if times == 1 else registry["repeat_interleave"](x, times, -3)


@composite(method=False, function_form=False)
def attention_by_ops(query, key, value, mask, causal, scale, drop, keep):
    """Attention with the weights of all queries and keys in memory, as other ops compute it.

    `drop` says which weights dropout keeps, a share of `keep`; without it, `keep` draws anew.
    """
    if query.dim() > 2 and query.shape[-3] != key.shape[-3] and key.shape[-3] > 1:
        key, value = _repeated(key, query.shape[-3]), _repeated(value, query.shape[-3])
    scores = registry["matmul"](query, registry["transpose"](key, -2, -1))
    if causal:
        mask = _causal_mask(query.shape[-2], key.shape[-2])
    weights = attention_weights(scores, mask, scale)
    if drop is not None:
        weights = registry["dropped"](weights, drop, keep=keep)
    elif keep is not None:
        weights = dropout(weights, 1 - keep, True)
    return registry["matmul"](weights, value)


def _grouped(query, key, value):
    """Keys and values as grouped heads are served: alike, or repeated."""
    heads = query.shape[-3]
    if key.shape[-3] == value.shape[-3] and heads % key.shape[-3] == 0:
        return key, value
    return _repeated(key, heads), _repeated(value, heads)


def _same_batch(query, key, value):
    """Queries, keys and values over the batch they broadcast to."""
    leads = [x.shape[:-2] for x in (query, key, value)]
    if leads[0] == leads[1] == leads[2]:
        return query, key, value
    lead = sh.broadcast("scaled_dot_product_attention", *leads)
    return [registry["expand"](x, (*lead, *x.shape[-2:])) for x in (query, key, value)]


@composite(where="nn.functional")
def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
                                 scale=None, enable_gqa=False):
    """softmax(query key^T scale + mask) value"""
    _check(query, key, value, attn_mask, is_causal)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    keep = None if not dropout_p else 1 - dropout_p
    if enable_gqa:
        key, value = _grouped(query, key, value)
    else:
        query, key, value = _same_batch(query, key, value)
    settings = attn_mask, bool(is_causal), float(scale), keep
    found = _by_kernel(query, key, value, *settings) if keep != 0 else None
    if found is not None:
        return found
    return attention_by_ops(query, key, value, *settings[:3], None, keep)


def _by_kernel(query, key, value, mask, causal: bool, scale: float, keep):
    """The result of the kernel, or None; half precision is computed in float32."""
    dtype = query.dtype
    if dtype not in (dt.float16, dt.bfloat16):
        return engine.attention(query, key, value, mask, causal, scale, keep)
    wide = [engine.cast(x, dt.float32) for x in (query, key, value)]
    if mask is not None and mask.dtype is not dt.bool_:
        mask = engine.cast(mask, dt.float32)
    out = engine.attention(*wide, mask, causal, scale, keep)
    return None if out is None else engine.cast(out, dtype)
