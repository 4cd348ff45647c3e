"""Adam: steps scaled by running averages of the gradient and of its square."""

from flambeau import Tensor

from .functional import step_function
from .rule import RuleOptimizer, check, check_betas, check_fused, check_rate, number


class Adam(RuleOptimizer):
    """p <- p - lr m / (sqrt(v) + eps), with m and v corrected for starting at zero."""

    no_sparse_hint = ", please consider SparseAdam instead"

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=False,
    ):
        check_tensor_option("lr", lr, foreach, capturable)
        check_rate(lr)
        check(eps >= 0.0, "Invalid epsilon value: {}", eps)
        check_betas(betas)
        check(weight_decay >= 0.0, "Invalid weight_decay value: {}", weight_decay)
        check(
            isinstance(betas[0], Tensor) == isinstance(betas[1], Tensor),
            "betas must be either both floats or both Tensors",
        )
        for i, beta in enumerate(betas):
            check_tensor_option(f"betas[{i}]", beta, foreach, capturable)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)

    def remembered(self, group, p):
        names = "exp_avg", "exp_avg_sq"
        return (*names, "max_exp_avg_sq") if group["amsgrad"] else names

    def numbers(self, counts, group):
        lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
        if not (type(lr) is type(beta1) is type(beta2) is float):
            lr, beta1, beta2 = (number(v, group) for v in (lr, beta1, beta2))
        t = counts["step"]
        return {
            "lr": lr,
            "beta1": beta1,
            "beta2": beta2,
            "unbias1": 1 - beta1**t,
            "unbias2": 1 - beta2**t,
            "eps": group["eps"],
            "decay": number(decay, group) if isinstance(decay, Tensor) else decay,
            "decoupled": group["decoupled_weight_decay"],
        }

    @staticmethod
    def rule(p, g, m, v, peak=None, *, lr, beta1, beta2, unbias1, unbias2, eps, decay, decoupled):
        p, g = decayed(p, g, lr, decay, decoupled)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * (g * g)
        scale = v if peak is None else peak.maximum(v)
        root = unbias2**0.5  # on both sides of the division, so that there is one and not two
        p = p - (lr * root / unbias1) * (m / (scale.sqrt() + eps * root))
        return (p, m, v) if peak is None else (p, m, v, scale)


def decayed(p, g, lr, decay, decoupled):
    """Weight decay: straight on the parameter, or by way of its gradient."""
    if not isinstance(decay, Tensor) and decay == 0:
        return p, g
    return (p * (1 - lr * decay), g) if decoupled else (p, g + decay * p)


def check_tensor_option(name, value, foreach, capturable):
    if not isinstance(value, Tensor):
        return
    check(
        capturable or not foreach,
        "{} as a Tensor is not supported for capturable=False and foreach=True",
        name,
    )
    check(value.numel() == 1, "Tensor {} must be 1-element", name)


adam = step_function(
    Adam,
    "exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps",
    "foreach=None capturable=False differentiable=False fused=None grad_scale=None "
    "found_inf=None has_complex=False decoupled_weight_decay=False",
    "amsgrad beta1 beta2 lr weight_decay eps maximize",
)
