"""A function mode is told the same names in the same order as torch's."""

import importlib

import pytest
import torch

import flambeau

CALLS = {
    "operators":   lambda T, x: (x + x, 2 * x, 1 - x, x / 2, x @ x, -x, x == x, x[0], 1 + x),
    "comparisons": lambda T, x: (x != x, x < x, x <= 1, x > x, x >= x, x % 2, x // 2, 2 ** x),
    "functions":   lambda T, x: (T.add(x, x, alpha=2), T.cat([x, x]), T.stack([x, x], dim=0)),
    "new tensors": lambda T, x: (T.zeros(3), T.tensor([1.0]), T.arange(3), T.rand(2)),
    "methods":     lambda T, x: (x.sum(), x.view(-1), x.to(T.float64), x.size(0), x.detach()),
    "attributes":  lambda T, x: (x.shape, x.dtype, x.device, x.T, x.requires_grad, x.grad),
    "in place":    lambda T, x: (x.add_(1), x.mul_(2), x.__setitem__(0, 1.0)),
    "nn":          lambda T, x: (T.nn.functional.relu(x), T.nn.functional.softmax(x, dim=1)),
    "linalg":      lambda T, x: (T.linalg.norm(x), T.fft.fft(x)),
    "values":      lambda T, x: (len(x), bool(x.sum() > 0), float(x[0, 0]), x.numpy()),
    "not seen":    lambda T, x: (T.is_tensor(x), T.manual_seed(0), T.get_default_dtype()),
    "layers":      lambda T, x: T.nn.functional.linear(x, x),
}


def told(T, call):
    overrides = importlib.import_module(f"{T.__name__}.overrides")
    names = []

    class Log(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            names.append((overrides.resolve_name(func), len(args)))
            return func(*args, **(kwargs or {}))

    x = T.ones(2, 2)
    with Log():
        call(T, x)
    return names


@pytest.mark.parametrize("name", CALLS)
def test_names(name):
    assert told(flambeau, CALLS[name]) == told(torch, CALLS[name])
