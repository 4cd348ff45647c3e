"""What layers draw while they train: the masks of dropout and the slopes of rrelu."""

from __future__ import annotations

from ..core import dtype as dt
from ..core.device import CPU
from . import convert
from .eager import engine
from .fresh import empty
from .generator import twister_of
from .random import fill_with, state_of, streams
from .tensor import Tensor, signature


def keep_mask(shape, keep: float, dtype: dt.dtype, generator=None) -> Tensor:
    """1 with probability `keep`, else 0: the mask that dropout draws."""
    rng = twister_of(generator)
    x = empty(signature(dtype, tuple(shape)))
    return fill_with(x, "dropout", lambda n, d, at: streams.bernoulli(rng, n, d, keep, at))


def rrelu_noise(x: Tensor, lower: float, upper: float, generator=None) -> Tensor:
    """The slopes that rrelu draws while training: random where x is not positive, elsewhere 1."""
    array = engine.to_array(x.detach())
    _, noise = streams.rrelu(twister_of(generator), array, lower, upper, x.sig.dtype.name)
    return convert.copied(noise, x.sig.dtype)


def can_drop(x: Tensor) -> bool:
    """Whether `drop` takes a tensor."""
    return x.sig.contiguous and x.sig.device is CPU and x.sig.dtype.kind == "f"


def drop(x: Tensor, keep: float) -> tuple[Tensor, Tensor]:
    """x / keep with probability `keep`, else 0; and where it was kept. Unrecorded."""
    sig = x.sig
    out, mask = empty(signature(sig.dtype, sig.shape)), empty(signature(dt.bool_, sig.shape))
    streams.fill("dropout", sig.dtype.name)(state_of(None), out.ptr, mask.ptr, x.ptr, keep,
                                            sig.numel)
    return out, mask


engine.keep_mask = keep_mask
engine.can_drop, engine.drop = can_drop, drop
engine.rrelu_noise = rrelu_noise
