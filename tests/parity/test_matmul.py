"""Matrix products and their gradients against torch."""

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

SHAPES = [(64, 784, 128), (128, 128, 128), (16, 16, 16), (80, 3, 16), (64, 128, 10), (1, 200, 300),
          (8, 200, 300), (300, 8, 200), (127, 255, 511), (33, 50, 1)]


def pair(*shape):
    array = np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4")
    return flambeau.from_numpy(array), torch.from_numpy(array)


def same(found, wanted, scale=1.0):
    np.testing.assert_allclose(found.detach().float().numpy(), wanted.detach().float().numpy(),
                               rtol=2e-5 * scale, atol=2e-4 * scale)


@pytest.mark.parametrize("m, k, n", SHAPES)
def test_products_and_gradients(m, k, n):
    for turn in range(4):
        results = []
        for lib, a, b in zip((flambeau, torch), pair(m, k) if turn < 2 else pair(k, m),
                             pair(k, n) if turn % 2 == 0 else pair(n, k), strict=True):
            a, b = a.clone().requires_grad_(True), b.clone().requires_grad_(True)
            out = (a if turn < 2 else a.T) @ (b if turn % 2 == 0 else b.T)
            (out * lib.ones_like(out)).sum().backward()
            results.append((out, a.grad, b.grad))
        for found, wanted in zip(*results, strict=True):
            same(found, wanted)


@pytest.mark.parametrize("rows, wide, out", [(64, 784, 128), (1, 100, 10), (20, 32, 7)])
def test_linear(rows, wide, out):
    results = []
    for lib, x, w, b in zip((flambeau, torch), pair(rows, wide), pair(out, wide), pair(out),
                            strict=True):
        given = [t.clone().requires_grad_(True) for t in (x, w, b)]
        y = lib.nn.functional.linear(*given)
        (y * y).mean().backward()
        results.append((y, *[t.grad for t in given]))
    for found, wanted in zip(*results, strict=True):
        same(found, wanted)


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addmv"])
def test_added(name):
    shapes = {"addmm": ((6, 1), (6, 9), (9, 7)), "baddbmm": ((6, 7), (4, 6, 9), (4, 9, 7)),
              "addmv": ((6,), (6, 9), (9,))}[name]
    results = []
    for lib, *tensors in zip((flambeau, torch), *[pair(*s) for s in shapes], strict=True):
        given = [t.clone().requires_grad_(True) for t in tensors]
        out = getattr(lib, name)(*given, beta=0.5, alpha=-2)
        (out * out).sum().backward()
        results.append((out, *[t.grad for t in given]))
    for found, wanted in zip(*results, strict=True):
        same(found, wanted)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("m, k, n", [(64, 128, 10), (1, 200, 300), (70, 90, 110)])
def test_half_precision(m, k, n, dtype):
    (a, p), (b, q) = pair(m, k), pair(k, n)
    found = a.to(getattr(flambeau, dtype)) @ b.to(getattr(flambeau, dtype))
    same(found, p.to(getattr(torch, dtype)) @ q.to(getattr(torch, dtype)), 400)


@pytest.mark.parametrize("equation, shapes", [
    ("ij,jk->ik", ((7, 9), (9, 5))), ("bij,bkj->bik", ((3, 7, 9), (3, 5, 9))),
    ("bhid,bhjd->bhij", ((2, 3, 6, 8), (2, 3, 5, 8))), ("ij,kj,kl->il", ((4, 5), (6, 5), (6, 3)))])
def test_einsum(equation, shapes):
    pairs = [pair(*s) for s in shapes]
    same(flambeau.einsum(equation, *[p[0] for p in pairs]),
         torch.einsum(equation, *[p[1] for p in pairs]))
