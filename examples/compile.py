"""compile: the same function, faster; what it did, and that the numbers are the same."""

import time

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F


def swirl(x, y):
    """Many small ops, which become one loop over the elements."""
    r = torch.sqrt(x * x + y * y) + 1e-6
    return torch.sin(3 * r) * x / r - torch.cos(3 * r) * y / r + torch.exp(-r)


def seconds(function, *arguments, repeats=20):
    function(*arguments)
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        function(*arguments)
        best = min(best, time.perf_counter() - began)
    return best


torch.manual_seed(0)
x, y = torch.randn(300_000), torch.randn(300_000)
fast = torch.compile(swirl)
print("same numbers:", torch.allclose(swirl(x, y), fast(x, y), atol=1e-6))
print(f"eager {1e3 * seconds(swirl, x, y):.2f} ms, compiled {1e3 * seconds(fast, x, y):.2f} ms")

# a whole training step: forward, backward and the update
model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))


def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss


fast_step = torch.compile(step)
losses = [fast_step().item() for _ in range(50)]
print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
print(f"eager {1e6 * seconds(step):.0f} us, compiled {1e6 * seconds(fast_step):.0f} us a step")


@torch.compile
def careful(x):
    """Branches on values are allowed: Python runs, and each path becomes a program."""
    if x.sum() > 0:
        return x * 2
    return x - 1


print(careful(torch.ones(2)), careful(-torch.ones(2)))
