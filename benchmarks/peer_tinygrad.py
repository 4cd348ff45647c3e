"""tinygrad: the layers that models in peer_models.py ask for, and a training step under TinyJit.

Channels come first, as in torch. A step changes the weights in place.
"""

from __future__ import annotations

from functools import cache

import peer_models
from tinygrad import Context, Device, Tensor, TinyJit, nn

kernel = None


class Layers(peer_models.Layers):
    # An array is made once: within a jit it would be copied at every step.
    array = staticmethod(cache(lambda numbers: Tensor(numbers).realize()))
    exp, tanh, sigmoid, relu = map(
        staticmethod, (Tensor.exp, Tensor.tanh, Tensor.sigmoid, Tensor.relu))
    max_pool, zeros = map(staticmethod, (Tensor.max_pool2d, Tensor.zeros))
    cross_entropy = staticmethod(Tensor.sparse_categorical_crossentropy)
    binary_cross_entropy_of_logits = staticmethod(Tensor.binary_crossentropy_logits)

    def linear(self, name, x):
        return x.linear(self.w[name + ".weight"].T, self.w.get(name + ".bias"))

    def conv(self, name, x, stride=1, padding=0):
        return x.conv2d(self.w[name + ".weight"], self.w.get(name + ".bias"), stride=stride,
                        padding=padding)

    def widen(self, name, x):
        return x.conv_transpose2d(self.w[name + ".weight"], self.w[name + ".bias"], stride=2)

    def average_pool(self, x):
        return x.mean((2, 3))

    def batch_norm(self, name, x):
        norm = nn.BatchNorm(x.shape[1])
        for what in ("weight", "bias", "running_mean", "running_var"):
            setattr(norm, what, self.w[f"{name}.{what}"])
        return norm(x)

    def layer_norm(self, name, x):
        return self.scaled(name, x.layernorm())

    def gelu(self, x):
        return x.gelu("none")

    def attention(self, q, k, v):
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        return q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2)

    def split(self, x, parts):
        return x.chunk(parts, -1)

    def join(self, axis, *xs):
        return Tensor.cat(*xs, dim=axis)

    def join_channels(self, *xs):
        return Tensor.cat(*xs, dim=1)

    def scan(self, cell, gates):
        # Every state is stored: fused over many steps, kernels take many minutes to compile.
        def stored(state, gates):
            state, _ = cell(state, gates)
            state = tuple(each.contiguous().contiguous_backward() for each in state)
            return state, state[0]

        return super().scan(stored, gates.contiguous().contiguous_backward())

    def stack(self, xs):
        return Tensor.stack(*xs)

    def binary_cross_entropy(self, p, y):
        return p.binary_crossentropy(y, reduction="sum")


# -- training -------------------------------------------------------------------------------------


def training(start):
    """A function that takes one step and gives its loss."""
    inputs = [Tensor(a).realize() for a in start.inputs]
    weights = {name: Tensor(a) for name, a in start.weights.items()}
    w = weights | {name: Tensor(a).is_param_(False) for name, a in start.buffers.items()}
    Tensor.realize(*w.values())
    optimizer = None
    if start.optimizer:
        optimizer = getattr(nn.optim, start.optimizer)(list(w.values()), **start.options)

    @TinyJit
    def step():
        for each in weights.values():
            each.grad = None
        loss = start.model(Layers(w), *inputs).backward()
        slopes = [each.grad for each in weights.values()]
        return loss.realize(*(optimizer.schedule_step() if optimizer else slopes))

    def run():
        with Context(TRAINING=1):
            loss = step()
        Device[Device.DEFAULT].synchronize()
        return loss
    return run
