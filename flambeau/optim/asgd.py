"""Averaged stochastic gradient descent."""

import flambeau

from .adam import decayed
from .functional import step_function
from .rule import RuleOptimizer, as_stored, check, check_rate, number, step_count


class ASGD(RuleOptimizer):
    """Gradient descent at a falling rate eta, and in `ax` the average of where it has been."""

    counters = "step", "eta", "mu"

    def __init__(
        self,
        params,
        lr=1e-2,
        lambd=1e-4,
        alpha=0.75,
        t0=1e6,
        weight_decay=0,
        foreach=None,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        check_rate(lr)
        check(weight_decay >= 0.0, "Invalid weight_decay value: {}", weight_decay)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def remembered(self, group, p):
        return ("ax",)

    def begin(self, p, group):
        rate = number(group["lr"], group)
        return {
            "step": step_count(),
            "eta": rate.detach().clone() if isinstance(rate, flambeau.Tensor) else step_count(rate),
            "mu": step_count(1.0),
            "ax": flambeau.zeros_like(p),
        }

    def numbers(self, counts, group):
        lr, lambd = number(group["lr"], group), group["lambd"]
        t = counts["step"]
        eta, mu = counts["eta"], counts["mu"]
        counts["eta"] = as_stored(lr / (1 + lambd * lr * t) ** group["alpha"])
        counts["mu"] = as_stored(1 / max(1, t - group["t0"]))
        return {"eta": eta, "mu": mu, "lambd": lambd, "decay": group["weight_decay"]}

    @staticmethod
    def rule(p, g, average, *, eta, mu, lambd, decay):
        p, g = decayed(p, g, eta, decay, decoupled=False)
        p = p * (1 - lambd * eta) - eta * g
        return p, p if mu == 1 else average + mu * (p - average)


asgd = step_function(
    ASGD,
    "axs mus etas state_steps",
    "foreach=None maximize=False differentiable=False capturable=False "
    "has_complex=False",
    "lambd lr t0 alpha weight_decay",
)
