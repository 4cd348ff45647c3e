"""How losses are reduced: none, mean or sum, also as torch's older flags and numbers say it."""

from __future__ import annotations

import warnings

from .declare import registry

#: what `reduction` may be, and what it means
_MEANINGS = {"none": "none", "mean": "mean", "elementwise_mean": "mean", "sum": "sum",
             0: "none", 1: "mean", 2: "sum"}


def reduction_of(reduction, size_average=None, reduce=None) -> str:
    """none, mean or sum, from the name or from the two flags that came before it."""
    if size_average is not None or reduce is not None:
        averaged = size_average is None or size_average
        reduction = ("mean" if averaged else "sum") if reduce is None or reduce else "none"
        warnings.warn("size_average and reduce args will be deprecated, please use "
                      f"reduction='{reduction}' instead.", stacklevel=4)
    meaning = _MEANINGS.get(reduction)
    if meaning is None:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return meaning


def reduced(losses, reduction: str):
    """The losses as they are, their mean or their sum."""
    return losses if reduction == "none" else registry[reduction](losses)


def check_smoothing(amount: float) -> None:
    if not 0.0 <= amount <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {amount}")
