"""JAX: the layers that models in peer_models.py ask for, and a training step under jax.jit.

Channels come last, which its convolutions are made for. Weights, buffers and what the optimizer
remembers are given to a step, which gives others, in the same memory (donate_argnums).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import peer_models
from jax import lax

ORDER = ("NHWC", "HWIO", "NHWC")
POOL = (1, 2, 2, 1)


def kernel(_name, a):
    return a.transpose(2, 3, 1, 0)


class Layers(peer_models.Layers):
    array, log, exp, tanh = map(staticmethod, (jnp.asarray, jnp.log, jnp.exp, jnp.tanh))
    relu, sigmoid = map(staticmethod, (jax.nn.relu, jax.nn.sigmoid))
    rsqrt, constant = map(staticmethod, (lax.rsqrt, lax.stop_gradient))

    def conv(self, name, x, stride=1, padding=0):
        return self.biased(name, lax.conv_general_dilated(
            x, self.w[name + ".weight"], (stride, stride), [(padding, padding)] * 2,
            dimension_numbers=ORDER))

    def widen(self, name, x):
        return self.biased(name, lax.conv_transpose(
            x, self.w[name + ".weight"], (2, 2), "VALID", dimension_numbers=ORDER,
            transpose_kernel=True))

    def max_pool(self, x):
        return lax.reduce_window(x, -jnp.inf, lax.max, POOL, POOL, "VALID")

    def layer_norm(self, name, x):
        return self.scaled(name, jax.nn.standardize(x))

    def gelu(self, x):
        return jax.nn.gelu(x, approximate=False)

    def attention(self, q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    def split(self, x, parts):
        return jnp.split(x, parts, -1)

    def join(self, axis, *xs):
        return jnp.concatenate(xs, axis)

    def join_channels(self, *xs):
        return jnp.concatenate(xs, -1)

    def scan(self, cell, gates):
        nothing = jnp.zeros((gates.shape[1], gates.shape[2] // 4))
        return lax.scan(cell, (nothing, nothing), gates)[1]

    def cross_entropy(self, x, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    def binary_cross_entropy_of_logits(self, x, y):
        return -(y * jax.nn.log_sigmoid(x) + (1 - y) * jax.nn.log_sigmoid(-x)).mean()


# -- training -------------------------------------------------------------------------------------


def adam(count, w, slopes, memory, lr=1e-3):
    first, second = memory
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slopes)
    near, far = 1 - 0.9**count, 1 - 0.999**count
    w = jax.tree.map(lambda p, m, v: p - lr * (m / near) / (jnp.sqrt(v / far) + 1e-8),
                     w, first, second)
    return w, [first, second]


def sgd(_count, w, slopes, memory, lr, momentum):
    (speed,) = memory
    speed = jax.tree.map(lambda m, g: momentum * m + g, speed, slopes)
    return jax.tree.map(lambda p, m: p - lr * m, w, speed), [speed]


def gradients(_count, w, slopes, _memory):
    return w, [slopes]


#: name -> what changes the weights, and how many numbers it remembers of each
OPTIMIZERS = {"Adam": (adam, 2), "SGD": (sgd, 1), "": (gradients, 1)}


def training(start):
    """A function that takes one step and gives its loss."""
    update, remembered = OPTIMIZERS[start.optimizer]
    inputs, weights, buffers = jax.tree.map(
        jnp.asarray, (start.inputs, start.weights, start.buffers))
    memory = [jax.tree.map(jnp.zeros_like, weights) for _ in range(remembered)]
    state = (jnp.zeros(()), weights, buffers, memory)

    def step(state, inputs):
        count, weights, buffers, memory = state

        def loss_of(weights):
            w = {**weights, **buffers}
            loss = start.model(Layers(w), *inputs)
            return loss, {name: w[name] for name in buffers}

        (loss, buffers), slopes = jax.value_and_grad(loss_of, has_aux=True)(weights)
        weights, memory = update(count + 1, weights, slopes, memory, **start.options)
        return loss, (count + 1, weights, buffers, memory)

    compiled = jax.jit(step, donate_argnums=0)

    def run():
        nonlocal state
        loss, state = jax.block_until_ready(compiled(state, inputs))
        return loss
    return run
