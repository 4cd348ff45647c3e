"""MLX: the layers that models in peer_models.py ask for, and a training step under mx.compile.

Channels come last, which is the only order it has. Weights are those of a module, and its state and
the optimizer's are captured by the compiled step.
"""

from __future__ import annotations

from functools import partial

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optimizers
import peer_models

mx.set_default_device(mx.cpu)


def kernel(name, a):
    return a.transpose(1, 2, 3, 0) if name.startswith("widen") else a.transpose(0, 2, 3, 1)


class Layers(peer_models.Layers):
    array, exp, tanh, sigmoid = map(staticmethod, (mx.array, mx.exp, mx.tanh, mx.sigmoid))
    rsqrt, constant, zeros, stack = map(
        staticmethod, (mx.rsqrt, mx.stop_gradient, mx.zeros, mx.stack))
    relu, gelu, max_pool = map(staticmethod, (nn.relu, nn.gelu, nn.MaxPool2d(2)))
    cross_entropy = staticmethod(partial(nn.losses.cross_entropy, reduction="mean"))
    binary_cross_entropy = staticmethod(
        partial(nn.losses.binary_cross_entropy, with_logits=False, reduction="sum"))
    binary_cross_entropy_of_logits = staticmethod(nn.losses.binary_cross_entropy)

    def linear(self, name, x):
        if name + ".bias" in self.w:
            return mx.addmm(self.w[name + ".bias"], x, self.w[name + ".weight"].T)
        return super().linear(name, x)

    def conv(self, name, x, stride=1, padding=0):
        return self.biased(name, mx.conv2d(x, self.w[name + ".weight"], stride, padding))

    def widen(self, name, x):
        return self.biased(name, mx.conv_transpose2d(x, self.w[name + ".weight"], 2))

    def layer_norm(self, name, x):
        return mx.fast.layer_norm(x, self.w[name + ".weight"], self.w[name + ".bias"], 1e-5)

    def attention(self, q, k, v):
        q, k, v = (each.transpose(0, 2, 1, 3) for each in (q, k, v))
        return mx.fast.scaled_dot_product_attention(
            q, k, v, scale=q.shape[-1] ** -0.5, mask="causal").transpose(0, 2, 1, 3)

    def split(self, x, parts):
        return mx.split(x, parts, -1)

    def join(self, axis, *xs):
        return mx.concatenate(xs, axis)

    def join_channels(self, *xs):
        return mx.concatenate(xs, -1)


# -- training -------------------------------------------------------------------------------------


def optimizer_of(name, lr=1e-3, **options):
    if name == "Adam":
        options["bias_correction"] = True
    return getattr(optimizers, name)(lr, **options)


def training(start):
    """A function that takes one step and gives its loss."""
    weights = nn.Module()
    for name, a in {**start.weights, **start.buffers}.items():
        weights[name] = mx.array(a)
    weights.freeze(keys=list(start.buffers))
    inputs = [mx.array(a) for a in start.inputs]
    optimizer = optimizer_of(start.optimizer, **start.options) if start.optimizer else None
    state = [weights.state, optimizer.state if optimizer else {}]
    both = nn.value_and_grad(weights, lambda *inputs: start.model(Layers(weights), *inputs))

    @partial(mx.compile, inputs=state, outputs=state)
    def step(*inputs):
        loss, slopes = both(*inputs)
        if optimizer:
            optimizer.update(weights, slopes)
            slopes = None
        return loss, slopes

    def run():
        loss, slopes = step(*inputs)
        mx.eval(loss, slopes, state)
        return loss
    return run
