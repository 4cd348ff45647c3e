"""Attention whose scores and masks are functions of positions.

A `score_mod(score, b, h, q, kv)` or `mask_mod(b, h, q, kv)` is called once with whole index tensors
that broadcast against each other, so it must be written with tensor operations.
"""

import math
from typing import NamedTuple

import flambeau

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask",
    "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip

_DEFAULT_SPARSE_BLOCK_SIZE = 128


class AuxRequest(NamedTuple):
    """What beside the result is wanted."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What beside the result was wanted."""

    lse: object = None
    max_scores: object = None


def noop_mask(batch, head, token_q, token_kv):
    """Everything may be seen."""
    return flambeau.ones((), dtype=flambeau.bool)


def and_masks(*mask_mods):
    """What every mask lets through."""
    return _joined(mask_mods, lambda a, b: a & b, True)


def or_masks(*mask_mods):
    """What any mask lets through."""
    return _joined(mask_mods, lambda a, b: a | b, False)


def _joined(mask_mods, join, start):
    if not all(callable(mod) for mod in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def mask(b, h, q_idx, kv_idx):
        result = flambeau.full((), start, dtype=flambeau.bool)
        for mod in mask_mods:
            result = join(result, mod(b, h, q_idx, kv_idx))
        return result

    return mask


def _positions(batch, heads, queries, keys):
    """Index tensors of every element of a score, each along its own dimension."""
    return [flambeau.arange(n).reshape([-1 if d == k else 1 for d in range(4)])
            for k, n in enumerate((batch, heads, queries, keys))]


def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device="cpu"):
    """The boolean mask (B, H, Q_LEN, KV_LEN) that a mask function means."""
    shape = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    return mod_fn(*_positions(*shape)).expand(shape).clone()


class BlockMask:
    """A mask function, and which blocks of it hold anything."""

    def __init__(self, seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices,
                 block_size, mask_mod):
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, block_size, mask_mod
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices

    @property
    def shape(self):
        return (*self.kv_num_blocks.shape[:2], *self.seq_lengths)

    def to_dense(self):
        """1 for every block that holds something."""
        partial = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None:
            return partial
        return partial | _dense(self.full_kv_num_blocks, self.full_kv_indices)

    def numel(self):
        """How many elements the mask has."""
        return math.prod(self.shape)

    def sparsity(self):
        """The share of blocks, in percent, that are skipped."""
        dense = self.to_dense()
        return 100 * (1 - dense.sum().item() / dense.numel())

    def to(self, device):
        """The same on a device; there is one."""
        return self

    def __repr__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def _dense(counts, indices):
    used = flambeau.arange(indices.shape[-1]) < counts.unsqueeze(-1)
    return flambeau.zeros_like(indices).scatter_add(-1, indices.long(), used.to(indices.dtype))


def _ordered(blocks):
    """(how many blocks are set in a row, their places first)."""
    indices = (~blocks).to(flambeau.int8).argsort(dim=-1, stable=True).to(flambeau.int32)
    return blocks.sum(-1).to(flambeau.int32), indices


def create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN, device=None, BLOCK_SIZE=128, _compile=False,
                      separate_full_blocks=True, compute_dq_write_order=False, dq_kv_order=True):
    """A BlockMask from a mask function."""
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN)
    rows, columns = -(-Q_LEN // size[0]), -(-KV_LEN // size[1])
    padded = flambeau.nn.functional.pad(
        mask, (0, columns * size[1] - KV_LEN, 0, rows * size[0] - Q_LEN))
    blocks = padded.view(*mask.shape[:2], rows, size[0], columns, size[1]).sum((3, 5))
    full = blocks == size[0] * size[1]
    partial = blocks > 0
    if separate_full_blocks:
        partial = partial & ~full
        return BlockMask((Q_LEN, KV_LEN), *_ordered(partial), *_ordered(full), size, mask_mod)
    return BlockMask((Q_LEN, KV_LEN), *_ordered(partial), None, None, size, mask_mod)


def flex_attention(query, key, value, score_mod=None, block_mask=None, scale=None,
                   enable_gqa=False, return_lse=False, kernel_options=None, *, return_aux=None):
    """softmax(score_mod(query @ key^T * scale)) @ value, masked by block_mask."""
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise ValueError("flex_attention: query, key and value should have 4 dimensions, got "
                         f"{query.dim()}, {key.dim()} and {value.dim()}")
    if query.shape[1] != key.shape[1]:
        if not enable_gqa:
            raise ValueError("Expect query and key/value to have the same number of heads but got "
                             f"Hq={query.shape[1]} and Hkv={key.shape[1]}. Try setting "
                             "enable_gqa=True for GQA.")
        groups = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query @ key.transpose(-2, -1)) * scale
    scores = scores if scores.dtype is flambeau.float64 else scores.float()
    places = _positions(*scores.shape)
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask.mask_mod(*places), -math.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1)).exp()
    result = weights.to(query.dtype) @ value
    if return_aux is not None:
        return result, AuxOutput(lse if return_aux.lse else None,
                                 scores.amax(-1) if return_aux.max_scores else None)
    return (result, lse) if return_lse else result
