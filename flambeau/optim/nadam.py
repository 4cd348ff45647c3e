"""NAdam: Adam with Nesterov's look-ahead."""

from .adam import decayed
from .functional import step_function
from .rule import RuleOptimizer, as_stored, check, check_betas, check_rate, number, step_count

DECAY_BASE = 0.96  # of the momentum schedule in "Incorporating Nesterov momentum into Adam"


class NAdam(RuleOptimizer):
    """Adam whose average already contains the present gradient, by a schedule of momenta mu."""

    counters = "step", "mu_product"

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        momentum_decay=4e-3,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
        check_rate(lr)
        check(eps >= 0.0, "Invalid epsilon value: {}", eps)
        check_betas(betas)
        check(weight_decay >= 0.0, "Invalid weight_decay value: {}", weight_decay)
        check(momentum_decay >= 0.0, "Invalid momentum_decay value: {}", momentum_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def remembered(self, group, p):
        return "exp_avg", "exp_avg_sq"

    def begin(self, p, group):
        state = super().begin(p, group)
        return {"step": state.pop("step"), "mu_product": step_count(1.0), **state}

    def numbers(self, counts, group):
        beta1, beta2 = group["betas"]
        t = counts["step"]
        mu, mu_next = (
            beta1 * (1 - 0.5 * DECAY_BASE ** (s * group["momentum_decay"])) for s in (t, t + 1)
        )
        product = counts["mu_product"] = as_stored(counts["mu_product"] * mu)
        lr = number(group["lr"], group)
        return {
            "lr": lr,
            "beta1": beta1,
            "beta2": beta2,
            "now": lr * (1 - mu) / (1 - product),
            "ahead": lr * mu_next / (1 - product * mu_next),
            "unbias2": 1 - beta2**t,
            "eps": group["eps"],
            "decay": group["weight_decay"],
            "decoupled": group["decoupled_weight_decay"],
        }

    @staticmethod
    def rule(p, g, m, v, *, lr, beta1, beta2, now, ahead, unbias2, eps, decay, decoupled):
        p, g = decayed(p, g, lr, decay, decoupled)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * (g * g)
        return p - (now * g + ahead * m) / ((v / unbias2).sqrt() + eps), m, v


nadam = step_function(
    NAdam,
    "exp_avgs exp_avg_sqs mu_products state_steps",
    "decoupled_weight_decay=False foreach=None capturable=False "
    "differentiable=False has_complex=False maximize=False",
    "beta1 beta2 lr weight_decay momentum_decay eps",
)
