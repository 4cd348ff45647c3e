"""Views share memory and history; what cannot be a view is a copy, or refused."""

import copy
import pickle

import numpy as np
import pytest

import flambeau as torch


def numbers(*shape):
    count = int(np.prod(shape))
    return torch.arange(count, dtype=torch.float64).reshape(*shape).clone()


SHARING = {
    "view":        lambda x: x.view(4, 6),
    "reshape":     lambda x: x.reshape(-1),
    "flatten":     lambda x: x.flatten(1),
    "transpose":   lambda x: x.transpose(0, 2),
    "permute":     lambda x: x.permute(2, 0, 1),
    "unsqueeze":   lambda x: x.unsqueeze(1),
    "select":      lambda x: x.select(1, -1),
    "narrow":      lambda x: x.narrow(2, 1, 2),
    "slice":       lambda x: x[:, 1:, ::2],
    "expand":      lambda x: x.unsqueeze(0).expand(5, -1, -1, -1),
    "diagonal":    lambda x: x.diagonal(1, 1, 2),
    "unfold":      lambda x: x.unfold(2, 3, 1),
    "as_strided":  lambda x: x.as_strided((3, 3), (2, 3), 1),
    "movedim":     lambda x: x.movedim(0, -1),
    "unflatten":   lambda x: x.unflatten(2, (2, 2)),
    "swapaxes":    lambda x: x.swapaxes(0, 1),
    "mT":          lambda x: x.mT,
    "split":       lambda x: x.split([1, 2], 1)[1],
    "chunk":       lambda x: x.chunk(2, 2)[1],
    "unbind":      lambda x: x.unbind(1)[2],
    "squeeze":     lambda x: x[:, :1].squeeze(1),
    "view_dtype":  lambda x: x.view(torch.int64),
}


@pytest.mark.parametrize("name", SHARING)
def test_a_view_shares_memory_with_its_base(name):
    x = numbers(2, 3, 4)
    y = SHARING[name](x)
    assert y._base is x
    before = np.array(y.numpy())
    x.mul_(2)
    assert not np.array_equal(y.numpy(), before)


@pytest.mark.parametrize("name", [n for n in SHARING if n != "view_dtype"])
def test_the_gradient_of_a_view_is_the_sum_over_where_it_looked(name):
    x = numbers(2, 3, 4).requires_grad_()
    y = SHARING[name](x)
    weights = torch.arange(y.numel(), dtype=torch.float64).reshape(y.shape)
    (g,) = torch.autograd.grad(y, x, weights, create_graph=False)
    places = SHARING[name](torch.arange(24, dtype=torch.float64).reshape(2, 3, 4))
    wanted = np.zeros(24)
    np.add.at(wanted, places.numpy().astype(int).ravel(), weights.numpy().ravel())
    np.testing.assert_allclose(g.numpy().ravel(), wanted)


@pytest.mark.parametrize("name", [n for n in SHARING if n != "view_dtype"])
def test_a_view_can_be_differentiated_twice(name):
    x = numbers(2, 3, 4).requires_grad_()
    y = SHARING[name](x)
    (g,) = torch.autograd.grad((y * y * y).sum(), x, create_graph=True)
    (gg,) = torch.autograd.grad(g.sum(), x)
    places = SHARING[name](torch.arange(24, dtype=torch.float64).reshape(2, 3, 4))
    count = np.bincount(places.numpy().astype(int).ravel(), minlength=24)
    np.testing.assert_allclose(gg.numpy().ravel(), 6 * np.arange(24) * count)


def test_reshape_copies_only_where_strides_do_not_allow_a_view():
    x = numbers(3, 4)
    assert x.reshape(4, 3).data_ptr() == x.data_ptr()
    assert x.t().reshape(12).data_ptr() != x.data_ptr()
    np.testing.assert_array_equal(x.t().reshape(12).numpy(), x.numpy().T.ravel())
    with pytest.raises(RuntimeError, match="not compatible"):
        x.t().view(12)


def test_loose_sizes_and_sequences_are_the_same():
    x = numbers(2, 3)
    assert x.view(3, 2).shape == x.view((3, 2)).shape == x.view([3, 2]).shape == (3, 2)
    assert x.permute(1, 0).shape == x.permute([1, 0]).shape == torch.permute(x, (1, 0)).shape
    assert x.expand(4, 2, 3).shape == x.expand((4, 2, 3)).shape == x.expand(size=(4, 2, 3)).shape


