"""torch's functions on lists of tensors, under the names and with the refusals that PyTorch has."""

from __future__ import annotations

import numpy
import pytest

import flambeau

torch = pytest.importorskip("torch")

#: what follows "_foreach_", over lists xs, ys and zs, a list of integers, and a 0-d tensor
CALLS = """
add_(xs, ys) | add(xs, 2) | add(xs, [1, 2.]) | add(xs, ys, alpha=2) | add(xs, scalar, alpha=2)
add(xs, scalar) | add(xs, 2, alpha=2) | add(xs, foo=1) | add([], 1) | add(xs, ys[:1])
add(xs[0], 1) | add(xs, [1]) | add(self=xs, other=ys) | add(xs, scalar=2) | add(xs, scalars=[1, 2])
add(xs, other=ys, alpha=3) | add(tuple(xs), 1) | addcmul(xs, ys, zs) | addcmul(xs, ys, zs, 2)
addcmul(xs, ys, zs, value=2) | addcmul(xs, ys, zs, [1, 2]) | addcmul(xs, ys, zs, scalars=[1, 2])
addcmul(xs, tensor2=zs, value=2, tensor1=ys) | addcdiv(xs, ys, zs, scalars=pair)
addcdiv_(xs, ys, zs, pair) | addcmul(xs, ys, zs, tensor=pair) | lerp(xs, ys, zs)
lerp(xs, ys, weight=.5) | lerp_(xs, weight=.5, tensors1=ys) | lerp(xs, ys, weights=zs)
maximum(xs, ys) | maximum_(xs, [0, 1.]) | clamp_min(xs, 0) | clamp_max_(xs, ys) | max(xs) | norm(xs)
norm(xs, float("inf")) | norm(xs, ord=1) | pow(xs, [1, 2]) | pow(2, xs) | pow_(xs, exponent=2)
copy_(xs, ys) | copy_(xs, integers) | zero_(xs) | neg(xs) | neg(iter(xs)) | neg([1, 2]) | neg([])
div(integers, 2) | div_(integers, 2) | mul(integers, xs) | mul_(integers, xs) | sub_(xs, [1, 2])
sub(xs, 2, alpha=2) | mul(xs, ys, alpha=2) | add(xs, "a") | clone(xs) | norm([]) | neg(xs, 1)
""".strip().replace("\n", " | ").split(" | ")


def _outcome(lib, call):
    numbers = numpy.random.default_rng(0).random((3, 2, 3)).astype("f4")
    xs, ys, zs = [[lib.tensor(row) for row in part] for part in numbers]
    integers = [lib.tensor([1, 2, 3]) for _ in xs]
    names = {"xs": xs, "ys": ys, "zs": zs, "integers": integers, "scalar": lib.tensor(2.0),
             "pair": lib.tensor([1.0, 2.0]), "torch": lib}
    try:
        found = eval(f"torch._foreach_{call}", names)
    except (RuntimeError, TypeError) as error:
        return type(error), []
    lists = [found, xs, integers]
    return type(found), [(str(x.dtype), x.double().numpy()) for each in lists for x in each]


@pytest.mark.parametrize("call", CALLS)
def test_lists_are_those_of_torch(call):
    (kind, theirs), (own_kind, ours) = _outcome(torch, call), _outcome(flambeau, call)
    assert own_kind is kind
    assert [dtype for dtype, _ in ours] == [dtype for dtype, _ in theirs]
    for (_, x), (_, y) in zip(ours, theirs, strict=True):
        numpy.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
