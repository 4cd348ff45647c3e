"""Adafactor: the squared-gradient average of a matrix kept as one row and one column."""

import flambeau

from .functional import step_function
from .rule import RuleOptimizer, check, check_rate, number, step_count


class Adafactor(RuleOptimizer):
    """Memory for an n x m matrix is n + m; steps are relative to the parameter's own size."""

    pointwise = False

    def __init__(
        self,
        params,
        lr=1e-2,
        beta2_decay=-0.8,
        eps=(None, 1e-3),
        d=1.0,
        weight_decay=0.0,
        *,
        foreach=None,
        maximize=False,
    ):
        check_rate(lr, "Learning rate should be >= 0 but is: {}")
        check(beta2_decay <= 0, "beta2_decay should be <= 0 but is: {}", beta2_decay)
        check(eps[0] is None or eps[0] >= 0, "epsilon1 should be >= 0 but is: {}", eps[0])
        check(eps[1] >= 0, "epsilon2 should be >= 0 but is: {}", eps[1])
        check(d >= 1, "Clipping threshold d should be >= 1 but is: {}", d)
        check(weight_decay >= 0, "weight_decay should be >= 0 but is: {}", weight_decay)
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def update(self, p, g, group):
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        super().update(p, g, group)

    def remembered(self, group, p):
        return ("row_var", "col_var") if p.dim() > 1 else ("variance",)

    def begin(self, p, group):
        if p.dim() <= 1:
            return {"step": step_count(), "variance": flambeau.zeros_like(p)}
        *batch, n, m = p.shape
        return {
            "step": step_count(),
            "row_var": p.new_zeros((*batch, n, 1)),
            "col_var": p.new_zeros((*batch, 1, m)),
        }

    def numbers(self, counts, group):
        t = counts["step"]
        lr = number(group["lr"], group)
        return {
            "rate": min(lr, t**-0.5),
            "keep": 1 - lr * group["weight_decay"],
            "new": t ** group["beta2_decay"],
            "eps": group["eps"],
            "clip": group["d"],
        }

    @staticmethod
    def rule(p, g, *averages, rate, keep, new, eps, clip):
        floor = flambeau.finfo(p.dtype).eps if eps[0] is None else eps[0]
        rate = rate * root_mean_square(p).clamp(min=eps[1])
        if len(averages) == 2:
            row, column = averages
            row = row + new * ((g * g).mean(-1, keepdim=True) - row)
            column = column + new * ((g * g).mean(-2, keepdim=True) - column)
            variance = row @ column / row.mean(-2, keepdim=True).clamp(min=floor)
            averages = row, column
        else:
            variance = averages[0] + new * (g * g - averages[0])
            averages = (variance,)
        step = g * variance.clamp(min=floor * floor).rsqrt()
        clipped = (root_mean_square(step) / clip).clamp(min=1.0)
        return p * keep - (rate / clipped) * step, *averages


def root_mean_square(x):
    return (x * x).mean().sqrt()


adafactor = step_function(
    Adafactor,
    "row_vars col_vars variances state_steps",
    "foreach=None grad_scale=None found_inf=None has_complex=False",
    "d lr beta2_decay weight_decay eps1 eps2 maximize",
)
