"""Causal masks that fit queries and keys of different lengths, by the corner they start from."""

import enum

import flambeau

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Which corner the diagonal passes through."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(flambeau.Tensor):
    """A boolean mask, True where a query may look."""

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant, seq_len_q, seq_len_kv):
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        shift = seq_len_kv - seq_len_q if variant is CausalVariant.LOWER_RIGHT else 0
        mask = flambeau.ones(seq_len_q, seq_len_kv, dtype=flambeau.bool).tril(shift)
        made = mask.as_subclass(cls)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    def __init__(self, *_):
        pass

    def __repr__(self):
        return (f"CausalBias(variant={self.variant.name}, seq_len_q={self.seq_len_q}, "
                f"seq_len_kv={self.seq_len_kv})")

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Every op sees a plain mask: a result is a mask no longer."""
        def plain(x):
            return x.as_subclass(flambeau.Tensor) if isinstance(x, CausalBias) else x

        return func(*map(plain, args), **{k: plain(v) for k, v in (kwargs or {}).items()})


def causal_upper_left(*size):
    """Query i sees keys 0 to i."""
    if len(size) != 2:
        raise AssertionError("causal_upper_left only supports 2D tensors")
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size):
    """The last query sees all keys, the one before it all but one, and so on."""
    if len(size) != 2:
        raise AssertionError("causal_lower_right only supports 2D tensors")
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)
