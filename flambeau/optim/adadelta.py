"""Adadelta: steps in the parameter's own units, from running averages alone."""

from .adam import decayed
from .functional import step_function
from .rule import RuleOptimizer, check, check_rate, number


class Adadelta(RuleOptimizer):
    """p <- p - lr d, with d = g sqrt(average of d^2 + eps) / sqrt(average of g^2 + eps)"""

    def __init__(
        self,
        params,
        lr=1.0,
        rho=0.9,
        eps=1e-6,
        weight_decay=0,
        foreach=None,
        *,
        capturable=False,
        maximize=False,
        differentiable=False,
    ):
        check_rate(lr)
        check(0.0 <= rho <= 1.0, "Invalid rho value: {}", rho)
        check(eps >= 0.0, "Invalid epsilon value: {}", eps)
        check(weight_decay >= 0.0, "Invalid weight_decay value: {}", weight_decay)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def remembered(self, group, p):
        return "square_avg", "acc_delta"

    def numbers(self, counts, group):
        return {
            "lr": number(group["lr"], group),
            "rho": group["rho"],
            "eps": group["eps"],
            "decay": group["weight_decay"],
        }

    @staticmethod
    def rule(p, g, v, travelled, *, lr, rho, eps, decay):
        p, g = decayed(p, g, lr, decay, decoupled=False)
        v = rho * v + (1 - rho) * (g * g)
        delta = (travelled + eps).sqrt() / (v + eps).sqrt() * g
        return p - lr * delta, v, rho * travelled + (1 - rho) * (delta * delta)


adadelta = step_function(
    Adadelta,
    "square_avgs acc_deltas state_steps",
    "capturable=False foreach=None differentiable=False has_complex=False",
    "lr rho eps weight_decay maximize",
)
