"""Adagrad: steps scaled by the sum of all squared gradients so far."""

import flambeau

from .adam import decayed
from .functional import step_function
from .rule import RuleOptimizer, check, check_fused, check_rate, number, step_count


class Adagrad(RuleOptimizer):
    """p <- p - lr g / (sqrt(sum of g^2) + eps)"""

    sparse = True

    def __init__(
        self,
        params,
        lr=1e-2,
        lr_decay=0,
        weight_decay=0,
        initial_accumulator_value=0,
        eps=1e-10,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        fused=None,
    ):
        check_rate(lr)
        check(lr_decay >= 0.0, "Invalid lr_decay value: {}", lr_decay)
        check(weight_decay >= 0.0, "Invalid weight_decay value: {}", weight_decay)
        check(
            initial_accumulator_value >= 0.0,
            "Invalid initial_accumulator_value value: {}",
            initial_accumulator_value,
        )
        check(eps >= 0.0, "Invalid epsilon value: {}", eps)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)
        for group in self.param_groups:
            for p in group["params"]:
                self.state_of(p, group)

    def share_memory(self):
        """Let other processes see the state."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def remembered(self, group, p):
        return ("sum",)

    def begin(self, p, group):
        start = group["initial_accumulator_value"]
        start = complex(start, start) if p.is_complex() else start
        return {"step": step_count(), "sum": flambeau.full_like(p, start)}

    def numbers(self, counts, group):
        t = counts["step"]
        return {
            "lr": number(group["lr"], group) / (1 + (t - 1) * group["lr_decay"]),
            "eps": group["eps"],
            "decay": group["weight_decay"],
        }

    @staticmethod
    def rule(p, g, total, *, lr, eps, decay):
        p, g = decayed(p, g, lr, decay, decoupled=False)
        total = total + g * g
        return p - lr * (g / (total.sqrt() + eps)), total

    def accepts_sparse(self, group):
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        return True


adagrad = step_function(
    Adagrad,
    "state_sums state_steps",
    "fused=None grad_scale=None found_inf=None has_sparse_grad=False foreach=None "
    "differentiable=False has_complex=False",
    "lr weight_decay lr_decay eps maximize",
)
