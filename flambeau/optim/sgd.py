"""Stochastic gradient descent, with momentum."""

import flambeau

from .functional import step_function
from .rule import RuleOptimizer, check, check_fused, check_rate, number


class SGD(RuleOptimizer):
    """p <- p - lr g, where momentum replaces g by a decaying sum of past gradients."""

    sparse = True
    counters = ()
    first_alone = True

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
    ):
        check_rate(lr)
        check(momentum >= 0.0, "Invalid momentum value: {}", momentum)
        check(weight_decay >= 0.0, "Invalid weight_decay value: {}", weight_decay)
        check(
            not nesterov or (momentum > 0 and dampening == 0),
            "Nesterov momentum requires a momentum and zero dampening",
        )
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)

    def remembered(self, group, p):
        return ("momentum_buffer",) if group["momentum"] != 0 else None

    def state_of(self, p, group):
        # The first gradient enters the buffer whole, undamped.
        state = self.state[p]
        fresh = state.get("momentum_buffer") is None
        if fresh:
            state["momentum_buffer"] = flambeau.zeros_like(p)
        return {**state, "fresh": fresh}

    def numbers(self, counts, group):
        return {
            "lr": number(group["lr"], group),
            "decay": number(group["weight_decay"], group),
            "momentum": group["momentum"],
            "keep": 1 if counts.get("fresh") else 1 - group["dampening"],
            "nesterov": group["nesterov"],
        }

    @staticmethod
    def rule(p, g, buffer=None, *, lr, decay, momentum, keep, nesterov):
        if not isinstance(decay, float | int) or decay != 0:
            g = g + decay * p
        if buffer is None:
            return (p - lr * g,)
        buffer = momentum * buffer + keep * g
        return p - lr * (g + momentum * buffer if nesterov else buffer), buffer

    def update(self, p, g, group):
        # A buffer and a decaying weight move where there is no gradient, too.
        everywhere = group["momentum"] != 0 or group["weight_decay"] != 0
        super().update(p, g.to_dense() if g.is_sparse and everywhere else g, group)


sgd = step_function(
    SGD,
    "momentum_buffer_list",
    "has_sparse_grad=False foreach=None fused=None grad_scale=None found_inf=None",
    "weight_decay momentum lr dampening nesterov maximize",
    gradients="d_p_list",
)
