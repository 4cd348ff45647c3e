"""Muon: momentum, made orthogonal before each step; for the matrices inside a network."""

import math

import flambeau

from .functional import step_function
from .rule import RuleOptimizer, check, check_rate, number

# How the rate depends on the shape (n, m) of a matrix.
ADJUST_RATE = {
    "original": lambda n, m: math.sqrt(max(1, n / m)),
    "match_rms_adamw": lambda n, m: 0.2 * math.sqrt(max(n, m)),
}


class Muon(RuleOptimizer):
    """p <- (1 - lr weight_decay) p - lr orthogonal(momentum)"""

    pointwise = False

    def __init__(
        self,
        params,
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=(3.4445, -4.775, 2.0315),
        eps=1e-7,
        ns_steps=5,
        adjust_lr_fn=None,
    ):
        check_rate(lr, "Learning rate should be >= 0 but is: {}")
        check(momentum >= 0.0, "momentum should be >= 0 but is: {}", momentum)
        check(weight_decay >= 0.0, "weight decay should be >= 0 but is: {}", weight_decay)
        check(
            adjust_lr_fn is None or adjust_lr_fn in ADJUST_RATE,
            "Adjust learning rate function {} is not supported",
            adjust_lr_fn,
        )
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                check(
                    p.dim() == 2,
                    "Muon only supports 2D parameters whereas we found a parameter with size: {}",
                    p.size(),
                )

    def update(self, p, g, group):
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        super().update(p, g, group)

    def remembered(self, group, p):
        return ("momentum_buffer",)

    def begin(self, p, group):
        return {"momentum_buffer": flambeau.zeros_like(p)}

    def numbers(self, counts, group):
        lr = group["lr"]
        adjustment = ADJUST_RATE[group["adjust_lr_fn"] or "original"]
        return {
            "rate": number(lr * adjustment(*counts["momentum_buffer"].shape), group),
            "keep": number(1 - lr * group["weight_decay"], group),
            "momentum": group["momentum"],
            "nesterov": group["nesterov"],
            "iteration": (group["ns_coefficients"], group["ns_steps"], group["eps"]),
        }

    @staticmethod
    def rule(p, g, buffer, *, rate, keep, momentum, nesterov, iteration):
        buffer = buffer + (1 - momentum) * (g - buffer)
        step = g + momentum * (buffer - g) if nesterov else buffer
        return keep * p - rate * orthogonal(step, *iteration).to(p.dtype), buffer


def orthogonal(g, coefficients, steps, eps):
    """Near U V^T for g = U S V^T, by Newton-Schulz iterations.

    They are x <- a x + (b y + c y y) x with y = x x^T, in bfloat16: the singular values need
    only land near one.
    """
    check(steps < 100, "Number of steps must be less than 100 for computational efficiency")
    check(g.dim() == 2, "Input tensor gradient must be a 2D matrix")
    check(len(coefficients) == 3, "Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = g.size(0) > g.size(1)
    x = g.bfloat16().T if tall else g.bfloat16()
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        y = x @ x.T
        x = flambeau.addmm(x, flambeau.addmm(y, y, y, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


muon = step_function(
    Muon,
    "muon_momentum_bufs",
    options="foreach=None lr weight_decay momentum nesterov ns_coefficients ns_steps eps "
    "adjust_lr_fn has_complex",
)
