"""Quantized tensors and dynamic layers of bytes beside torch's: numbers, print, states, results."""

import copy
import io
import itertools
import pickle

import numpy as np
import pytest
import torch

import flambeau
from flambeau.devices.cpu import foundry, quantized

pytestmark = pytest.mark.filterwarnings("ignore")


def outcome(work):
    try:
        return str(work())
    except Exception as error:
        return f"{type(error).__name__} {str(error)[:60]}"


def given(t):
    return t.tensor([[-1.5, 0.2, 3.0], [0.1, 2.4, -0.7]])


def by_tensor(t, kind="quint8", scale=0.1, zero=10):
    return t.quantize_per_tensor(given(t), scale, zero, getattr(t, kind))


def by_channel(t, axis=0):
    n = given(t).shape[axis]
    return t.quantize_per_channel(given(t), t.linspace(0.05, 0.1, n), t.arange(n), axis, t.qint8)


PROGRAMS = (
    lambda t: by_tensor(t), lambda t: by_tensor(t).int_repr(), lambda t: by_tensor(t).dequantize(),
    lambda t: (by_tensor(t).q_scale(), by_tensor(t).q_zero_point(), by_tensor(t).qscheme()),
    lambda t: (by_tensor(t).dtype, by_tensor(t).is_quantized, by_tensor(t).element_size()),
    lambda t: (by_tensor(t).type(), by_tensor(t).stride(), by_tensor(t).is_floating_point()),
    lambda t: by_tensor(t, "qint8", 0.02, -7), lambda t: by_tensor(t, "qint32", 0.01, 0),
    lambda t: by_channel(t), lambda t: by_channel(t, 1), lambda t: by_channel(t).dequantize(),
    lambda t: (by_channel(t).q_per_channel_scales(), by_channel(t).q_per_channel_zero_points()),
    lambda t: (by_channel(t).q_per_channel_axis(), by_channel(t).qscheme()),
    lambda t: by_channel(t).q_scale(), lambda t: by_channel(t, 1).int_repr(),
    lambda t: t.quantize_per_tensor_dynamic(given(t), t.quint8, False),
    lambda t: t.quantize_per_tensor_dynamic(given(t), t.quint8, True),
    lambda t: t.quantize_per_tensor_dynamic(given(t), t.qint8, False),
    lambda t: t.quantize_per_tensor_dynamic(given(t).abs() * 1e-6, t.quint8, False),
    lambda t: t.quantize_per_tensor_dynamic(t.zeros(3), t.quint8, False),
    lambda t: by_tensor(t)[0], lambda t: by_tensor(t).view(6), lambda t: by_tensor(t).t(),
    lambda t: by_tensor(t).permute(1, 0), lambda t: by_tensor(t).relu(),
    lambda t: by_tensor(t).clone(), lambda t: t.equal(by_tensor(t), by_tensor(t)),
    lambda t: t.cat([by_tensor(t), by_tensor(t)]), lambda t: by_tensor(t) == by_tensor(t),
    lambda t: by_tensor(t)[0, 0].item(), lambda t: by_tensor(t).clamp(0, 1),
    lambda t: by_tensor(t).numpy(), lambda t: by_tensor(t).copy_(t.ones(2, 3)),
    lambda t: t.dequantize(by_tensor(t)), lambda t: given(t).dequantize(),
    lambda t: given(t).is_quantized, lambda t: given(t).q_scale()[:0], lambda t: t.qint8.itemsize,
    lambda t: t.quantize_per_tensor(given(t), 0.1, 10, t.float32),
    lambda t: by_tensor(t) + by_tensor(t), lambda t: by_tensor(t).float(),
    lambda t: t.quantize_per_tensor([given(t), given(t)], t.tensor([0.1, 0.2]),
                                    t.tensor([1, 2]), t.quint8),
)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_same_as_in_torch(number):
    ours, theirs = (outcome(lambda t=t: PROGRAMS[number](t)) for t in (flambeau, torch))
    if "Error" in theirs:
        assert ours.split(" ")[0] == theirs.split(" ")[0]
    else:
        assert ours == theirs


@pytest.mark.parametrize("kind", ["qint8", "quint8", "qint32"])
def test_rounding_of_many(kind):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(5000) * 3).astype("float32")
    for scale, zero in ((0.05, 3), (0.01, 0), (1 / 64, 17)):
        ours, theirs = (t.quantize_per_tensor(t.from_numpy(x), scale, zero, getattr(t, kind))
                        .int_repr().tolist() for t in (flambeau, torch))
        assert ours == theirs


