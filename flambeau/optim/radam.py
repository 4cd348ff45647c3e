"""RAdam: Adam that adapts only once its variance estimate can be trusted."""

from .adam import decayed
from .functional import step_function
from .rule import RuleOptimizer, check, check_betas, check_rate, number


class RAdam(RuleOptimizer):
    """p <- p - lr r m / (sqrt(v) + eps) where r rectifies the variance; plain momentum before."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
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
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def remembered(self, group, p):
        return "exp_avg", "exp_avg_sq"

    def numbers(self, counts, group):
        beta1, beta2 = group["betas"]
        t = counts["step"]
        return {
            "lr": number(group["lr"], group),
            "beta1": beta1,
            "beta2": beta2,
            "unbias1": 1 - beta1**t,
            "rectified": rectification(beta2, t),
            "eps": group["eps"],
            "decay": group["weight_decay"],
            "decoupled": group["decoupled_weight_decay"],
        }

    @staticmethod
    def rule(p, g, m, v, *, lr, beta1, beta2, unbias1, rectified, eps, decay, decoupled):
        p, g = decayed(p, g, lr, decay, decoupled)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * (g * g)
        step = m * (lr / unbias1)
        return p - (step if rectified is None else step * rectified / (v.sqrt() + eps)), m, v


def rectification(beta2, t):
    """The factor on 1 / sqrt(v) at step t; None while its variance is unbounded."""
    unbias2 = 1 - beta2**t
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * t * beta2**t / unbias2
    if length <= 5:
        return None
    ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return (ratio * unbias2) ** 0.5


radam = step_function(
    RAdam,
    "exp_avgs exp_avg_sqs state_steps",
    "decoupled_weight_decay=False foreach=None differentiable=False "
    "capturable=False has_complex=False maximize=False",
    "beta1 beta2 lr weight_decay eps",
)
