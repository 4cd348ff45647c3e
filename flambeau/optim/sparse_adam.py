"""SparseAdam: Adam for gradients that are zero almost everywhere, as embeddings have."""

from .functional import step_function
from .rule import RuleOptimizer, check, check_betas, check_rate, number


class SparseAdam(RuleOptimizer):
    """Adam at the coordinates that have a gradient; elsewhere even averages stay as they are."""

    sparse = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        check_rate(lr)
        check(eps > 0.0, "Invalid epsilon value: {}", eps)
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        everything = [p for group in self.param_groups for p in group["params"]]
        for kind, found, complaint in (
            ("Sparse", [p.is_sparse for p in everything], "requires dense parameter tensors"),
            (
                "Complex",
                [p.is_complex() for p in everything],
                "does not support complex parameters",
            ),
        ):
            at = [i for i, is_one in enumerate(found) if is_one]
            check(not at, "{} params at indices {}: SparseAdam {}", kind, at, complaint)

    def remembered(self, group, p):
        return "exp_avg", "exp_avg_sq"

    def begin(self, p, group):
        return {**super().begin(p, group), "step": 0}

    def update(self, p, g, group):
        if not g.is_sparse:
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead"
            )
        super().update(p, g, group)

    def numbers(self, counts, group):
        beta1, beta2 = group["betas"]
        t = counts["step"]
        return {
            "rate": number(group["lr"], group) * (1 - beta2**t) ** 0.5 / (1 - beta1**t),
            "beta1": beta1,
            "beta2": beta2,
            "eps": group["eps"],
        }

    @staticmethod
    def rule(p, g, m, v, *, rate, beta1, beta2, eps):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * (g * g)
        return p - rate * (m / (v.sqrt() + eps)), m, v


sparse_adam = step_function(
    SparseAdam,
    "exp_avgs exp_avg_sqs state_steps",
    options="eps beta1 beta2 lr maximize",
)
