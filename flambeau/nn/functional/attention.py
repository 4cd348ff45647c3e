"""Multi-head attention as one function of its weights."""

from __future__ import annotations

import math

import flambeau
from flambeau import _assemble

__all__ = ["multi_head_attention_forward"]

_linear = _assemble.functions["nn.functional.linear"]
_attention = _assemble.functions["nn.functional.scaled_dot_product_attention"]


def _require(holds, message):
    if not holds:
        raise AssertionError(message)


def _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads):
    """Whether the inputs have a batch."""
    if query.dim() not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received "
                             f"{query.dim()}-D query tensor")
    batched = query.dim() == 3
    _require(key.dim() == value.dim() == query.dim(),
             f"For {'batched (3-D)' if batched else 'unbatched (2-D)'} `query`, expected `key` and "
             f"`value` to be {query.dim()}-D but found {key.dim()}-D and {value.dim()}-D tensors "
             "respectively")
    if key_padding_mask is not None:
        _require(key_padding_mask.dim() == query.dim() - 1,
                 f"expected `key_padding_mask` to be None or {query.dim() - 1}-D but found "
                 f"{key_padding_mask.dim()}-D tensor instead")
    if attn_mask is not None:
        _require(attn_mask.dim() in (2, 3), "expected `attn_mask` to be None, 2-D or 3-D but found "
                 f"{attn_mask.dim()}-D tensor instead")
        if not batched and attn_mask.dim() == 3:
            wanted = (num_heads, query.shape[0], key.shape[0])
            _require(tuple(attn_mask.shape) == wanted,
                     f"Expected `attn_mask` shape to be {wanted} but got {tuple(attn_mask.shape)}")
    return batched


def _additive(mask, name, dtype):
    """A mask to add to scores: where a boolean one is True, minus infinity."""
    if mask is None:
        return None
    if mask.dtype is flambeau.bool:
        return flambeau.zeros(mask.shape, dtype=dtype).masked_fill_(mask, -math.inf)
    _require(mask.dtype.is_floating_point, f"only bool and floating types of {name} are supported")
    return mask


def _projected(query, key, value, weight, bias, size, separate):
    """Queries, keys and values from the inputs, in as few products as their sharing allows."""
    if separate is not None:
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return [_linear(x, w, b) for x, w, b in zip((query, key, value), separate, biases,
                                                    strict=True)]
    if key is value and query is key:
        return list(_linear(query, weight, bias).chunk(3, -1))
    if key is value:
        weights, biases = weight.split([size, 2 * size]), (None, None)
        if bias is not None:
            biases = bias.split([size, 2 * size])
        both = _linear(key, weights[1], biases[1])
        return [_linear(query, weights[0], biases[0]), *both.chunk(2, -1)]
    weights = weight.chunk(3)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [_linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]


