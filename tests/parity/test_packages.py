"""What packages written for PyTorch reach for, compared with PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8(name):
    draws = np.random.RandomState(0)
    values = np.concatenate([scale * draws.randn(2000).astype("f4")
                             for scale in (1, 1e2, 1e-3, 1e-5, 500, 3e4)])
    edges = np.float32([448, 464, 464.1, 480, np.inf, -np.inf, np.nan, 61439, 61440, 65536, -0.0,
                        1e-9, 2.0**-9, 1.5 * 2.0**-9, 2.0**-10, 2.0**-17, 3 * 2.0**-17])
    given = np.concatenate([values, edges])
    made, found = [], []
    for lib in (torch, flambeau):
        kind = getattr(lib, name)
        made.append(lib.tensor(given).to(kind).view(lib.uint8).numpy())
        codes = lib.arange(256).to(lib.uint8).view(kind)
        found.append(codes.float().nan_to_num(7777.0).numpy())
    numbers = ~np.isnan(given)
    assert (made[0] == made[1])[numbers].all() and (found[0] == found[1]).all()
    assert repr(flambeau.finfo(getattr(flambeau, name))) == repr(torch.finfo(getattr(torch, name)))


@pytest.mark.parametrize("shapes", [((8, 16), (3, 16, 24)), ((16, 8), (8, 24)),
                                    ((3, 8, 16), (16, 8))])
def test_products_in_groups(shapes):
    draws = np.random.RandomState(0)
    given = [draws.randn(*shape).astype("f4") for shape in shapes]
    results = []
    for lib in (torch, flambeau):
        a, b = (lib.tensor(x, requires_grad=True) for x in given)
        out = lib.nn.functional.grouped_mm(a, b, offs=lib.tensor([3, 5, 8], dtype=lib.int32))
        out.pow(2).sum().backward()
        results.append([out.detach().numpy(), a.grad.numpy(), b.grad.numpy()])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_paths_in_trees():
    tree = {"a": [1, (2, 3)], "b": {"c": 4}}
    from flambeau.utils import _pytree as mine
    theirs = torch.utils._pytree
    shown = [[(lib.keystr(path), leaf) for path, leaf in lib.tree_leaves_with_path(tree)]
             for lib in (theirs, mine)]
    assert shown[0] == shown[1]
    assert mine._dict_flatten(tree) == theirs._dict_flatten(tree)


def test_associative_scan():
    x = np.random.RandomState(0).randn(2, 7).astype("f4")
    results = []
    for lib in (torch, flambeau):
        scans = __import__(f"{lib.__name__}._higher_order_ops.associative_scan", fromlist=["_"])
        results.append(scans.associative_scan(lambda a, b: a * b + a + b, lib.tensor(x), 1,
                                              reverse=True, combine_mode="generic").numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)
