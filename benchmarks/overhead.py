"""What a call costs besides its arithmetic: tiny tensors, with and without a graph, one thread."""

from __future__ import annotations

import sys

import peer

PLAIN = ("a+b", "a*2.0", "1-a", "a**2", "relu", "sum", "a.view(-1)", "a[0]", "a.t()", "a@b")
FUSED = ("softmax", "layer_norm", "cross_entropy", "gelu")


def tiny(torch, a, b):
    return {
        "a+b": lambda: a + b, "a*2.0": lambda: a * 2.0, "1-a": lambda: 1 - a,
        "a**2": lambda: a ** 2, "relu": lambda: torch.relu(a), "sum": lambda: a.sum(),
        "a.view(-1)": lambda: a.view(-1), "a[0]": lambda: a[0], "a.t()": lambda: a.t(),
        "a@b": lambda: a @ b,
    }


def chain(torch, a, b):
    """1,000 tiny ops, then backward."""
    def run():
        x = a
        for _ in range(250):
            x = x * b
            x = x + b
            x = torch.relu(x)
            x = x * 0.5
        x.sum().backward()
    return run


def lengths(torch, first: int, last: int):
    """Ten ops with backward, on a new length every time."""
    def run():
        for n in range(first, last + 1):
            x = torch.ones(n).requires_grad_(True)
            y = torch.relu(x * 2.0 + x)
            y = torch.sigmoid(y * y) - x
            y = torch.tanh(y) / 2.0
            y.exp().sum().backward()
    return run


def rows(torch):
    """Softmax and its kin on (32, 128), with backward."""
    functional = torch.nn.functional
    x = torch.rand(32, 128).requires_grad_(True)
    weight = torch.ones(128).requires_grad_(True)
    bias = torch.zeros(128).requires_grad_(True)
    g, target = torch.rand(32, 128), torch.randint(0, 128, (32,))
    return {
        "softmax": lambda: torch.softmax(x, -1).backward(g),
        "layer_norm": lambda: functional.layer_norm(x, (128,), weight, bias).backward(g),
        "cross_entropy": lambda: functional.cross_entropy(x, target).backward(),
        "gelu": lambda: functional.gelu(x).backward(g),
    }


def cases(torch):
    lengths(torch, 501, 510)()  # the ops are known, the lengths that follow are not
    yield "every shape new", lengths(torch, 1, 500), 0
    a, b = torch.rand(8, 8), torch.rand(8, 8)
    for name, function in tiny(torch, a, b).items():
        yield name, function, 5000
    recorded = torch.rand(8, 8).requires_grad_(True)
    for name, function in tiny(torch, recorded, b).items():
        yield f"{name} recorded", function, 5000
    yield "chain of 1000", chain(torch, recorded, b), 5
    for name, function in rows(torch).items():
        yield name, function, 500


def verdict(ratios: dict[str, float]) -> int:
    """Say how the ratios stand against what is promised; 1 if one falls short."""
    small = [ratios[n + suffix] for n in PLAIN for suffix in ("", " recorded")]
    wanted = (
        ("tiny ops, geometric mean", peer.geometric_mean(small), 2.5),
        ("tiny ops, worst", min(small), 1.5),
        ("chain of 1000 with backward", ratios["chain of 1000"], 5.0),
        ("every shape new", ratios["every shape new"], 1.5),
        ("softmax and its kin, worst", min(ratios[n] for n in FUSED), 2.0),
    )
    for name, found, least in wanted:
        print(f"{name:<28} {found:6.2f}  (at least {least})")
    return int(any(found < least for _, found, least in wanted))


if __name__ == "__main__":
    sys.exit(peer.main(sys.modules[__name__], __file__))
