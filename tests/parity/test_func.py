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


# -- one run for all examples ----------------------------------------------------------------------

#: functions of one example: x of (4, 6), v of (6,), n a label, and w of (5, 6), the same for all
EXAMPLES = {
    "arithmetic":    lambda t, x, v, n, w: (x * v + w[:4] - 2 * v.sum()) / 3 ** x,
    "a number each": lambda t, x, v, n, w: x * n + v[0] * w[:4],
    "reductions":    lambda t, x, v, n, w: (x.sum(), x.mean(0), x.amax(-1, keepdim=True),
                                            x.max(1), x.argmax(), v.std(), x.var(0), v.norm(),
                                            x.logsumexp(1), v[0].sum()),
    "views":         lambda t, x, v, n, w: (x.T, x.mT.contiguous(), x.reshape(-1), x.view(2, 12),
                                            x.flatten(), x.unsqueeze(1), x[None].squeeze(),
                                            x.permute(1, 0), v.expand(3, 6), x.movedim(0, 1),
                                            x.unflatten(1, (2, 3)), x.transpose(-1, 0)),
    "pieces":        lambda t, x, v, n, w: (*x.unbind(), *x.split(3, 1), *x.chunk(2),
                                            x.select(1, 2), x.narrow(0, 1, 2), x.diagonal()),
    "indexing":      lambda t, x, v, n, w: (x[0], x[:, 1:3], x[..., None, 2], x[-1, ::2],
                                            x[[0, 2]], x[:, t.tensor([1, 1, 0])], x[n % 4],
                                            w[n % 5], x[n % 4, n % 6], x[:, None, [0, 1]]),
    "joins":         lambda t, x, v, n, w: (t.cat([x, w]), t.stack([v, v * 2], 1),
                                            t.cat([x, x], -1), t.stack([v, w[0]])),
    "products":      lambda t, x, v, n, w: (x @ v, v @ x.T, x @ w.T, w @ x.T, v @ v, w @ v,
                                            t.dot(v, w[0]), t.mv(w, v), t.outer(v, w[0]),
                                            t.mm(x, w.T), t.bmm(x[None], w.T[None]),
                                            t.einsum("ij,kj->ik", x, w), t.einsum("ij,j", x, v),
                                            t.addmm(w[:4, :5], x, w.T), x[None] @ w.T),
    "linear":        lambda t, x, v, n, w: (t.nn.functional.linear(x, w),
                                            t.nn.functional.linear(v, w, w[:, 0]),
                                            t.nn.functional.linear(w, x, x[:, 0]),
                                            t.nn.functional.linear(v, x),
                                            t.nn.functional.linear(x, w, x.sum(1)[:1].expand(5))),
    "order":         lambda t, x, v, n, w: (x.sort(0), x.topk(2), x.median(1), v.cumsum(0),
                                            x.flip(0), x.roll(1, 1), x.roll(2), v.argsort(),
                                            x.gather(1, x.argsort(1)), v.median()),
    "activations":   lambda t, x, v, n, w: (x.softmax(1), t.nn.functional.log_softmax(v, -1),
                                            t.nn.functional.gelu(x), x.relu(), v.clamp(-1, 1),
                                            t.where(x > 0, x, v), x.masked_fill(x > 0, 1.0)),
    "norms":         lambda t, x, v, n, w: (t.nn.functional.layer_norm(x, (6,)),
                                            t.nn.functional.layer_norm(x, (6,), v, v),
                                            t.nn.functional.layer_norm(w, (6,), v),
                                            t.nn.functional.normalize(x, dim=1)),
    "losses":        lambda t, x, v, n, w: (t.nn.functional.cross_entropy(v, n),
                                            t.nn.functional.cross_entropy(x, n.expand(4)),
                                            t.nn.functional.cross_entropy(
                                                x, n.expand(4), label_smoothing=0.1),
                                            t.nn.functional.nll_loss(
                                                x, n.expand(4), ignore_index=1, reduction="sum"),
                                            t.nn.functional.mse_loss(x, w[:4]),
                                            t.nn.functional.mse_loss(x, x * 2, reduction="none"),
                                            t.nn.functional.huber_loss(v, w[0], reduction="sum"),
                                            t.nn.functional.binary_cross_entropy_with_logits(
                                                x, w[:4].sigmoid())),
    "images":        lambda t, x, v, n, w: (
        t.nn.functional.conv1d(x[None], w[:, :4, None].contiguous(), w[:, 0]),
        t.nn.functional.conv1d(w[None], x[:, :5, None], v[:4]),
        t.nn.functional.conv1d(x, x[None, :, :3], padding=1),
        t.nn.functional.conv2d(x[None, None], x[None, None, :2, :2], groups=1),
        t.nn.functional.max_pool2d(x[None, None], 2), t.nn.functional.avg_pool1d(x, 2),
        t.nn.functional.max_pool2d(x[None], 2), t.nn.functional.pad(x, (1, 2)),
        t.nn.functional.interpolate(x[None], scale_factor=2)),
    "tables":        lambda t, x, v, n, w: (t.nn.functional.embedding(n, w),
                                            t.nn.functional.embedding(n[None], x),
                                            t.nn.functional.one_hot(n, 8)),
    "matrices":      lambda t, x, v, n, w: (t.linalg.inv(x[:, :4]), t.linalg.det(x[:, 2:]),
                                            t.linalg.solve(x[:, :4], x[:, 4:]),
                                            t.linalg.solve(x[:, :4], w[:4]), x.triu()),
    "attention":     lambda t, x, v, n, w: t.nn.functional.scaled_dot_product_attention(
        x[None], w[None], w[None]),
    "constants":     lambda t, x, v, n, w: (t.zeros_like(x), t.ones(3), w, x.detach(),
                                            t.full_like(v, 2.0)),
    "other dtypes":  lambda t, x, v, n, w: (x.double() * v[0], x.long() + n, v.sum() * x.double(),
                                            (x > 0).sum(), n / 2),
}  # fmt: skip


