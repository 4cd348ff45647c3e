"""AdamW: Adam with weight decay applied straight to the parameters."""

from .adam import Adam
from .functional import step_function


class AdamW(Adam):
    """Adam, with p <- (1 - lr weight_decay) p before each step."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
    ):
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


adamw = step_function(
    AdamW,
    "exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps",
    "foreach=None capturable=False differentiable=False fused=None grad_scale=None "
    "found_inf=None has_complex=False",
    "amsgrad beta1 beta2 lr weight_decay eps maximize",
    fixed={"decoupled_weight_decay": True},
)
