"""Sizes, dimensions and numbers that numpy has computed are taken wherever Python's are."""

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F

ones = torch.ones
CALLS = {
    "ones":        lambda n: ones(n(2)),
    "zeros":       lambda n: torch.zeros(n(2), n(3)),
    "empty":       lambda n: torch.empty(n(2)).fill_(1),
    "randn":       lambda n: torch.randn(n(2)) * 0,
    "rand":        lambda n: torch.rand(n(3)) * 0,
    "eye":         lambda n: torch.eye(n(2), n(3)),
    "full":        lambda n: torch.full((n(2),), n(3)),
    "arange":      lambda n: torch.arange(n(1), n(5), n(2)),
    "new_zeros":   lambda n: ones(2).new_zeros(n(2)),
    "view":        lambda n: ones(4).view(n(-1)),
    "reshape":     lambda n: ones(4).reshape(n(2), n(-1)),
    "expand":      lambda n: ones(1).expand(n(3)),
    "repeat":      lambda n: ones(1).repeat(n(3)),
    "narrow":      lambda n: ones(4).narrow(n(0), n(1), n(2)),
    "select":      lambda n: ones(4).select(n(0), n(1)),
    "squeeze":     lambda n: ones(1, 4).squeeze(n(0)),
    "unsqueeze":   lambda n: ones(2).unsqueeze(n(1)),
    "transpose":   lambda n: ones(2, 3).transpose(n(0), n(1)),
    "movedim":     lambda n: ones(4, 1).movedim(n(0), n(1)),
    "diagonal":    lambda n: ones(2, 2).diagonal(n(1)),
    "diag":        lambda n: torch.diag(ones(2), n(1)),
    "tril":        lambda n: ones(2, 2).tril(n(-1)),
    "chunk":       lambda n: ones(4).chunk(n(2))[0],
    "split":       lambda n: ones(5).split(n(2))[2],
    "tensor_split": lambda n: ones(5).tensor_split(n(2))[1],
    "vsplit":      lambda n: ones(4, 1).vsplit(n(2))[1],
    "roll":        lambda n: torch.arange(4).roll(n(1)),
    "sum":         lambda n: ones(2, 3).sum(n(1)),
    "mean":        lambda n: ones(2, 3).mean(dim=n(1)),
    "argmax":      lambda n: ones(2, 3).argmax(n(1)),
    "cumsum":      lambda n: ones(3).cumsum(n(0)),
    "softmax":     lambda n: ones(2).softmax(n(0)),
    "one_hot":     lambda n: F.one_hot(torch.tensor([1]), n(3)),
    "pad":         lambda n: F.pad(ones(2), (n(1), n(1))),
    "slices":      lambda n: torch.arange(5)[n(1):n(4):n(2)],
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_numpy_integers(name):
    found = CALLS[name](np.int64)
    assert {type(size) for size in (*found.shape, *found.stride())} <= {int}
    assert torch.equal(found, CALLS[name](int))
    assert torch.equal(CALLS[name](np.int32), found)


def test_gradients_along_such_a_dimension():
    x = ones(2, 3, requires_grad=True)
    (x.sum(np.int64(1)) ** 2).sum().backward()
    x.prod(np.int64(0)).sum().backward()
    assert x.grad.tolist() == [[7.0] * 3] * 2


def test_a_tensor_names_a_dimension():
    assert ones(2, 3).sum(torch.tensor(0)).tolist() == [2, 2, 2]
    with pytest.raises(TypeError, match="argument 'dim'"):
        ones(2, 3).sum(torch.tensor(0.5))


def test_sizes_of_any_integers():
    assert torch.Size(torch.tensor([1, 2])) == torch.Size(np.array([1, 2])) == (1, 2)
    assert {type(n) for n in torch.Size(np.array([1, 2]))} == {int}


def test_text_is_still_refused():
    with pytest.raises(TypeError, match="split_sizes"):
        ones(4).split("a")