def _batch(t):
    t.manual_seed(0)
    return (t.rand(3, 4, 6) + 3 * t.eye(4, 6), t.rand(6, 3), t.tensor([1, 0, 3]), t.rand(5, 6))


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_together(name):
    results = []
    for t in (torch, flambeau):
        function = lambda *args: EXAMPLES[name](t, *args)  # noqa: B023
        results.append(flat(t.vmap(function, in_dims=(0, 1, 0, None))(*_batch(t))))
    theirs, ours = results
    assert len(ours) == len(theirs)
    for ours_here, theirs_here in zip(ours, theirs, strict=True):
        assert ours_here == (pytest.approx(theirs_here, rel=1e-4, abs=1e-5)
                             if isinstance(theirs_here, float) else theirs_here)


@pytest.mark.parametrize("name", EXAMPLES)
def test_gradients_of_examples_are_their_own(name):
    """Also of what is the same for all: beside a loop over the examples."""
    t = flambeau

    def total(x, v, w, n):
        found = t.utils._pytree.tree_leaves(EXAMPLES[name](t, x, v, n, w))
        return sum((y.sin().sum() for y in found if y.is_floating_point()), x.sum() * 0)

    x, v, n, w = _batch(t)
    slope = t.func.grad(total, argnums=(0, 1, 2))
    together = t.vmap(slope, in_dims=(0, 1, None, 0))(x, v, w, n)
    alone = [slope(x[k], v[:, k], w, n[k]) for k in range(3)]
    for ours, each in zip(together, zip(*alone, strict=True), strict=True):
        t.testing.assert_close(ours, t.stack(each), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("asked", [
    lambda e: e if e.sum() > 3 else -e,
    lambda e: e * e.max().item(),
    lambda e: e * float(e.max()),
    lambda e: e * e.tolist()[0],
])
def test_no_example_has_a_value_of_its_own(asked):
    messages = []
    for t in (torch, flambeau):
        with pytest.raises(RuntimeError) as failure:
            t.vmap(asked)(t.arange(6.0).view(3, 2))
        messages.append(str(failure.value))
    assert messages[0][:60] == messages[1][:60]


def test_what_needs_memory_is_run_one_by_one():
    t = flambeau
    x = t.arange(6.0).view(3, 2)

    def in_place(e):
        e = e.clone()
        e.mul_(2)
        e[0] = 1
        return e

    assert t.vmap(in_place)(x).tolist() == [[1, 2], [1, 6], [1, 10]]

    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx, e):
            return e * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    assert t.vmap(Double.apply)(x).tolist() == (2 * x).tolist()
    assert t.vmap(t.func.grad(lambda e: Double.apply(e).sum()))(x).tolist() == [[2, 2]] * 3


def test_gradients_inside_of_nested_batches():
    for t in (torch, flambeau):
        x, w = t.arange(12.0).view(2, 3, 2), t.tensor([1.0, 2.0])
        slope = t.func.grad(lambda a, b: (a * b).sum().sin())
        found = t.vmap(t.vmap(slope, in_dims=(None, 0)), in_dims=(None, 0))(w, x)
        assert t.allclose(found, (x @ w).cos()[..., None] * x)
        bent = t.vmap(t.func.hessian(lambda a: (a ** 3).sum()))(x[0])
        assert t.allclose(bent, t.diag_embed(6 * x[0]))


def test_gradients_of_parameters_that_record():
    """Parameters need not be detached first."""
    for t in (torch, flambeau):
        t.manual_seed(0)
        model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Tanh(), t.nn.Linear(4, 1))
        x = t.randn(5, 3)
        each = t.vmap(t.func.grad(lambda p, e: t.func.functional_call(model, p, (e,)).sum()),  # noqa: B023
                      in_dims=(None, 0))(dict(model.named_parameters()), x)
        model(x).sum().backward()
        for name, p in model.named_parameters():
            assert each[name].shape == (5, *p.shape)
            assert t.allclose(each[name].sum(0), p.grad, atol=1e-5)
