"""Rprop: each element keeps its own step size, and only the gradient's sign counts."""

import flambeau

from .functional import step_function
from .rule import RuleOptimizer, check, check_rate, number


class Rprop(RuleOptimizer):
    """Steps grow while the sign of the gradient lasts, and shrink when it turns."""

    def __init__(
        self,
        params,
        lr=1e-2,
        etas=(0.5, 1.2),
        step_sizes=(1e-6, 50),
        *,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        check_rate(lr)
        check(0.0 < etas[0] < 1.0 < etas[1], "Invalid eta values: {}, {}", *etas)
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def remembered(self, group, p):
        return "prev", "step_size"

    def begin(self, p, group):
        lr = number(group["lr"], group)
        size = flambeau.full_like(p, complex(lr, lr) if p.is_complex() else lr)
        return {**super().begin(p, group), "step_size": size}

    def numbers(self, counts, group):
        shrink, grow = group["etas"]
        smallest, largest = group["step_sizes"]
        return {"shrink": shrink, "grow": grow, "smallest": smallest, "largest": largest}

    @staticmethod
    def rule(p, g, previous, size, *, shrink, grow, smallest, largest):
        agreement = g * previous
        turned = agreement < 0
        size = (size * shrink).where(turned, (size * grow).where(agreement > 0, size))
        size = size.clamp(smallest, largest)
        g = g.where(~turned, 0.0)
        return p - g.sign() * size, g, size


rprop = step_function(
    Rprop,
    "prevs step_sizes state_steps",
    "foreach=None capturable=False maximize=False differentiable=False "
    "has_complex=False",
    "step_size_min step_size_max etaminus etaplus",
)
