"""Adamax: Adam scaled by the largest recent gradient."""

from .adam import decayed
from .functional import step_function
from .rule import RuleOptimizer, check, check_betas, check_rate, number


class Adamax(RuleOptimizer):
    """p <- p - lr m / u, where u decays but never falls below the gradient's size."""

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        check_rate(lr)
        check(eps >= 0.0, "Invalid epsilon value: {}", eps)
        check_betas(betas)
        check(weight_decay >= 0.0, "Invalid weight_decay value: {}", weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def remembered(self, group, p):
        return "exp_avg", "exp_inf"

    def numbers(self, counts, group):
        beta1, beta2 = group["betas"]
        return {
            "lr": number(group["lr"], group),
            "beta1": beta1,
            "beta2": beta2,
            "unbias1": 1 - beta1 ** counts["step"],
            "eps": group["eps"],
            "decay": group["weight_decay"],
        }

    @staticmethod
    def rule(p, g, m, u, *, lr, beta1, beta2, unbias1, eps, decay):
        p, g = decayed(p, g, lr, decay, decoupled=False)
        m = beta1 * m + (1 - beta1) * g
        u = (beta2 * u).maximum(g.abs() + eps)
        return p - (lr / unbias1) * (m / u), m, u


adamax = step_function(
    Adamax,
    "exp_avgs exp_infs state_steps",
    "foreach=None maximize=False differentiable=False capturable=False "
    "has_complex=False",
    "eps beta1 beta2 lr weight_decay",
)
