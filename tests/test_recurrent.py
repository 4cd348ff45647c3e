"""Recurrent layers: the kernels against steps by numpy, and their ways back against ops."""

import numpy as np
import pytest

import flambeau as fl
from flambeau import nn
from flambeau.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from flambeau.ops.declare import engine, registry

KINDS = {"rnn_tanh": (nn.RNN, {"nonlinearity": "tanh"}), "lstm": (nn.LSTM, {}),
         "rnn_relu": (nn.RNN, {"nonlinearity": "relu"}), "gru": (nn.GRU, {})}
by_ops = registry["recurrent_layer_by_ops"]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(kind, gi, gh, h, c):
    if kind == "lstm":
        i, f, g, o = np.split(gi + gh, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    if kind == "gru":
        (r, z, n), (hr, hz, hn) = np.split(gi, 3, -1), np.split(gh, 3, -1)
        r, z = sigmoid(r + hr), sigmoid(z + hz)
        return (1 - z) * np.tanh(n + r * hn) + z * h, None
    return (np.tanh(gi + gh) if kind == "rnn_tanh" else np.maximum(gi + gh, 0)), None


def by_numpy(kind, module, x, suffix="_l0", reverse=False):
    w = {k.removesuffix(suffix): p.detach().numpy() for k, p in module.named_parameters()
         if k.endswith(suffix)}
    h = c = np.zeros((x.shape[1], w["weight_hh"].shape[1]), x.dtype)
    out = np.empty((*x.shape[:2], h.shape[1]), x.dtype)
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        gi = x[t] @ w["weight_ih"].T + w.get("bias_ih", 0)
        gh = h @ w["weight_hh"].T + w.get("bias_hh", 0)
        h, c = step(kind, gi, gh, h, c)
        out[t] = h
    return out, h, c


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("t", "b", "i", "u"), [(1, 1, 1, 1), (5, 3, 4, 7), (4, 13, 20, 40)])
@pytest.mark.parametrize("bias", [True, False])
def test_forward(kind, t, b, i, u, bias):
    make, options = KINDS[kind]
    fl.manual_seed(0)
    module = make(i, u, bias=bias, dtype=fl.float64, **options)
    x = np.random.default_rng(0).standard_normal((t, b, i))
    out, last = module(fl.tensor(x))
    assert "Layer" in out.grad_fn.next_functions[0][0].name()
    wanted, h, c = by_numpy(kind, module, x)
    np.testing.assert_allclose(out.detach().numpy(), wanted, atol=1e-14)
    if kind == "lstm":
        np.testing.assert_allclose(last[1][0].detach().numpy(), c, atol=1e-14)
        last = last[0]
    np.testing.assert_allclose(last[0].detach().numpy(), h, atol=1e-14)


def test_directions_and_layers():
    fl.manual_seed(0)
    module = nn.GRU(3, 5, 2, bidirectional=True, batch_first=True, dtype=fl.float64)
    x = np.random.default_rng(0).standard_normal((2, 6, 3))
    out = np.swapaxes(x, 0, 1)
    for layer in range(2):
        out = np.concatenate([by_numpy("gru", module, out, f"_l{layer}{suffix}", bool(suffix))[0]
                              for suffix in ("", "_reverse")], -1)
    np.testing.assert_allclose(module(fl.tensor(x))[0].detach().numpy(), np.swapaxes(out, 0, 1),
                               atol=1e-14)


