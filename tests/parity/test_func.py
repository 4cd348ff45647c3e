"""torch.func beside PyTorch's: gradients of functions, Jacobians, vmap, and how they nest."""

from __future__ import annotations

import pytest
import torch

import flambeau

CASES = {
    "grad": lambda t: t.func.grad(lambda x: (x.sin() * x).sum())(t.linspace(0, 1, 3)),
    "grad of grad": lambda t: t.func.grad(t.func.grad(lambda x: x ** 4))(t.tensor(2.0)),
    "argnums": lambda t: t.func.grad(lambda x, y: (x * y * y).sum(), argnums=(1, 0))(
        t.arange(3.0), t.ones(3)),
    "aux": lambda t: t.func.grad_and_value(lambda x: (x.exp(), {"twice": 2 * x}), has_aux=True)(
        t.tensor(1.0)),
    "a dict": lambda t: t.func.grad(lambda p: (p["a"] * p["b"][0]).sum())(
        {"a": t.arange(2.0), "b": [t.ones(2)]}),
    "unused": lambda t: t.func.grad(lambda x, y: y.sum())(t.ones(2), t.ones(3)),
    "vjp": lambda t: t.func.vjp(lambda x, y: (x * y, x.sum()), t.arange(3.0), t.ones(3))[1](
        (t.arange(3.0), t.tensor(2.0))),
    "jvp": lambda t: t.func.jvp(lambda x: (x * x, x.cos()), (t.arange(3.0),), (t.ones(3),)),
    "jacrev": lambda t: t.func.jacrev(lambda x, y: (x * y).cumsum(0), argnums=1)(
        t.arange(3.0), t.arange(3.0)),
    "jacrev of two": lambda t: t.func.jacrev(lambda x: {"s": x.sum(), "p": x ** 3})(t.ones(2, 2)),
    "jacfwd": lambda t: t.func.jacfwd(lambda x: x.outer(x))(t.arange(3.0)),
    "jacfwd of two": lambda t: t.func.jacfwd(lambda x, y: (x * y, y.sum()), argnums=(0, 1))(
        t.arange(2.0), t.ones(2)),
    "hessian": lambda t: t.func.hessian(lambda x: (x ** 3).sum() + x.prod())(t.arange(1.0, 4.0)),
    "forward over back": lambda t: t.func.jacfwd(t.func.jacrev(lambda x: x.prod()))(
        t.arange(1.0, 4.0)),
    "vmap": lambda t: t.vmap(t.dot)(t.arange(6.0).view(2, 3), t.ones(2, 3)),
    "vmap in and out": lambda t: t.vmap(lambda x, y: (x + y, {"d": x}), in_dims=(1, None),
                                        out_dims=(0, 1))(t.arange(6.0).view(2, 3), t.ones(2)),
    "vmap of vmap": lambda t: t.vmap(t.vmap(lambda x: x * x.sum()))(t.arange(8.0).view(2, 2, 2)),
    "vmap of grad": lambda t: t.vmap(t.func.grad(lambda w, x: (w @ x).sin()), in_dims=(None, 0))(
        t.ones(3), t.arange(6.0).view(2, 3)),
    "grad of vmap": lambda t: t.func.grad(lambda x: t.vmap(t.sin)(x).sum())(t.arange(4.0)),
    "without recording": lambda t: _quietly(t, lambda: t.func.grad(t.sin)(t.tensor(0.5))),
}

REFUSED = {
    "sizes": lambda t: t.vmap(t.add)(t.ones(2), t.ones(3)),
    "in_dim": lambda t: t.vmap(t.sin, in_dims=2)(t.ones(2)),
    "nothing batched": lambda t: t.vmap(t.add, in_dims=(None, None))(t.ones(2), t.ones(2)),
    "random": lambda t: t.vmap(lambda x: x + t.rand(()))(t.ones(2)),
    "no scalar": lambda t: t.func.grad(lambda x: x * 2)(t.ones(2)),
    "argnum": lambda t: t.func.grad(t.sin, argnums=3)(t.tensor(1.0)),
}


def _quietly(t, f):
    with t.no_grad():
        return f()


def flat(x):
    if isinstance(x, dict):
        return [leaf for key in x for leaf in [key, *flat(x[key])]]
    if isinstance(x, (tuple, list)):
        return [len(x), *(leaf for each in x for leaf in flat(each))]
    return [(tuple(x.shape), x.requires_grad), *x.detach().flatten().tolist()]


@pytest.mark.parametrize("name", CASES)
def test_same_results(name):
    theirs, ours = flat(CASES[name](torch)), flat(CASES[name](flambeau))
    assert len(ours) == len(theirs)
    for ours_here, theirs_here in zip(ours, theirs, strict=True):
        assert ours_here == (pytest.approx(theirs_here, rel=1e-5, abs=1e-6)
                             if isinstance(theirs_here, float) else theirs_here)


@pytest.mark.parametrize("name", REFUSED)
def test_same_refusals(name):
    with pytest.raises(Exception) as theirs:
        REFUSED[name](torch)
    with pytest.raises(type(theirs.value)):
        REFUSED[name](flambeau)


def test_a_captured_parameter_stays_in_the_graph():
    for t in (torch, flambeau):
        w = t.tensor(3.0, requires_grad=True)
        slope = t.func.grad(lambda x: x * x * w)(t.tensor(2.0))  # noqa: B023
        slope.backward()
        assert slope.item() == 12 and w.grad.item() == 4


def test_linearize():
    value, push = flambeau.func.linearize(flambeau.sin, flambeau.arange(3.0))
    assert flambeau.allclose(push(flambeau.full((3,), 2.0)), 2 * flambeau.arange(3.0).cos())
    assert flambeau.equal(value, flambeau.arange(3.0).sin())


def test_ensembles():
    for t in (torch, flambeau):
        t.manual_seed(0)
        models = [t.nn.Sequential(t.nn.Linear(3, 2), t.nn.BatchNorm1d(2)).eval() for _ in range(3)]
        parameters, buffers = t.func.stack_module_state(models)
        assert list(buffers) == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
        assert parameters["0.weight"].shape == (3, 2, 3)
        assert parameters["0.weight"].requires_grad
        out = t.vmap(lambda p, b: t.func.functional_call(models[0], (p, b), (t.ones(4, 3),)))(  # noqa: B023
            parameters, buffers)
        assert t.allclose(out[1], models[1](t.ones(4, 3)), atol=1e-6)
