"""What a GradScaler does to all gradients, and to its scale."""

from __future__ import annotations

from ..core import dtype as dt
from ..ops.declare import registry
from .eager import engine
from .tensor import Tensor


def _amp_foreach_non_finite_check_and_unscale_(grads, found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply gradients in place by a factor; found_inf becomes 1 if one was not finite."""
    for what, value in (("inv_scale", inv_scale), ("found_inf", found_inf)):
        if value.sig.numel != 1 or value.sig.dtype is not dt.float32:
            raise RuntimeError(f"_amp_foreach_non_finite_check_and_unscale_: {what} must be a "
                               f"1-element float tensor, got {value.sig}")
    engine.without_grad(_unscale, grads, found_inf, inv_scale.item())


def _unscale(grads, found_inf: Tensor, factor: float) -> None:
    finite, everywhere = registry["isfinite"].run, registry["all"].run
    bad = False
    for grad in grads:
        bad = bad or not everywhere(finite(grad)).item()
        if factor != 1.0:
            grad.mul_(factor)
    if bad:
        found_inf.fill_(1.0)


def _amp_update_scale_(self: Tensor, growth_tracker: Tensor, found_inf: Tensor,
                       scale_growth_factor: float, scale_backoff_factor: float,
                       growth_interval: int) -> Tensor:
    """One bad step shrinks the scale; so many good ones in a row make it grow."""
    if found_inf.item():
        self.mul_(scale_backoff_factor)
        growth_tracker.zero_()
        return self
    good = growth_tracker.item() + 1
    if good < growth_interval:
        growth_tracker.fill_(good)
        return self
    grown = registry["mul"].run(self, scale_growth_factor)
    if registry["isfinite"].run(grown).item():
        self.copy_(grown)
    growth_tracker.zero_()
    return self


functions = {each.__name__: each for each in (
    _amp_foreach_non_finite_check_and_unscale_, _amp_update_scale_)}
