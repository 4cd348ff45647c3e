"""Tests that come from the registry: adding an op adds its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import registry_samples as samples

import flambeau
from flambeau.ops.declare import Composite, Reduction, registry

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def on_reference(tmp_path_factory):
    """The results of the reference device, from a process of its own."""
    path = tmp_path_factory.mktemp("reference") / "results.npz"
    environment = {**os.environ, "FLAMBEAU_DEVICE": "reference",
                   "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)])}
    subprocess.run([sys.executable, str(HERE / "registry_samples.py"), str(path)], check=True,
                   env=environment)
    return dict(np.load(path))


@pytest.fixture(scope="module")
def on_llvm():
    return samples.arrays()


def test_both_devices_compute_the_same_ops(on_reference, on_llvm):
    assert on_llvm.keys() == on_reference.keys()
    assert len(on_llvm) > 2500


def test_machine_code_equals_the_reference(on_reference, on_llvm):
    wrong = []
    for name, expected in on_reference.items():
        actual = on_llvm[name]
        if actual.dtype != expected.dtype or actual.shape != expected.shape:
            wrong.append(f"{name}: {actual.dtype}{actual.shape} "
                         f"for {expected.dtype}{expected.shape}")
        elif not _agree(actual, expected):
            wrong.append(f"{name}: off by {_worst(actual, expected)}")
    assert not wrong, f"{len(wrong)} results differ:\n" + "\n".join(wrong[:40])


def _agree(actual, expected) -> bool:
    if expected.dtype.kind not in "fc":
        return bool((actual == expected).all())
    return bool(np.allclose(actual, expected, rtol=2e-4, atol=1e-5, equal_nan=True))


def _worst(actual, expected) -> float:
    with np.errstate(all="ignore"):
        return float(np.nanmax(np.abs(actual.astype(np.float64) - expected.astype(np.float64))))


def _differentiable():
    return [key for key, op in samples.pointwise_ops().items() if op.rule in ("SAME", "FLOAT")]


def _smooth(op, x, h=1e-6):
    """The derivative by central differences, and whether the function is smooth enough there."""
    def at(step):
        return op.run(*[flambeau.from_numpy(a + step * d) for a, d in x]).numpy()

    near, far = (at(h) - at(-h)) / (2 * h), (at(2 * h) - at(-2 * h)) / (4 * h)
    return near, np.isfinite(near) & np.isclose(near, far, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("key", _differentiable())
def test_gradient_is_the_slope(key):
    """Forward differences against backward, near zero and far from it."""
    op = registry[key]
    rng = np.random.default_rng(7)
    for scale in (1.0, 20.0):
        arrays = [rng.normal(size=40) * scale for _ in op.operands]
        directions = [rng.normal(size=40) for _ in op.operands]
        try:
            leaves = [flambeau.from_numpy(a.copy()).requires_grad_(True) for a in arrays]
            out = op.run(*leaves)
        except (RuntimeError, TypeError):
            pytest.skip(f"{key} does not take float64 alone")
        if not out.requires_grad:
            continue
        slope, smooth = _smooth(op, list(zip(arrays, directions, strict=True)))
        grads = flambeau.autograd.grad(out.sum(), leaves, allow_unused=True)
        total = sum(0 if g is None else g.numpy() * d
                    for g, d in zip(grads, directions, strict=True))
        total = np.broadcast_to(total, slope.shape)
        scale_of = np.maximum(np.abs(slope), 1.0)
        assert (np.abs(total - slope)[smooth] <= 2e-4 * scale_of[smooth]).all(), (
            f"{key} at scale {scale}: {total[smooth][:5]} for {slope[smooth][:5]}")


@pytest.mark.parametrize("key", [k for k, op in samples.pointwise_ops().items()
                                 if op.inplace and not op.where and op.method])
def test_in_place_equals_out_of_place(key):
    op = registry[key]
    args = [flambeau.from_numpy(samples.values(key, k, "float32").copy())
            for k in range(len(op.operands))]
    try:
        expected = op.run(*args)
    except (RuntimeError, TypeError):
        pytest.skip(f"{key} does not take float32 alone")
    if expected.dtype is not args[0].dtype:
        pytest.skip(f"{key} changes the dtype")
    form = getattr(args[0], f"{op.name}_")
    version = args[0]._version
    assert form(*args[1:]) is args[0]
    assert args[0]._version == version + 1
    np.testing.assert_array_equal(args[0].numpy(), expected.numpy())


def test_every_op_says_what_it_is():
    silent = [key for key, op in registry.items()
              if not op.doc and op.function_form and not op.name.startswith("_")]
    assert not silent, f"ops without a docstring: {silent}"


def test_ops_print_themselves():
    for op in registry.values():
        assert op.name in str(op) and op.kind in repr(op)
        assert isinstance(op, (Composite, Reduction)) or op.kind
