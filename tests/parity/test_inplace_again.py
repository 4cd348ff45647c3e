"""Calls in place that are made again, which native code repeats, do what PyTorch does each time."""

from __future__ import annotations

import numpy
import pytest

import flambeau

torch = pytest.importorskip("torch")

#: over x and y of one shape, m a mask, and number k that changes from call to call
CALLS = """
x.add_(y, alpha=k) | x.sub_(y, alpha=k) | x.sub_(other=y) | x.pow_(2) | x.pow_(k) | x.clamp_(-k, k)
x.clamp_(min=k) | x.clamp_(max=k) | x.clamp_(-1, None) | x.clamp_(y) | x.div_(y) | x.div_(k)
x.div_(k, rounding_mode="floor") | x.div_(y, rounding_mode="trunc") | x.square_() | x.nan_to_num_()
x.nan_to_num_(nan=k) | x.addcmul_(y, y, value=k) | x.addcdiv_(y, y, value=k) | x.lerp_(y, k)
x.lerp_(y, y) | x.masked_fill_(m, 3) | x.round_(decimals=2) | x.fmod_(k) | x.remainder_(y)
x.floor_divide_(k) | x.tril_() | x.triu_(1) | x.cumsum_(0) | x.addmm_(y, y, beta=k) | x.fill_(k)
x.add_(x, alpha=k) | x.T.add_(y, alpha=k) | x[:, 1].addcmul_(y[0], y[1])
x.add_(y[0], alpha=k) | x.mul_(y[:, :1]).add_(y, alpha=2) | x.copysign_(y).hypot_(y) | x.logit_(.1)
""".strip().replace("\n", " | ").split(" | ")


def _world(lib, dtype):
    numbers = numpy.random.default_rng(0).standard_normal((2, 4, 4))
    x, y = (lib.tensor(part).to(getattr(lib, dtype)) for part in numbers)
    return {"x": x, "y": y, "m": y > 0}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("call", CALLS)
def test_repeated_calls_are_those_of_torch(call, dtype):
    names = {lib: _world(lib, dtype) for lib in (torch, flambeau)}
    for k in (0.5, 0.25, 2, 3, 0.75, 1, True):
        outcomes = []
        for world in names.values():
            x = world["x"].clone()
            try:
                eval(call, {**world, "x": x, "k": k})
                outcomes.append(x.double().tolist())
            except (RuntimeError, TypeError, ValueError) as error:
                outcomes.append(type(error))
        ours, theirs = outcomes[1], outcomes[0]
        if isinstance(theirs, type):
            assert ours is theirs, (call, k)
        else:
            numpy.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5, err_msg=f"{call} {k}")


def test_changes_are_counted_and_recorded_again():
    x, y = flambeau.ones(3), flambeau.ones(3)
    for n in range(1, 4):
        x.add_(y, alpha=2)
        assert x._version == n
    w = flambeau.ones(3, requires_grad=True)
    z = w * 1
    z.add_(y, alpha=2)
    z.add_(w, alpha=3)
    z.clamp_(min=0)
    z.sum().backward()
    assert w.grad.tolist() == [4.0, 4.0, 4.0]
    with pytest.raises(RuntimeError, match="leaf"):
        w.add_(y, alpha=2)
    with flambeau.no_grad():
        assert w.add_(y, alpha=2) is w
    assert w.tolist() == [3.0, 3.0, 3.0]
    out = w.exp()
    out.add_(y, alpha=2)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        out.sum().backward()


def test_inference_tensors_and_views_of_leaves_are_refused_again():
    y = flambeau.ones(3)
    flambeau.ones(3).add_(y, alpha=2)
    with flambeau.inference_mode():
        x = flambeau.ones(3)
        x.add_(y, alpha=2)
    with pytest.raises(RuntimeError, match="inference"):
        x.add_(y, alpha=2)
    leaf = flambeau.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf[0].add_(y, alpha=2)


def test_what_overlaps_is_refused_every_time():
    for t in (torch, flambeau):
        for _ in range(3):
            x = t.arange(5.0)
            with pytest.raises(RuntimeError, match="single memory location"):
                x[1:].add_(x[:-1], alpha=2)
            assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


#: numbers of one type, of which some do not fit, in an order that lets plans be known before
NUMBERS = (1.0, 0.5, -1.5, float("nan"), float("inf"), 1e30, 16777217.0, 0.5, float("-inf"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "bool", "float32"])
@pytest.mark.parametrize("call", [
    "x.fill_(k)", "x.fill_(value=k)", "x.masked_fill_(m, k)", "x.masked_fill(m, k)",
    "x.masked_fill_(mask=m, value=k)", "x.__setitem__(0, k)", "x.__setitem__(j, k)",
    "x.__setitem__(m, k)", "x.index_fill_(0, j, k)", "x.index_fill(0, j, k)"])
def test_floats_that_do_not_fit_are_refused_each_time(call, dtype):
    for k in NUMBERS:
        outcomes = []
        for lib in (torch, flambeau):
            x = lib.tensor([1, 0, 3]).to(getattr(lib, dtype))
            names = {"x": x, "k": k, "m": lib.tensor([True, False, True]), "j": lib.tensor([0, 2])}
            try:
                found = eval(call, names)
                outcomes.append(str((x if found is None else found).tolist()))
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1], (call, k)
