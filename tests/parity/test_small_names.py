"""Names that few programs use, beside torch's: what they compute, and what they refuse."""

import importlib

import numpy as np
import pytest
import torch

import flambeau

LIBRARIES = (torch, flambeau)


def both(work):
    """What a program returns in either library; the kind of its error where it raises one."""
    found = []
    for t in LIBRARIES:
        try:
            found.append(work(t))
        except Exception as error:
            found.append(type(error).__name__)
    return found


def part(t, name):
    return importlib.import_module(f"{t.__name__}.{name}")


# -- rounding to levels ----------------------------------------------------------------------------


def quantized(name, *given):
    def work(t):
        t.manual_seed(0)
        x = (t.randn(4, 6) * 20).requires_grad_()
        made = [v(t) if callable(v) else v for v in given]
        y = getattr(t, name)(x, *made)
        (y * t.arange(24.0).view(4, 6)).sum().backward()
        return y.tolist(), x.grad.tolist(), y.grad_fn.name()
    return work


@pytest.mark.parametrize("given", [
    ("fake_quantize_per_tensor_affine", 0.1, 3, -128, 127),
    ("fake_quantize_per_tensor_affine", 0.37, 0, 0, 15),
    ("fake_quantize_per_tensor_affine", 0.1, 0, 5, 1),
    ("fake_quantize_per_tensor_affine", 0.1, 10, 0, 5),
    ("fake_quantize_per_channel_affine", lambda t: t.linspace(0.1, 1, 6),
     lambda t: t.arange(6, dtype=t.int32), 1, 0, 127),
    ("fake_quantize_per_channel_affine", lambda t: t.linspace(0.1, 1, 4),
     lambda t: t.arange(4.0) + 0.3, 0, 0, 127),
    ("fake_quantize_per_channel_affine", lambda t: t.ones(6), lambda t: t.zeros(6), -1, 0, 9),
    ("fake_quantize_per_channel_affine", lambda t: t.ones(6), lambda t: t.zeros(6), 7, 0, 9),
    ("fake_quantize_per_channel_affine", lambda t: t.ones(5), lambda t: t.zeros(6), 1, 0, 9),
    ("fake_quantize_per_channel_affine", lambda t: t.ones(6).double(), lambda t: t.zeros(6), 1, 0,
     9),
])
def test_rounding_to_levels(given):
    theirs, ours = both(quantized(*given))
    if isinstance(theirs, str):
        assert ours == theirs
    else:
        assert ours[1:] == theirs[1:]
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)


def test_levels_given_as_tensors():
    theirs, ours = both(lambda t: t.fake_quantize_per_tensor_affine(
        t.linspace(-3, 3, 9), t.tensor(0.3), t.tensor(1, dtype=t.int32), -5, 6).tolist())
    assert ours == theirs


# -- extreme eigenvalues ---------------------------------------------------------------------------


def symmetric(t, *batch, dtype="float64"):
    t.manual_seed(0)
    a = t.randn(*batch, 12, 12, dtype=getattr(t, dtype))
    return a + a.mT


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("options", [{}, {"batch": (2,)}, {"general": True}, {"dtype": "float32"}])
def test_extreme_pairs(largest, options):
    def work(t):
        a = symmetric(t, *options.get("batch", ()), dtype=options.get("dtype", "float64"))
        b = None
        if options.get("general"):
            b = a @ a.mT + t.eye(12, dtype=a.dtype)
        values, vectors = t.lobpcg(a, k=3, B=b, largest=largest, niter=300)
        return values.numpy(), vectors.abs().numpy()

    (values, vectors), (ours, our_vectors) = both(work)
    loose = 1e-3 if options.get("dtype") == "float32" else 1e-5
    np.testing.assert_allclose(ours, values, rtol=loose)
    np.testing.assert_allclose(our_vectors, vectors, atol=3 * loose)


def test_extreme_pairs_have_gradients():
    def work(t):
        a = symmetric(t).requires_grad_()
        values, vectors = t.lobpcg(a, k=2, niter=500)
        (values.sum() + (vectors ** 4).sum()).backward()
        return ((a.grad + a.grad.mT) / 2).numpy()

    theirs, ours = both(work)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_too_many_extremes_are_refused():
    theirs, ours = both(lambda t: t.lobpcg(t.eye(5), k=3))
    assert ours == theirs == "ValueError"


# -- names alone -----------------------------------------------------------------------------------


def test_a_function_made_functional():
    def work(t):
        def f(x):
            y = x.clone()
            y.add_(1)
            x.mul_(2)
            return y

        x = t.ones(3)
        return t.func.functionalize(f)(x).tolist(), x.tolist()

    theirs, ours = both(work)
    assert ours == theirs
    theirs, ours = both(lambda t: t.func.functionalize(abs, remove="all")(t.ones(1)))
    assert ours == theirs


def test_shapes_as_tensors():
    theirs, ours = both(lambda t: str(part(t, "onnx.operators").shape_as_tensor(t.ones(2, 3))))
    assert ours == theirs
    x = flambeau.ones(6)
    assert part(flambeau, "onnx.operators").reshape_from_tensor_shape(
        x, flambeau.tensor([2, 3])).shape == (2, 3)


@pytest.mark.parametrize("device", ["cpu", "cuda", "meta"])
def test_the_backend_of_a_device(device):
    theirs, ours = both(lambda t: part(t, "distributed").get_default_backend_for_device(device))
    assert ours == theirs


def test_the_report_of_a_machine():
    theirs, ours = (part(t, "utils.collect_env").SystemEnv._fields for t in LIBRARIES)
    assert ours == theirs
    told = part(flambeau, "utils.collect_env").get_pretty_env_info()
    assert flambeau.__version__ in told and "[pip3] numpy==" in told
