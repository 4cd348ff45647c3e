"""L-BFGS: quasi-Newton steps from the last few changes of the gradient."""

import flambeau

from .line_search import strong_wolfe
from .optimizer import Optimizer
from .rule import check, check_rate

MIN_CURVATURE = 1e-10  # below this a change of the gradient says nothing about the curvature
CARRIED = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")


class LBFGS(Optimizer):
    """Minimises through a closure, which every step evaluates several times."""

    def __init__(
        self,
        params,
        lr=1,
        max_iter=20,
        max_eval=None,
        tolerance_grad=1e-7,
        tolerance_change=1e-9,
        history_size=100,
        line_search_fn=None,
    ):
        check_rate(lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        check(
            len(self.param_groups) == 1,
            "LBFGS doesn't support per-parameter options (parameter groups)",
        )

    @property
    def _params(self):
        return self.param_groups[0]["params"]

    @flambeau.no_grad()
    def step(self, closure):
        """Up to max_iter iterations; the closure's first loss is returned."""
        if len(self.param_groups) != 1:
            raise AssertionError(f"Expected exactly one param_group, got {len(self.param_groups)}")
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        evaluate = flambeau.enable_grad()(closure)
        first_loss = evaluate()
        state["func_evals"] += 1
        gradient = self._flat_gradient()
        if gradient.abs().max() > group["tolerance_grad"]:
            run = _Run(self, evaluate, group, state, float(first_loss), gradient)
            run.iterate()
            state.update((name, getattr(run, name)) for name in CARRIED)
        return first_loss

    # -- all parameters as one vector ---------------------------------------------------------

    def _flat_gradient(self):
        parts = []
        for p in self._params:
            g = flambeau.zeros_like(p) if p.grad is None else p.grad
            g = g.to_dense() if g.is_sparse else g
            parts.append((flambeau.view_as_real(g) if g.is_complex() else g).reshape(-1))
        return flambeau.cat(parts)

    def _move(self, distance, direction):
        offset = 0
        for p in self._params:
            p = flambeau.view_as_real(p) if p.is_complex() else p
            p.add_(direction[offset : offset + p.numel()].view_as(p), alpha=distance)
            offset += p.numel()


class _Run:
    """The iterations of one step."""

    def __init__(self, optimizer, evaluate, group, state, loss, gradient):
        self.optimizer, self.evaluate, self.group, self.state = optimizer, evaluate, group, state
        self.loss, self.gradient = loss, gradient
        self.evaluations = 1
        for name in CARRIED:
            setattr(self, name, state.get(name))

    def iterate(self):
        group = self.group
        for n in range(1, group["max_iter"] + 1):
            self.state["n_iter"] += 1
            self._aim()
            self.prev_flat_grad, self.prev_loss = self.gradient.clone(), self.loss
            slope = self.gradient.dot(self.d)
            if slope > -group["tolerance_change"]:
                return
            last = n == group["max_iter"]
            self._advance(slope, last)
            if last or self._converged():
                return

    def _aim(self):
        """The next direction, and the distance to try along it."""
        lr = self.group["lr"]
        lr = lr.squeeze() if isinstance(lr, flambeau.Tensor) else lr
        if self.state["n_iter"] == 1:
            self.d = -self.gradient
            self.old_dirs, self.old_stps, self.ro, self.H_diag = [], [], [], 1
            self.t = min(1.0, 1.0 / self.gradient.abs().sum()) * lr
        else:
            self._remember(self.gradient - self.prev_flat_grad, self.d * self.t)
            self.d = self._newton_direction()
            self.t = lr

    def _remember(self, y, s):
        """Keep a pair (change of gradient y, change of place s)."""
        ys = y.dot(s)
        if not ys > MIN_CURVATURE:
            return
        if len(self.old_dirs) == self.group["history_size"]:
            for history in (self.old_dirs, self.old_stps, self.ro):
                history.pop(0)
        self.old_dirs.append(y)
        self.old_stps.append(s)
        self.ro.append(1.0 / ys)
        self.H_diag = ys / y.dot(y)

    def _newton_direction(self):
        """-H g, where H is the inverse curvature that the kept pairs suggest: the two loops."""
        alpha = self.state.setdefault("al", [None] * self.group["history_size"])
        pairs = list(enumerate(zip(self.old_dirs, self.old_stps, self.ro, strict=True)))
        q = -self.gradient
        for i, (y, s, rho) in reversed(pairs):
            alpha[i] = s.dot(q) * rho
            q = q.add(y, alpha=-alpha[i])
        r = q * self.H_diag
        for i, (y, s, rho) in pairs:
            r = r.add(s, alpha=alpha[i] - y.dot(r) * rho)
        return r

    def _advance(self, slope, last):
        evaluated = 0
        if self.group["line_search_fn"] is not None:
            evaluated = self._search(slope)
        else:
            self.optimizer._move(self.t, self.d)
            if not last:  # nothing would be done with what the closure finds
                self.loss = float(self.evaluate())
                self.gradient = self.optimizer._flat_gradient()
                evaluated = 1
        self.evaluations += evaluated
        self.state["func_evals"] += evaluated

    def _search(self, slope):
        if self.group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        params = self.optimizer._params
        start = [p.clone() for p in params]

        def probe(t):
            self.optimizer._move(t, self.d)
            loss, gradient = float(self.evaluate()), self.optimizer._flat_gradient()
            for p, before in zip(params, start, strict=True):
                p.copy_(before)
            return loss, gradient, gradient.dot(self.d)

        origin = (self.loss, self.gradient, slope)
        reach = self.d.abs().max()
        self.loss, self.gradient, self.t, evaluated = strong_wolfe(probe, self.t, origin, reach)
        self.optimizer._move(self.t, self.d)
        return evaluated

    def _converged(self):
        small = self.group["tolerance_change"]
        return (
            self.evaluations >= self.group["max_eval"]
            or self.gradient.abs().max() <= self.group["tolerance_grad"]
            or (self.d * self.t).abs().max() <= small
            or abs(self.loss - self.prev_loss) < small
        )
