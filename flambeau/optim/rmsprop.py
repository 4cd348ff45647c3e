"""RMSprop: steps scaled by a running average of the squared gradient."""

from .adam import decayed
from .functional import step_function
from .rule import RuleOptimizer, check, check_rate, number


class RMSprop(RuleOptimizer):
    """p <- p - lr g / (sqrt(v) + eps); centered subtracts the squared mean from v."""

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.99,
        eps=1e-8,
        weight_decay=0,
        momentum=0,
        centered=False,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        check_rate(lr)
        check(eps >= 0.0, "Invalid epsilon value: {}", eps)
        check(momentum >= 0.0, "Invalid momentum value: {}", momentum)
        check(weight_decay >= 0.0, "Invalid weight_decay value: {}", weight_decay)
        check(alpha >= 0.0, "Invalid alpha value: {}", alpha)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def remembered(self, group, p):
        optional = {"momentum_buffer": group["momentum"] > 0, "grad_avg": group["centered"]}
        return ("square_avg", *(name for name, wanted in optional.items() if wanted))

    def numbers(self, counts, group):
        return {
            "lr": number(group["lr"], group),
            "alpha": group["alpha"],
            "eps": group["eps"],
            "decay": group["weight_decay"],
            "momentum": group["momentum"],
            "centered": group["centered"],
        }

    @staticmethod
    def rule(p, g, v, *buffer_and_mean, lr, alpha, eps, decay, momentum, centered):
        p, g = decayed(p, g, lr, decay, decoupled=False)
        v = alpha * v + (1 - alpha) * (g * g)
        scale, new = v, [v]
        if centered:
            mean = alpha * buffer_and_mean[-1] + (1 - alpha) * g
            scale = v - mean * mean
        step = g / (scale.sqrt() + eps)
        if momentum != 0:
            step = momentum * buffer_and_mean[0] + step
            new.append(step)
        if centered:
            new.append(mean)
        return p - lr * step, *new


rmsprop = step_function(
    RMSprop,
    "square_avgs grad_avgs momentum_buffer_list state_steps",
    "foreach=None maximize=False differentiable=False capturable=False "
    "has_complex=False",
    "lr alpha eps weight_decay momentum centered",
)