def draw(seed, *shape, dtype=fl.float64):
    rng = np.random.default_rng(seed)
    return fl.tensor(rng.standard_normal(shape), dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", [(4, 4, 4), (5, 3, 3, 1)])
@pytest.mark.parametrize("units", [5, 33])
def test_gradients(kind, reverse, sizes, units):
    gates = {"lstm": 4, "gru": 3}.get(kind, 1) * units
    paired = kind == "lstm"
    x = draw(0, sum(sizes), 6)
    states = tuple(draw(1 + k, sizes[0], units) for k in range(1 + paired))
    weights = (draw(3, gates, 6), draw(4, gates, units), draw(5, gates), draw(6, gates))
    inputs = (x, *states, *weights)
    outs = engine.recurrent_layer(kind, x, states, weights, sizes, reverse)
    wanted = by_ops(kind, x, states, weights, sizes, reverse)
    g = [draw(10 + k, *o.shape).detach() for k, o in enumerate(outs)]
    for found, right in zip(outs, wanted, strict=True):
        np.testing.assert_allclose(found.detach().numpy(), right.detach().numpy(), atol=1e-13)
    for some in ((0,), range(len(outs)), (len(outs) - 1,)):
        found, right = (fl.autograd.grad([o[k] for k in some], inputs, [g[k] for k in some],
                                         retain_graph=True) for o in (outs, wanted))
        for a, b in zip(found, right, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind):
    make, options = KINDS[kind]
    fl.manual_seed(1)
    module = make(2, 3, dtype=fl.float64, **options)
    x = draw(0, 3, 2, 2)
    assert fl.autograd.gradcheck(lambda x: module(x)[0], (x,))
    assert fl.autograd.gradgradcheck(lambda x: module(x)[0], (x,))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_packed_is_what_each_sequence_gives_alone(kind):
    make, options = KINDS[kind]
    fl.manual_seed(2)
    module = make(3, 4, 2, bidirectional=True, dtype=fl.float64, **options)
    lengths = [5, 4, 2]
    x = draw(0, 5, 3, 3).detach()
    packed = pack_padded_sequence(x, fl.tensor(lengths))
    out, lengths_back = pad_packed_sequence(module(packed)[0])
    assert lengths_back.tolist() == lengths
    for k, n in enumerate(lengths):
        alone = module(x[:n, k:k + 1])[0]
        np.testing.assert_allclose(out[:n, k].detach().numpy(), alone[:, 0].detach().numpy(),
                                   atol=1e-14)


def test_projection():
    fl.manual_seed(3)
    module = nn.LSTM(3, 6, 2, proj_size=2, dtype=fl.float64)
    x = draw(0, 4, 2, 3)
    out, (h, c) = module(x)
    assert out.shape == (4, 2, 2) and h.shape == (2, 2, 2) and c.shape == (2, 2, 6)
    assert fl.autograd.gradcheck(lambda x: module(x)[0], (x,))


def test_threads_agree_bit_for_bit():
    fl.manual_seed(4)
    module, x = nn.LSTM(64, 200), fl.randn(6, 24, 64)
    before, found = fl.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            fl.set_num_threads(n)
            module.zero_grad()
            out = module(x)[0]
            out.square().sum().backward()
            found.append([out.detach(), module.weight_hh_l0.grad.clone()])
    finally:
        fl.set_num_threads(before)
    for other in found[1:]:
        assert all(fl.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_weights_may_lie_in_any_way():
    fl.manual_seed(5)
    module, x = nn.LSTM(4, 6), fl.randn(3, 2, 4)
    wanted = module(x)[0]
    module.weight_hh_l0.data = module.weight_hh_l0.data.t().contiguous().t()
    state = fl.zeros(2, 1, 6).transpose(0, 1)
    fl_close = (module(x, (state, state))[0] - wanted).abs().max()
    assert fl_close < 1e-6


def test_wrong_sizes_are_refused():
    module = nn.GRU(4, 6)
    with pytest.raises(RuntimeError):
        module(fl.randn(3, 2, 5))
    with pytest.raises(RuntimeError):
        module(fl.randn(3, 2, 4), fl.zeros(1, 3, 6))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_seen_in_the_first_step(kind, bad):
    """Zeros times weights need not be computed, but for these."""
    make, options = KINDS[kind]
    module = make(3, 5, **options)
    with fl.no_grad():
        module.weight_hh_l0[1, 2] = bad
    out, _ = module(fl.ones(2, 2, 3))
    assert out[0, :, 1].isnan().all()
    assert out[0, :, 3].isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_states_before_the_first_step(kind):
    """Zeros that are given, or that nobody gave, are the same; and they have a gradient."""
    make, options = KINDS[kind]
    fl.manual_seed(0)
    module = make(6, 9, dtype=fl.float64, **options)
    x = fl.randn(4, 3, 6, dtype=fl.float64)
    zeros = [fl.zeros(1, 3, 9, dtype=fl.float64, requires_grad=True)
             for _ in range(2 if kind == "lstm" else 1)]
    out, _ = module(x, tuple(zeros) if kind == "lstm" else zeros[0])
    assert fl.equal(out, module(x)[0])
    nearly, _ = module(x, tuple(z + 1e-6 for z in zeros) if kind == "lstm" else zeros[0] + 1e-6)
    out.sum().backward()
    slope = sum(z.grad.sum() for z in zeros)
    assert abs((nearly - out).sum().item() / 1e-6 - slope.item()) < 1e-4
    found = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad()
    module(x)[0].sum().backward()
    for name, p in module.named_parameters():
        assert fl.equal(p.grad, found[name])
