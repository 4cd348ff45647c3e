"""L-BFGS: steps as Newton's method would take them, the curvature guessed from recent changes.

Liu and Nocedal (1989); the two loops are algorithm 7.4 of Nocedal and Wright. State has torch's
names: y is `old_dirs`, s is `old_stps`, rho is `ro`, gamma is `H_diag`, alpha is `al`.
"""

import flambeau

from .line_search import strong_wolfe
from .optimizer import Optimizer
from .rule import check, check_rate

FLATTEST = 1e-10  # y's below this say nothing about the curvature


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
        surface = _Surface(self._params, flambeau.enable_grad()(closure), state)
        first, gradient = surface.look()
        if gradient.abs().max() > group["tolerance_grad"]:
            self._descend(surface, float(first), gradient, group, state)
        return first

    def _descend(self, surface, loss, gradient, group, state):
        """Iterate until something says that going on is of no use."""
        for left in reversed(range(group["max_iter"])):
            state["n_iter"] += 1
            direction = self._direction(gradient, group, state)
            state["prev_flat_grad"], state["prev_loss"] = gradient.clone(), loss
            slope = gradient.dot(direction)
            if slope > -group["tolerance_change"]:
                return
            if group["line_search_fn"] is not None:
                loss, gradient = self._search(surface, loss, gradient, slope, group, state)
            else:
                surface.move(state["t"], direction)
                if left:  # nobody would read what the closure finds after the last move
                    loss, gradient = surface.look()
                    loss = float(loss)
            if not left or self._settled(surface, loss, gradient, group, state):
                return

    @staticmethod
    def _direction(gradient, group, state):
        """The next direction `d`; the first length `t` to try along it is set too."""
        rate = group["lr"]
        rate = rate.squeeze() if isinstance(rate, flambeau.Tensor) else rate
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            state["d"] = -gradient
            state["t"] = min(1.0, 1.0 / gradient.abs().sum()) * rate
        else:
            y, s = gradient - state["prev_flat_grad"], state["d"] * state["t"]
            _remember(state, y, s, group["history_size"])
            state["d"] = _two_loops(state, -gradient, group["history_size"])
            state["t"] = rate
        return state["d"]

    @staticmethod
    def _search(surface, loss, gradient, slope, group, state):
        if group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        direction = state["d"]
        home = surface.place()

        def measure(distance):
            surface.move(distance, direction)
            found, there = surface.look()
            surface.back_to(home)
            return float(found), there, there.dot(direction)

        loss, gradient, state["t"], _ = strong_wolfe(
            measure, state["t"], (loss, gradient, slope), direction.abs().max(),
            group["max_eval"] - surface.looks)
        surface.move(state["t"], direction)
        return loss, gradient

    @staticmethod
    def _settled(surface, loss, gradient, group, state):
        least = group["tolerance_change"]
        return (
            surface.looks >= group["max_eval"]
            or gradient.abs().max() <= group["tolerance_grad"]
            or (state["d"] * state["t"]).abs().max() <= least
            or abs(loss - state["prev_loss"]) < least
        )


class _Surface:
    """The loss as a function of all parameters, seen as one long vector."""

    def __init__(self, params, closure, state):
        self.params, self.closure, self.state = params, closure, state
        self.looks = 0

    def look(self):
        """The loss and the gradient here."""
        loss = self.closure()
        self.looks += 1
        self.state["func_evals"] += 1
        return loss, flambeau.cat([_real(_dense_gradient(p)).reshape(-1) for p in self.params])

    def move(self, distance, direction):
        start = 0
        for p in self.params:
            values = _real(p)
            part = direction[start : start + values.numel()]
            values.add_(part.view_as(values), alpha=distance)
            start += values.numel()

    def place(self):
        return [p.clone() for p in self.params]

    def back_to(self, place):
        for p, before in zip(self.params, place, strict=True):
            p.copy_(before)


def _real(x):
    return flambeau.view_as_real(x) if x.is_complex() else x


def _dense_gradient(p):
    if p.grad is None:
        return flambeau.zeros_like(p)
    return p.grad.to_dense() if p.grad.is_sparse else p.grad


def _remember(state, y, s, most):
    """Keep a change of the gradient y and of the place s; the oldest of too many is forgotten."""
    curvature = y.dot(s)
    if not curvature > FLATTEST:
        return
    kept = state["old_dirs"], state["old_stps"], state["ro"]
    for memory, new in zip(kept, (y, s, 1.0 / curvature), strict=True):
        if len(memory) == most:
            del memory[0]
        memory.append(new)
    state["H_diag"] = curvature / y.dot(y)


def _two_loops(state, q, most):
    """H q, where H is the inverse of the curvature that the kept changes suggest."""
    alpha = state.setdefault("al", [None] * most)
    changes = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
    for i in reversed(range(len(changes))):
        y, s, rho = changes[i]
        alpha[i] = s.dot(q) * rho
        q = q.add(y, alpha=-alpha[i])
    r = q * state["H_diag"]
    for (y, s, rho), a in zip(changes, alpha, strict=False):
        r = r.add(s, alpha=a - y.dot(r) * rho)
    return r