REFUSED = {
    "view size":     (RuntimeError, lambda x: x.view(5)),
    "two holes":     (RuntimeError, lambda x: x.view(-1, -1)),
    "expand":        (RuntimeError, lambda x: x.expand(3, 3)),
    "dimension":     (IndexError, lambda x: x.transpose(0, 2)),
    "select":        (IndexError, lambda x: x.select(0, 2)),
    "narrow":        (RuntimeError, lambda x: x.narrow(1, 2, 2)),
    "permute twice": (RuntimeError, lambda x: x.permute(0, 0)),
    "t of 3-d":      (RuntimeError, lambda x: x.unsqueeze(0).t()),
    "split":         (RuntimeError, lambda x: x.split([1, 1], 1)),
    "as_strided":    (RuntimeError, lambda x: x.as_strided((1000,), (1,))),
    "no tensor":     (TypeError, lambda x: torch.transpose([1], 0, 0)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name):
    error, call = REFUSED[name]
    with pytest.raises(error):
        call(numbers(2, 3))


def test_metadata_changes_in_place():
    x = numbers(1, 2, 3)
    assert x.squeeze_(0).shape == (2, 3) and x.t_().shape == (3, 2)
    assert x.unsqueeze_(1).shape == (3, 1, 2) and x.transpose_(0, 2).shape == (2, 1, 3)
    y = torch.zeros(2)
    assert y.resize_(3, 4).shape == (3, 4)
    assert torch.zeros(0, dtype=torch.float64).set_(x).data_ptr() == x.data_ptr()


def test_a_view_as_another_dtype_reads_the_same_bytes():
    x = torch.tensor([1.0, -2.0])
    assert x.view(torch.int32).tolist() == np.array([1, -2], np.float32).view(np.int32).tolist()
    assert x.view(torch.uint8).shape == (8,)
    assert x.view(torch.float64).shape == (1,)
    with pytest.raises(RuntimeError):
        torch.zeros(3).view(torch.float64)


def test_parts_of_complex_numbers_are_views():
    z = torch.zeros(2, dtype=torch.complex64)
    z.real[:] = torch.tensor([1.0, 2.0])
    z.imag = torch.tensor([3.0, 4.0])
    assert z.tolist() == [1 + 3j, 2 + 4j]


def test_detach_is_no_part_of_the_graph():
    w = torch.ones(2, requires_grad=True)
    d = w.detach()
    d.add_(1)
    assert not d.requires_grad and d._base is None and w.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("view", [
    lambda x: x.as_strided((7,), (1,)),
    lambda x: x[1:].as_strided((6,), (1,)),
    lambda x: x.as_strided((2, 2), (3, 4)),
    lambda x: x.as_strided((1,), (1,), 6),
    lambda x: x.as_strided_((7,), (1,)),
    lambda x: x.view(2, 3).t().as_strided((7,), (1,), 0),
])
def test_as_strided_stays_within_the_storage(view):
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 24"):
        view(torch.ones(6))


@pytest.mark.parametrize("part", [
    lambda x: x[:2],
    lambda x: x[2:4].detach(),
    lambda x: x[:2].data,
    lambda x: x.resize_(2),
    lambda x: x.as_strided_((2,), (1,)),
    lambda x: torch.empty(0).set_(x.untyped_storage(), 0, (2,)),
    lambda x: copy.deepcopy(x[:2]),
    lambda x: pickle.loads(pickle.dumps(x[:2])),
    lambda x: torch.nn.Parameter(x[2:4]).data,
])
def test_a_part_may_be_strided_over_all_of_its_storage(part):
    x = part(torch.arange(6.0))
    assert x.untyped_storage().nbytes() == 24
    assert x.as_strided((6,), (1,), 0).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(RuntimeError, match="requiring a storage size of 28"):
        x.as_strided((7,), (1,), 0)


def test_offsets_of_as_strided_scatter_count_from_the_start_of_the_storage():
    x = torch.arange(10)[2:5]
    assert x.as_strided_scatter(torch.zeros(2, dtype=torch.int64), (2,), (1,), 3).tolist() == [
        2, 0, 0]


def test_cuts_met_before_are_what_they_were():
    x = torch.arange(24.0).reshape(4, 6).clone().requires_grad_()
    for _ in range(3):
        for found, sizes in ((x.chunk(3, 1), [2, 2, 2]), (x.chunk(4, -1), [2, 2, 2]),
                             (x.split(4, 1), [4, 2]), (x.split(3), [3, 1]), (x.chunk(3), [2, 2]),
                             (torch.zeros(0, 2).chunk(3), [0, 0, 0])):
            assert [p.size(0 if p.size(1) in (2, 6) and len(p) < 4 else 1) for p in found] == sizes
        first, second = x.chunk(2)
        assert first.grad_fn.name() == "SplitBackward0" and second._base is x
        (first * 2 + second).sum().backward()
        with pytest.raises(RuntimeError):
            x.chunk(0)
        with pytest.raises((TypeError, RuntimeError)):
            x.split(-1)
        with pytest.raises(IndexError):
            x.chunk(2, 2)
    assert x.grad.tolist() == [[6.0] * 6] * 2 + [[3.0] * 6] * 2
    y = torch.zeros(4)
    y.split(2)[1].add_(1)
    assert y.tolist() == [0, 0, 1, 1]


def test_equal_and_triangles_met_before():
    nan = float("nan")
    x, y, z = torch.ones(3, 4), torch.ones(3, 4), torch.full((3, 4), nan)
    zero, minus = torch.zeros(5), -torch.zeros(5)
    for _ in range(3):
        assert torch.equal(x, y) and torch.equal(x, x) and not torch.equal(z, z)
        assert torch.equal(zero, minus) and not torch.equal(x, zero)
        assert torch.equal(x.t(), y.t()) and torch.equal(x.long(), y.long())
        y[2, 3] = 2
        assert not torch.equal(x, y) and not x.equal(y)
        y[2, 3] = 1
        assert x.tril().sum() == 6 and x.triu(1).sum() == 6 and x.tril(diagonal=-1).sum() == 3
        assert x.tril(1).sum() == 9 and x.triu(-1).sum() == 11
    w = torch.ones(2, 2, requires_grad=True)
    for _ in range(2):
        torch.triu(w).sum().backward()
    assert w.grad.tolist() == [[2, 2], [0, 2]]
    with torch.no_grad():
        assert not torch.triu(w).requires_grad
