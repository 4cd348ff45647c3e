"""Random programs: ops, views, in-place changes, branches on values and gradients, from a seed."""

from __future__ import annotations

import random

import flambeau as torch
from flambeau.nn import functional as F

ONE = (
    lambda x: x * 2.0, lambda x: x.exp().clamp(max=3.0), lambda x: x.tanh(), lambda x: F.relu(x),
    lambda x: F.gelu(x), lambda x: x + 1, lambda x: -x, lambda x: x.sigmoid(),
    lambda x: 1.0 / (x.abs() + 1), lambda x: x.t(), lambda x: x.t().contiguous(),
    lambda x: F.softmax(x, -1), lambda x: F.layer_norm(x, (x.shape[-1],)), lambda x: x.flip(0),
    lambda x: x.sin() * x.cos(), lambda x: x.clone(), lambda x: x - x.mean(0, keepdim=True),
    lambda x: x / (x.abs().sum(1, keepdim=True) + 1), lambda x: x.cumsum(0) * 0.3,
    lambda x: x.reshape(x.shape[1], x.shape[0]), lambda x: torch.where(x > 0, x, x * 0.1),
    lambda x: x.sort(0)[0], lambda x: x[:, torch.tensor([1, 0, 2])], lambda x: x.roll(1, 0),
    lambda x: F.pad(x, (0, 1))[:, :-1], lambda x: x.detach() + x, lambda x: x.float(),
    lambda x: x.to(torch.float64).to(torch.float32), lambda x: torch.cat([x, x])[:3],
    lambda x: x.split(1, 1)[0] + x, lambda x: x.max(0)[0] + x, lambda x: x.expand(2, 3, 3).sum(0),
    lambda x: F.dropout(x, 0.4), lambda x: x + torch.randn_like(x) * 0.1,
)
TWO = (
    lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y * 0.5, lambda x, y: x @ y * 0.3,
    lambda x, y: torch.maximum(x, y), lambda x, y: x.lerp(y, 0.3),
    lambda x, y: torch.where(x > y, x, y), lambda x, y: torch.stack([x, y]).mean(0),
)


def added_in_place(x, y):
    z = x.clone()
    z.mul_(0.5)
    z.add_(y)
    return z


def row_assigned(x, y):
    z = x * 1.0
    z[0] = 0.25
    z[1] = y[2]
    return z


def branched(x, y):
    return x + 0.1 if x.mean() > 0 else y * 0.9


OTHER = (added_in_place, row_assigned, branched, lambda x, y: x * 0.1 + y.sum() * 0.01)


def program(seed: int):
    """(a function of three matrices, whether it goes back by itself)."""
    dice = random.Random(seed)
    lines = [(dice.random(), dice.randrange(10**6), dice.randrange(10**6), dice.randrange(10**6))
             for _ in range(dice.randint(3, 14))]
    goes_back = dice.random() < 0.5

    def function(x, y, w):
        values = [x, y]
        for kind, a, b, c in lines:
            v, u = values[a % len(values)], values[b % len(values)]
            if kind < 0.5:
                values.append(ONE[c % len(ONE)](v))
            elif kind < 0.7:
                values.append(TWO[c % len(TWO)](v, u))
            elif kind < 0.9:
                values.append(OTHER[c % len(OTHER)](v, u))
            else:
                values.append(F.linear(v, w))
        out = values[-1] + 0
        loss = (out * out).mean()
        if goes_back and loss.requires_grad:
            loss.backward()
        return out, loss

    return function, goes_back
