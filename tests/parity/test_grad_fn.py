"""Steps of the graph have torch's names: those of their classes, and those of `name()`."""

import numpy as np
import pytest
import torch

import flambeau

A = np.random.default_rng(0).random((4, 4)).astype(np.float32)
B = np.random.default_rng(1).random((4, 4)).astype(np.float32)


def assigned(x, y):
    out = x.clone()
    out[0] = y[0]
    return out


STEPS = [line for line in """
1-x | x-1 | 1/x | x/2 | 2**x | x**2 | x**y | x%2 | x%y | -x | abs(x) | x.squeeze()
x[None].squeeze(0) | x.sum() | x.sum(0) | x.mean() | x.mean(1) | x.max() | x.max(1)[0] | x.var()
x.std(0) | x.norm() | T.linalg.inv(x) | T.det(x) | T.linalg.svd(x)[1] | T.linalg.qr(x)[0]
T.linalg.solve(x, y) | x.cumsum(0) | x.expand(2, 4, 4) | x.flatten() | x.view(2, 8) | x.t()
x.permute(1, 0) | x.split(2)[0] | x.unbind()[1] | x[0] | x[:, 0] | x[x > 0]
x[T.tensor([0, 1])] | T.where(x > 0, x, y) | x.masked_fill(x > 0, 1.) | x.clamp(0, 1)
x.clamp(min=0) | x.clamp(max=1) | x.clamp_min(0) | x.relu() | F.gelu(x) | F.selu(x) | x.log1p()
x.sigmoid() | x.tanh() | x.exp() | x.lerp(y, 0.5) | x.lerp(y, y) | T.cat([x, y]) | x @ y
x @ y[0] | x[0] @ y[0] | T.bmm(x[None], y[None]) | F.linear(x, y) | F.linear(x, y, y[0])
F.linear(x[None], y) | F.linear(x[None], y, y[0]) | F.mse_loss(x, y)
F.mse_loss(x, y, reduction='sum') | F.mse_loss(x, y, reduction='none') | F.l1_loss(x, y)
F.smooth_l1_loss(x, y) | F.huber_loss(x, y) | F.binary_cross_entropy(x, y.detach())
F.binary_cross_entropy_with_logits(x, y.detach()) | F.kl_div(x, y, reduction='none')
F.cross_entropy(x, T.tensor([0, 1, 2, 3])) | F.softmax(x, 0) | F.layer_norm(x, (4,))
F.batch_norm(x, None, None, training=True) | F.dropout(x) | x.double()
F.conv2d(x[None, None], y[None, None]) | F.max_pool2d(x[None, None], 2) | x.clone().add_(1)
F.embedding(T.tensor([0]), x) | x.clone().copy_(y) | assigned(x, y) | (2 * x + 1).sqrt()
x.reciprocal()
""".replace("\n", " | ").split(" | ") if line.strip()]


def given(T):
    return T.tensor(A, requires_grad=True), T.tensor(B, requires_grad=True)


@pytest.mark.parametrize("step", STEPS)
def test_names(step):
    def told(T):
        x, y = given(T)
        out = eval(step, {"T": T, "F": T.nn.functional, "x": x, "y": y, "assigned": assigned})
        return out.grad_fn.name(), type(out.grad_fn).__name__, repr(out).split("grad_fn")[-1]

    assert told(flambeau) == told(torch)


def walked(T, out):
    """The graph as scripts that draw it see it: names and edges, each step once."""
    numbers, edges = {}, []

    def add(step):
        if step in numbers:
            return
        numbers[step] = len(numbers)
        for parent, place in step.next_functions:
            if parent is not None:
                add(parent)
                edges.append((numbers[step], numbers[parent], place))

    add(out.grad_fn)
    leaves = [tuple(s.variable.shape) for s in numbers if hasattr(s, "variable")]
    return [type(s).__name__ for s in numbers], edges, leaves


@pytest.mark.parametrize("program", [
    lambda T, x, y: ((x * y).tanh() @ x).sum(),
    lambda T, x, y: T.nn.functional.mse_loss(x.exp(), y * 2),
    lambda T, x, y: T.cat([x, y * x]).mean() + (x[0] * y[1]).sum(),
    lambda T, x, y: x.split(2)[1].relu().sum() / x.split(2)[0].sum(),
    lambda T, x, y: (1 - x.sigmoid()) ** 2 - y.log(),
], ids=range(5))
def test_walks(program):
    ours, theirs = (walked(T, program(T, *given(T))) for T in (flambeau, torch))
    assert ours == theirs