def _check_sizes(query, key, value, embed_dim, expected, num_heads, separate):
    _require(embed_dim == expected,
             f"was expecting embedding dimension of {expected}, but got {embed_dim}")
    _require(embed_dim % num_heads == 0,
             f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if separate:
        _require(key.shape[:2] == value.shape[:2], f"key's sequence and batch dims {key.shape[:2]} "
                 f"do not match value's {value.shape[:2]}")
    else:
        _require(key.shape == value.shape,
                 f"key shape {key.shape} does not match value shape {value.shape}")


def _mask_for_heads(attn_mask, length, source, heads):
    """A mask of (1 or batch x heads, queries, keys)."""
    if attn_mask is None:
        return None
    wanted = (length, source) if attn_mask.dim() == 2 else (heads, length, source)
    if tuple(attn_mask.shape) != wanted:
        raise RuntimeError(f"The shape of the {attn_mask.dim()}D attn_mask is "
                           f"{tuple(attn_mask.shape)}, but should be {wanted}.")
    return attn_mask.unsqueeze(0) if attn_mask.dim() == 2 else attn_mask


def _longer(mask):
    """A mask with room for one more key, which everybody sees."""
    if mask is None:
        return None
    return flambeau.cat([mask, flambeau.zeros((*mask.shape[:-1], 1), dtype=mask.dtype)], -1)


def _split_heads(x, count, size):
    return x.reshape(x.shape[0], count, size).transpose(0, 1)


def _static(x, name, heads, size):
    _require(x.shape[0] == heads, f"expecting {name}.size(0) of {heads}, but got {x.shape[0]}")
    _require(x.shape[2] == size, f"expecting {name}.size(2) of {size}, but got {x.shape[2]}")
    return x


def _hint(is_causal, attn_mask, key_padding_mask, need_weights):
    """The mask to use, and whether it may be left to the causal form of attention."""
    if not is_causal:
        return attn_mask, False
    if attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    if key_padding_mask is None and not need_weights:
        return None, True
    return attn_mask, False


def multi_head_attention_forward(
    query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v,
    add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None,
    need_weights=True, attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None,
    k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None,
    average_attn_weights=True, is_causal=False,
):
    """Attention of several heads over (length, batch, features), and its weights if wanted."""
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = _as_batch(query, key, value)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    attn_mask, is_causal = _hint(is_causal, attn_mask, key_padding_mask, need_weights)
    masks = (_additive(attn_mask, "attn_mask", query.dtype),
             _additive(key_padding_mask, "key_padding_mask", query.dtype))
    length, batch, embed_dim = query.shape
    _check_sizes(query, key, value, embed_dim, embed_dim_to_check, num_heads,
                 use_separate_proj_weight)
    size, heads = embed_dim // num_heads, batch * num_heads
    separate = _separate(use_separate_proj_weight, in_proj_weight,
                         (q_proj_weight, k_proj_weight, v_proj_weight))
    q, k, v = _projected(query, key, value, in_proj_weight, in_proj_bias, embed_dim, separate)
    masks = (_mask_for_heads(masks[0], length, key.shape[0], heads), masks[1])
    k, v, masks = _with_biases(k, v, masks, bias_k, bias_v, batch)
    q = _split_heads(q, heads, size)
    k = _keys(k, static_k, "static_k", heads, size)
    v = _keys(v, static_v, "static_v", heads, size)
    if add_zero_attn:
        zeros = flambeau.zeros((heads, 1, size), dtype=k.dtype)
        k, v = flambeau.cat([k, zeros], 1), flambeau.cat([v, zeros], 1)
        masks = tuple(map(_longer, masks))
    mask = _with_padding(*masks, batch, num_heads, k.shape[1])
    mixed, weights = _mixed(q, k, v, mask, dropout_p if training else 0.0, is_causal, batch,
                            num_heads, need_weights)
    out = _linear(mixed.reshape(length * batch, embed_dim), out_proj_weight, out_proj_bias)
    out = out.view(length, batch, out.shape[1])
    if weights is not None:
        weights = weights.view(batch, num_heads, length, k.shape[1])
        weights = weights.mean(1) if average_attn_weights else weights
    if not batched:
        out = out.squeeze(1)
        weights = None if weights is None else weights.squeeze(0)
    return out, weights


def _as_batch(query, key, value):
    """A batch of one; what was one tensor stays one, which a projection can use."""
    one = {id(x): x.unsqueeze(1) for x in (query, key, value)}
    return one[id(query)], one[id(key)], one[id(value)]


def _separate(wanted, in_proj_weight, weights):
    """The weights of queries, keys and values if they are apart, else None."""
    if not wanted:
        _require(in_proj_weight is not None,
                 "use_separate_proj_weight is False but in_proj_weight is None")
        return None
    for name, weight in zip("qkv", weights, strict=True):
        _require(weight is not None,
                 f"use_separate_proj_weight is True but {name}_proj_weight is None")
    return weights


def _with_biases(k, v, masks, bias_k, bias_v, batch):
    """Keys and values with one more of each, learned, if there is one."""
    _require((bias_k is None) == (bias_v is None),
             "bias_k and bias_v must both be given or both be None")
    if bias_k is None:
        return k, v, masks
    return (flambeau.cat([k, bias_k.repeat(1, batch, 1)]),
            flambeau.cat([v, bias_v.repeat(1, batch, 1)]), tuple(map(_longer, masks)))


def _keys(x, static, name, heads, size):
    return _split_heads(x, heads, size) if static is None else _static(static, name, heads, size)


def _mixed(q, k, v, mask, dropout_p, is_causal, batch, num_heads, need_weights):
    """Values mixed for each query, and the weights they were mixed by if those are wanted."""
    if not need_weights:
        return _without_weights(q, k, v, mask, dropout_p, is_causal, batch, num_heads), None
    weights = _weights(q, k, mask, dropout_p)
    return flambeau.bmm(weights, v).transpose(0, 1), weights


def _with_padding(attn_mask, padding, batch, num_heads, source):
    """The mask of queries and keys and that of padded keys as one."""
    if padding is None:
        return attn_mask
    _require(tuple(padding.shape) == (batch, source),
             f"expecting key_padding_mask shape of {(batch, source)}, "
             f"but got {tuple(padding.shape)}")
    padding = padding.view(batch, 1, 1, source).expand(-1, num_heads, -1, -1)
    padding = padding.reshape(batch * num_heads, 1, source)
    return padding if attn_mask is None else attn_mask + padding


def _weights(q, k, attn_mask, dropout_p):
    scores = flambeau.bmm(q * math.sqrt(1.0 / q.shape[-1]), k.transpose(-2, -1))
    weights = (scores if attn_mask is None else scores + attn_mask).softmax(-1)
    return flambeau.dropout(weights, dropout_p, True) if dropout_p > 0 else weights


def _without_weights(q, k, v, attn_mask, dropout_p, is_causal, batch, num_heads):
    if attn_mask is not None:
        if attn_mask.shape[0] == 1:
            attn_mask = attn_mask.unsqueeze(0)
        else:
            attn_mask = attn_mask.view(batch, num_heads, -1, k.shape[1])
    q, k, v = (x.reshape(batch, num_heads, -1, x.shape[-1]) for x in (q, k, v))
    mixed = _attention(q, k, v, attn_mask, dropout_p, is_causal)
    return mixed.permute(2, 0, 1, 3)