def net(t, *sizes):
    t.manual_seed(0)
    return t.nn.Sequential(*(layer for a, b in itertools.pairwise(sizes)
                             for layer in (t.nn.Linear(a, b), t.nn.ReLU())))


def small(t, model, **options):
    return t.ao.quantization.quantize_dynamic(model, **options)


def test_modules_print_and_hold_the_same():
    for make in (lambda t: small(t, net(t, 3, 4, 2)),
                 lambda t: small(t, net(t, 3, 4, 2), qconfig_spec={t.nn.Linear}),
                 lambda t: small(t, net(t, 3, 4, 2), qconfig_spec={
                     t.nn.Linear: t.ao.quantization.per_channel_dynamic_qconfig}),
                 lambda t: small(t, net(t, 3, 4, 2), dtype=t.float16)):
        ours, theirs = make(flambeau), make(torch)
        assert str(ours) == str(theirs)
        assert str(ours.state_dict()) == str(theirs.state_dict())
        assert str(ours[0].weight()) == str(theirs[0].weight())


@pytest.mark.parametrize("sizes", [(3, 4, 2), (64, 32, 7), (37, 19), (129, 100, 17), (784, 128)])
@pytest.mark.parametrize("rows", [(1,), (5,), (2, 9), (33,)])
@pytest.mark.parametrize("config", ["default_dynamic_qconfig", "per_channel_dynamic_qconfig"])
def test_results(sizes, rows, config):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((*rows, sizes[0])) * 2 + 0.5).astype("float32")
    found = []
    for t in (flambeau, torch):
        model = small(t, net(t, *sizes), qconfig_spec={
            t.nn.Linear: getattr(t.ao.quantization, config)})
        found.append(model(t.from_numpy(x)).numpy())
    # A byte of an input that lies between two may be rounded to either.
    step = np.abs(x).max() / 127 * 0.1
    assert np.abs(found[0] - found[1]).max() < 1e-4 + step
    assert np.abs(found[0] - found[1]).mean() < 2e-3
    plain = net(flambeau, *sizes)(flambeau.from_numpy(x)).detach().numpy()
    assert np.abs(found[0] - plain).max() < 0.03 * max(1.0, np.abs(plain).max())


@pytest.mark.parametrize("fast", [None, False])
def test_sums_are_exact(fast, monkeypatch):
    if fast is False:  # as on processors that have no instruction for it
        code = foundry.machine_code("quantized", ("quantized_rows", "byte_products"), fast)
        monkeypatch.setattr(quantized, "_code", lambda: code)
    rng = np.random.default_rng(2)
    for rows, width, columns in ((1, 1, 1), (9, 5, 16), (17, 70, 33), (8, 64, 48)):
        weight = rng.integers(-128, 128, (columns, width)).astype("float32")
        layer = flambeau.ao.nn.quantized.dynamic.Linear(width, columns)
        layer.set_weight_bias(flambeau.quantize_per_tensor(
            flambeau.from_numpy(weight), 1.0, 0, flambeau.qint8), None)
        x = rng.integers(0, 128, (rows, width)).astype("float32")
        x[0, 0] = 127
        found = layer(flambeau.from_numpy(x)).numpy()
        np.testing.assert_allclose(found, x @ weight.T, rtol=1e-6, atol=1e-2)


def test_copies_states_and_files():
    model = small(flambeau, net(flambeau, 6, 5, 4))
    x = flambeau.randn(3, 6)
    other = small(flambeau, net(flambeau, 6, 5, 4))
    other[0].set_weight_bias(flambeau.quantize_per_tensor(
        flambeau.ones(5, 6), 0.1, 0, flambeau.qint8), None)
    other.load_state_dict(model.state_dict())
    file = io.BytesIO()
    flambeau.save(model, file)
    file.seek(0)
    for again in (other, copy.deepcopy(model), pickle.loads(pickle.dumps(model)),
                  flambeau.load(file, weights_only=False)):
        assert flambeau.equal(again(x), model(x))


def test_which_layers_become_small():
    for t in (flambeau, torch):
        model = t.nn.ModuleDict({"a": t.nn.Linear(2, 2), "b": t.nn.Sequential(t.nn.Linear(2, 2))})
        found = small(t, model, qconfig_spec={"b"})
        assert type(found["a"]) is t.nn.Linear
        assert type(found["b"][0]) is t.ao.nn.quantized.dynamic.Linear
        assert type(model["b"][0]) is t.nn.Linear
        assert t.quantization.quantize_dynamic is not None
    with pytest.raises(RuntimeError, match="default settings"):
        small(flambeau, model, dtype=flambeau.quint8)
    with pytest.raises(RuntimeError, match="features"):
        small(flambeau, net(flambeau, 3, 4))(flambeau.ones(2, 5))
