"""Forward mode gives torch's tangents, and its errors."""

import importlib

import numpy as np
import pytest
import torch

import flambeau

X = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
V = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
W = np.random.default_rng(2).standard_normal((4, 4)).astype(np.float32)


def written(T, x, w):
    out = T.zeros(6, 4)
    out[1] = x[0]
    out[2:4].copy_(x[1:3] * w[0])
    return out


def in_place(T, x, w):
    y = x * 1
    part = y[1]
    part.mul_(w[0]).add_(1)
    y[:, 2].zero_()
    y.relu_()
    return y, part


def without_grad(T, x, w):
    with T.no_grad():
        return T.nn.functional.linear(x, w).tanh()


PROGRAMS = {
    "arithmetic":  lambda T, x, w: ((2 * x + w) * x - 1) / (w.exp() + 3),
    "product":     lambda T, x, w: x @ w @ x.T,
    "both":        lambda T, x, w: T.nn.functional.linear(x, x, x[0]),
    "softmax":     lambda T, x, w: T.softmax(x, 1).log(),
    "norm":        lambda T, x, w: T.nn.functional.layer_norm(x, (4,), w[0], w[1]),
    "convolution": lambda T, x, w: T.nn.functional.conv2d(x[None, None], w[:3, :3][None, None]),
    "pooling":     lambda T, x, w: T.nn.functional.max_pool2d(x[None, None], 2),
    "loss":        lambda T, x, w: T.nn.functional.cross_entropy(x, T.tensor([0, 1, 2, 3])),
    "several":     lambda T, x, w: (*x.split(2), x.max(1), x.sort(0)[0], x > 0),
    "views":       lambda T, x, w: x.T.reshape(-1)[3:].unsqueeze(0).expand(2, -1),
    "written":     written,
    "in place":    in_place,
    "no_grad":     without_grad,
    "gather":      lambda T, x, w: x.gather(1, T.tensor([[0], [1], [2], [3]])) + x[T.tensor([1])],
    "joined":      lambda T, x, w: T.cat([x, w, x * x]).cumsum(0),
    "detached":    lambda T, x, w: x.detach() * x + x.data,
    "dtype":       lambda T, x, w: x.double() * 2,
    "drawn":       lambda T, x, w: T.nn.functional.dropout(x, 0.5),
    "same":        lambda T, x, w: x.contiguous(),
    "complex":     lambda T, x, w: T.fft.fft(x).abs(),
    "linear algebra": lambda T, x, w: T.linalg.solve(x + 5 * T.eye(4), w),
}


def outcome(T, program):
    """(primal, tangent) of every result; and for tangents their gradient in the primal."""
    fw = importlib.import_module(f"{T.__name__}.autograd.forward_ad")
    T.manual_seed(0)
    found = []
    for wanted in (False, True):
        with fw.dual_level():
            x = fw.make_dual(T.tensor(X, requires_grad=wanted), T.tensor(V))
            w = T.tensor(W, requires_grad=wanted)
            results = program(T, x, w)
            for r in results if type(results) is tuple else (results,):
                for each in r if isinstance(r, tuple) else (r,):
                    primal, tangent = fw.unpack_dual(each)
                    found += [primal.requires_grad, primal.detach().numpy(),
                              None if tangent is None else tangent.detach().numpy()]
                    if wanted and tangent is not None:
                        g = T.autograd.grad((tangent.sum() + 0 * w.sum()), w, retain_graph=True)
                        found.append(g[0].numpy())
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_tangents(name):
    ours, theirs = (outcome(T, PROGRAMS[name]) for T in (flambeau, torch))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if b is None or isinstance(b, bool):
            assert a is b
        else:
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def said(call):
    try:
        return str(call())
    except (RuntimeError, ValueError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"


def errors(T):
    fw = importlib.import_module(f"{T.__name__}.autograd.forward_ad")
    x, t = T.ones(3), T.ones(3)
    yield said(lambda: fw.make_dual(x, t))
    yield said(fw.exit_dual_level)
    yield said(lambda: fw.unpack_dual(x))
    with fw.dual_level():
        d = fw.make_dual(x, t)
        yield str(d)
        yield said(lambda: fw.make_dual(d, t))
        yield said(lambda: fw.make_dual(x, T.ones(2)))
        yield said(lambda: fw.make_dual(T.arange(3), t))
        yield said(lambda: fw.make_dual(x, T.arange(3)))
        yield said(fw.enter_dual_level)
        yield said(lambda: fw.exit_dual_level(level=3))

        class Half(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x / 2

        yield said(lambda: Half.apply(d))
    yield str(d)
    func = importlib.import_module(f"{T.__name__}.func")
    yield said(lambda: func.jvp(T.sin, x, t))
    yield said(lambda: func.jvp(T.sin, (), ()))
    yield said(lambda: func.jvp(T.sin, (x,), (T.ones(2),)))
    yield said(lambda: func.jvp(lambda x: 3, (x,), (t,)))
    push = func.linearize(T.sin, x)[1]
    yield said(lambda: push(t))
    yield said(lambda: push(T.ones(2)))
    yield said(lambda: push(t.double()))
    jacobian = T.autograd.functional.jacobian
    yield said(lambda: jacobian(T.sin, x, strategy="forward-mode", vectorize=True))
    yield said(lambda: jacobian(T.sin, x, strategy="forward-mode", create_graph=True))
    yield said(lambda: jacobian(T.sin, x, strategy="forward-mode", strict=True))
    yield said(lambda: jacobian(T.sin, x, vectorize=True, strict=True))
    yield said(lambda: jacobian(T.sin, x, strategy="sideways"))


def test_errors():
    assert list(errors(flambeau)) == list(errors(torch))


def custom(T):
    fw = importlib.import_module(f"{T.__name__}.autograd.forward_ad")

    class Scaled(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, factor):
            ctx.save_for_forward(x, y)
            ctx.factor = factor
            return x * y * factor, x + 1

        @staticmethod
        def jvp(ctx, x_t, y_t, nothing):
            x, y = ctx.saved_tensors
            assert nothing is None
            return ctx.factor * (x_t * y + x * y_t), x_t

    with fw.dual_level():
        x = fw.make_dual(T.tensor(X), T.tensor(V))
        both = Scaled.apply(x, T.tensor(W), 3.0)
        return [fw.unpack_dual(out).tangent.numpy() for out in both]


def test_custom_functions():
    for a, b in zip(custom(flambeau), custom(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
