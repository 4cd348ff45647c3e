"""Dropout: elements or whole channels left out at random, from torch's own stream of numbers."""

from __future__ import annotations

import math

from ..core import dtype as dt
from ..core import expr as e
from .declare import SAME, T, composite, engine, pointwise, registry

_HIDDEN = {"method": False, "function_form": False}
#: where SELU saturates: -scale * alpha
_SATURATION = 1.7580993408473766


@pointwise(SAME, promote=(0,), backward="MulBackward0", said="dropout", **_HIDDEN)
def dropped(x, mask, *, keep):
    """x / keep where the mask says so, else 0"""
    return x * e.where(mask, 1 / keep, e.const(0, x.dtype))


@composite(backward="MulBackward0", said="dropout", keeps=True, **_HIDDEN)
def left_out(input: T, keep):
    """input / keep with probability `keep`, else 0: drawn, scaled and masked in one pass"""
    out, mask = engine.drop(input, keep)
    return out, (mask, keep)


@left_out.gradient
def left_out(g, mask, keep):
    return dropped(g, mask, keep=keep)


@pointwise(SAME, promote=(0,), backward="AddBackward0", said="alpha_dropout", **_HIDDEN)
def saturated(x, mask, *, scale, below, above):
    """scale x + above where the mask says so, else below"""
    kept = e.where(mask, scale, e.const(0, x.dtype))
    return x * kept + e.where(mask, above, below)


def _mask(input, keep: float, by_channel: bool):
    """True with probability `keep`: for each element, or for each channel of each sample."""
    if by_channel:
        if input.dim() < 2:
            raise RuntimeError("Feature dropout requires at least 2 dimensions in the input, got "
                               f"{input.dim()}")
        return engine.keep_mask((*input.shape[:2], *(1 for _ in input.shape[2:])), keep, dt.bool_)
    if input.is_contiguous():
        return engine.keep_mask(input.shape, keep, dt.bool_)
    like = engine.zeros_like(engine.cast(input.detach(), dt.bool_))
    return like.bernoulli_(keep)


def _check(p: float) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")


def _plain(input, p: float, by_channel: bool, change):
    if change is _anew and not by_channel and engine.can_drop(input):
        return left_out(input, 1 - p)
    return change(dropped, input, _mask(input, 1 - p, by_channel), keep=1 - p)


def _to_saturation(input, p: float, by_channel: bool, change):
    scale = 1 / math.sqrt((_SATURATION * _SATURATION * p + 1) * (1 - p))
    above = _SATURATION * scale * p
    return change(saturated, input, _mask(input, 1 - p, by_channel), scale=scale, above=above,
                  below=above - _SATURATION * scale)


def _anew(op, *args, **attributes):
    return op(*args, **attributes)


def _in_place(op, x, *args, **attributes):
    return engine.pointwise_in_place(op, x, *args, **attributes)


def _declared(name: str, leave_out, by_channel: bool, doc: str):
    """One of the four, and its form that writes into its input."""
    def declare(public: str, change, all_gone):
        def drop(input, p, train):
            _check(p)
            if not train or p == 0 or not input.numel():
                return input
            if p == 1:
                return all_gone(input)
            return leave_out(input, float(p), by_channel, change)

        drop.__name__, drop.__doc__ = public, doc
        return composite(name=public, method=False)(drop)

    return (declare(name, _anew, lambda x: x * engine.full((), 0, x.dtype)),
            declare(f"{name}_", _in_place, lambda x: x.mul_(0)))


dropout, dropout_ = _declared(
    "dropout", _plain, False, "Elements left out with probability p, the others scaled up.")
feature_dropout, feature_dropout_ = _declared(
    "feature_dropout", _plain, True, "Whole channels left out with probability p.")
alpha_dropout, alpha_dropout_ = _declared(
    "alpha_dropout", _to_saturation, False,
    "Elements set to SELU's saturation with probability p, keeping mean and variance.")
feature_alpha_dropout, feature_alpha_dropout_ = _declared(
    "feature_alpha_dropout", _to_saturation, True,
    "Whole channels set to SELU's saturation with probability p.")


@composite(method=False)
def native_dropout(input, p, train):
    """dropout, and the mask of what was kept."""
    if train is False or not input.numel():
        return input, engine.full(input.shape, True, dt.bool_)
    mask = _mask(input, 1 - p, False) if p < 1 else engine.full(input.shape, False, dt.bool_)
    return dropped(input, mask, keep=float(1 - p) if p < 1 else 1.0), mask


@composite(method=False)
def native_dropout_backward(grad_output, mask, scale):
    """The gradient of what dropout was given."""
    return grad_output * mask * scale


# -- rrelu -----------------------------------------------------------------------------------------


@composite(method=False, function_form=False, backward="RreluWithNoiseBackward0")
def random_slopes(input: T, noise):
    """input times the slopes that were drawn"""
    return input * noise


@random_slopes.gradient
def random_slopes(g, noise):
    return g * noise


@composite(method=False)
def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False):
    """input, or input times a slope below 0; the slope is random while training."""
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound, got "
                           f"lower={lower} and upper={upper}")
    if not training:
        return registry["nn.functional.leaky_relu"](input, negative_slope=(lower + upper) / 2)
    return random_slopes(input, engine.rrelu_noise(input, lower, upper))


@composite(name="rrelu_", method=False)
def rrelu_in_place(input, lower=1.0 / 8, upper=1.0 / 3, training=False):
    """In-place form of `rrelu`."""
    noise = rrelu_slopes(input, lower, upper, training)
    return input.mul_(noise)


def rrelu_slopes(input, lower: float, upper: float, training: bool):
    if training:
        return engine.rrelu_noise(input, lower, upper)
    return registry["where"](input.detach() > 0, 1.0, (lower + upper) / 2)
