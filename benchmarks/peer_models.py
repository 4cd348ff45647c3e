"""The models of model_cases.py once more, for libraries that know weights as arrays by name.

A model is a function of a library's layers, which hold weights under flambeau's names, and of data;
it gives the loss. Weights and data are those that flambeau's own model starts with. Nothing is
random in a step, so that losses can be compared: there is no dropout, and the VAE's noise is data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import model_cases
import numpy


class Layers:
    """The layers that libraries write alike; those of peer_jax and others have the rest.

    Images have their channels last, but where a library says otherwise.
    """

    def __init__(self, weights):
        self.w = weights

    def biased(self, name, x):
        return x + self.w[name + ".bias"] if name + ".bias" in self.w else x

    def scaled(self, name, x):
        return x * self.w[name + ".weight"] + self.w[name + ".bias"]

    def linear(self, name, x):
        return self.biased(name, x @ self.w[name + ".weight"].T)

    def embedding(self, name, at):
        return self.w[name + ".weight"][at]

    def average_pool(self, x):
        return x.mean((1, 2))

    def batch_norm(self, name, x):
        mean, spread, each = x.mean((0, 1, 2)), x.var((0, 1, 2)), x.size // x.shape[-1]
        for what, now in (("mean", mean), ("var", spread * (each / (each - 1)))):
            at = f"{name}.running_{what}"
            self.w[at] = 0.9 * self.w[at] + 0.1 * self.constant(now)
        return self.scaled(name, (x - mean) * self.rsqrt(spread + 1e-5))

    def scan(self, cell, gates):
        """The outputs of a recurrent cell, one after the other, with its state from one to next."""
        nothing = self.zeros((gates.shape[1], gates.shape[2] // 4))
        state, found = (nothing, nothing), []
        for at in range(gates.shape[0]):
            state, out = cell(state, gates[at])
            found.append(out)
        return self.stack(found)

    def squared_error(self, x, y):
        return ((x - y) * (x - y)).mean()

    def binary_cross_entropy(self, p, y):
        return -(y * self.log(p) + (1 - y) * self.log(1 - p)).sum()


def house_mlp(nn, x, y):
    x = nn.relu(nn.linear("2", nn.relu(nn.linear("0", x))))
    return nn.squared_error(nn.linear("4", x), y)


def mnist_mlp(nn, x, y):
    x = nn.relu(nn.linear("1", x.reshape(x.shape[0], -1)))
    return nn.cross_entropy(nn.linear("3", x), y)


def mnist_cnn(nn, x, y):
    x = nn.max_pool(nn.relu(nn.conv("2", nn.relu(nn.conv("0", x)))))
    x = nn.relu(nn.linear("7", x.reshape(x.shape[0], -1)))
    return nn.cross_entropy(nn.linear("10", x), y)


def resnet18(nn, x, y):
    def normed(conv, norm, x, **how):
        return nn.batch_norm(norm, nn.conv(conv, x, **how))

    x = nn.relu(normed("0", "1", x, padding=1))
    for at in range(3, 11):
        stride = 2 if at in (5, 7, 9) else 1
        out = nn.relu(normed(f"{at}.conv1", f"{at}.bn1", x, stride=stride, padding=1))
        out = normed(f"{at}.conv2", f"{at}.bn2", out, padding=1)
        if stride == 2:
            x = normed(f"{at}.short.0", f"{at}.short.1", x, stride=2)
        x = nn.relu(out + x)
    return nn.cross_entropy(nn.linear("13", nn.average_pool(x)), y)


def lstm(nn, x, y):
    def cell(layer, state, gates):
        hidden, kept = state
        gates = gates + hidden @ nn.w[f"rnn.weight_hh_{layer}"].T
        into, forget, new, out = nn.split(gates, 4)
        kept = nn.sigmoid(forget) * kept + nn.sigmoid(into) * nn.tanh(new)
        hidden = nn.sigmoid(out) * nn.tanh(kept)
        return (hidden, kept), hidden

    x = nn.embedding("embed", x)
    for layer in ("l0", "l1"):
        bias = nn.w[f"rnn.bias_ih_{layer}"] + nn.w[f"rnn.bias_hh_{layer}"]
        x = nn.scan(partial(cell, layer), x @ nn.w[f"rnn.weight_ih_{layer}"].T + bias)
    return nn.cross_entropy(nn.linear("out", x).reshape(y.shape[0], -1), y)


def char_gpt(nn, x, y):
    x = nn.embedding("token", x) + nn.w["place.weight"]
    heads = (*x.shape[:2], model_cases.HEADS, -1)
    for at in [f"blocks.{i}." for i in range(model_cases.LAYERS)]:
        asked = nn.linear(at + "qkv", nn.layer_norm(at + "ln1", x))
        found = nn.attention(*[each.reshape(heads) for each in nn.split(asked, 3)])
        x = x + nn.linear(at + "out", found.reshape(x.shape))
        up = nn.linear(at + "up", nn.layer_norm(at + "ln2", x))
        x = x + nn.linear(at + "down", nn.gelu(up))
    x = nn.linear("head", nn.layer_norm("ln", x))
    return nn.cross_entropy(x.reshape(y.shape[0], -1), y)


def vae(nn, x, noise):
    h = nn.relu(nn.linear("up", x))
    mean, spread = nn.linear("mean", h), nn.linear("spread", h)
    z = mean + noise * nn.exp(0.5 * spread)
    again = nn.sigmoid(nn.linear("out", nn.relu(nn.linear("down", z))))
    return (nn.binary_cross_entropy(again, x)
            - 0.5 * (1 + spread - mean * mean - nn.exp(spread)).sum())


def unet(nn, x, y):
    def double(at, x):
        for i in (0, 3):
            x = nn.conv(f"{at}.{i}", x, padding=1)
            x = nn.relu(nn.batch_norm(f"{at}.{i + 1}", x))
        return x

    seen = []
    for i in range(3):
        x = double(f"down.{i}", nn.max_pool(x) if i else x)
        seen.append(x)
    for i in range(2):
        x = double(f"up.{i}", nn.join_channels(seen[1 - i], nn.widen(f"widen.{i}", x)))
    return nn.binary_cross_entropy_of_logits(nn.conv("out", x), y)


def tree(nn, trees, y):
    def node(at):
        if isinstance(at, int):
            return nn.embedding("embed", nn.array((at,)))
        return nn.tanh(nn.linear("join", nn.join(1, node(at[0]), node(at[1]))))

    return nn.cross_entropy(nn.linear("out", nn.join(0, *map(node, trees))), y)


def tiny_ops(nn, x):
    for k in range(100):
        x = nn.tanh(x * nn.w["weight"]) if k % 2 else x + nn.w["weight"] * 0.01
    return x.sum()


#: name, as in model_cases.py -> model
MODELS: dict[str, Callable] = {
    "house MLP":    house_mlp,
    "MNIST MLP":    mnist_mlp,
    "MNIST CNN":    mnist_cnn,
    "ResNet-18":    resnet18,
    "LSTM":         lstm,
    "char GPT":     char_gpt,
    "VAE":          vae,
    "U-Net":        unet,
    "tree":         tree,
    "200 tiny ops": tiny_ops,
}  # fmt: skip


# -- where a model starts -------------------------------------------------------------------------


@dataclass
class Start:
    """A model as a library gets it: what to call, and the numbers it starts with."""

    model: Callable  # of layers and the inputs
    weights: dict[str, numpy.ndarray]
    buffers: dict[str, numpy.ndarray]  # of batch norms: they change, but have no gradient
    inputs: list[numpy.ndarray]
    optimizer: str  # "Adam", "SGD" or "": gradients only
    options: dict[str, float]


def without_chance(torch, noise: numpy.ndarray) -> None:
    """Take dropout out of torch or flambeau for the rest of this process, and give it the noise."""
    given = torch.from_numpy(noise)
    torch.nn.Dropout, model_cases.noise_like = torch.nn.Identity, lambda _torch, _x: given


def noise() -> numpy.ndarray:
    return numpy.random.default_rng(7).standard_normal((128, 20), dtype="f4")


def write(name: str, torch, path: str) -> None:
    """Write the numbers that a model of flambeau (or of torch) starts with."""
    taken: dict[str, Any] = {}

    def take(_torch, model, _measure, x, y, optimizer="Adam", **options):
        weights = {n: p.detach() for n, p in model.named_parameters()}
        taken.update(weights=weights, buffers=dict(model.named_buffers()), data=[x, y],
                     how=[optimizer, options])

    torch.manual_seed(0)
    with mock.patch.object(model_cases, "supervised", take):
        model_cases.MODELS[name][0](torch)
    if not taken:  # the model that has neither a module nor an optimizer
        taken.update(weights={"weight": torch.ones(8)}, buffers={},
                     data=[model_cases.images(torch, 8)], how=["", {}])
    if name == "VAE":  # whose target is its input
        taken["data"][1] = torch.from_numpy(noise())
    trees = taken["data"].pop(0) if name == "tree" else None
    arrays = {f"{kind} {n}": numpy.asarray(a) for kind in ("weights", "buffers")
              for n, a in taken[kind].items()}
    arrays |= {f"inputs {i}": numpy.asarray(a) for i, a in enumerate(taken["data"])}
    numpy.savez(path, how=json.dumps([*taken["how"], trees]), **arrays)


def read(name: str, path: str, kernel: Callable | None = None) -> Start:
    """A start that was written; `kernel` puts a convolution's weight (its name, and the array) in
    order for libraries that have channels last, and None is for those that have them first.
    """
    found: dict[str, dict[str, numpy.ndarray]] = {"weights": {}, "buffers": {}, "inputs": {}}
    with numpy.load(path) as file:
        optimizer, options, trees = json.loads(str(file["how"]))
        for key in file.files:
            kind, _, what = key.partition(" ")
            if kind in found and not what.endswith("num_batches_tracked"):
                a = file[key]
                if kernel and a.ndim == 4:
                    a = a.transpose(0, 2, 3, 1) if kind == "inputs" else kernel(what, a)
                elif kernel and name == "MNIST CNN" and what == "7.weight":  # of what is flattened
                    a = a.reshape(128, 64, 12, 12).transpose(0, 2, 3, 1).reshape(128, -1)
                dtype = "i4" if a.dtype.kind == "i" else "f4"
                found[kind][what] = numpy.ascontiguousarray(a, dtype)
    model = MODELS[name]
    if trees:
        model = lambda nn, y: tree(nn, trees, y)  # noqa: E731
    return Start(model, found["weights"], found["buffers"], list(found["inputs"].values()),
                 optimizer, options)
