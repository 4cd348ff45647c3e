"""Changing a view changes its base, and every other view of it, and all their gradients."""

import numpy as np
import pytest

import flambeau as torch


def difference(f, *inputs, eps=1e-6):
    """Gradients of a scalar function by central differences."""
    found = []
    for k, x in enumerate(inputs):
        g = np.zeros(x.shape)
        for place in np.ndindex(*x.shape):
            values = []
            for sign in (1, -1):
                moved = [np.array(i) for i in inputs]
                moved[k][place] += sign * eps
                with torch.no_grad():
                    values.append(f(*[torch.tensor(m) for m in moved]).item())
            g[place] = (values[0] - values[1]) / (2 * eps)
        found.append(g)
    return found


def in_row(a, w):
    b = a * 2
    b[0].mul_(w)
    return (b * b).sum()


def assigned(a, w):
    b = a * a
    b[1] = w * 2
    return (b * b * b).sum()


def sibling(a, w):
    b = a * 1
    left, right = b[:, :2], b[:, 1:]
    left.mul_(w[:2])
    return (right * right).sum()


def view_of_view(a, w):
    b = a * 1
    v = b[:, ::2][1]
    v.add_(w[:2])
    v.mul_(v.detach() * 0 + 3)
    return (b * b).sum()


def base_changed(a, w):
    b = a * 1
    v = b[1]
    b.mul_(w)
    return (v * v).sum()


def transposed(a, w):
    b = a * 1
    b.t()[0].mul_(w[0])
    return (b * b).sum()


def copied(a, w):
    b = a * 1
    b[1:].copy_(w)
    return (b * b * b).sum()


def by_mask(a, w):
    b = a * 2
    b[torch.tensor([True, False])] = w
    return (b * b).sum()


def by_list(a, w):
    b = a * 2
    b[[1, 0], [0, 2]] = w[:2]
    return (b * b * b).sum()


def added_by_list(a, w):
    b = a * 2
    b.index_put_((torch.tensor([0, 0, 1]),), w, accumulate=True)
    return (b * b).sum()


def augmented(a, w):
    b = a * 2
    b[:, 1] += w[:2]
    b[0, 0] *= w[2]
    return (b * b).sum()


def buffer(a, w):
    rows = torch.zeros(2, 3, dtype=torch.float64)
    seen = rows[0]
    rows[0] = a[0] * w
    rows[1] = a[1] + w
    return (rows * rows).sum() + (seen * w).sum()


def selected(a, w):
    b = a * 1
    b.select(1, 1).copy_(w[:2])
    b.diagonal().mul_(w[1])
    return (b * b).sum()


CASES = [in_row, assigned, sibling, view_of_view, base_changed, transposed, copied, by_mask,
         by_list, added_by_list, augmented, buffer, selected]


@pytest.mark.parametrize("f", CASES, ids=lambda f: f.__name__)
def test_gradients_through_changed_views(f):
    given = (np.array([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7]]), np.array([1.2, -0.4, 0.9]))
    inputs = [torch.tensor(v, requires_grad=True) for v in given]
    f(*inputs).backward()
    for x, wanted in zip(inputs, difference(f, *given), strict=True):
        np.testing.assert_allclose(x.grad.numpy(), wanted, atol=1e-7)


@pytest.mark.parametrize("f", CASES, ids=lambda f: f.__name__)
def test_second_gradients_through_changed_views(f):
    given = (np.array([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7]]), np.array([1.2, -0.4, 0.9]))

    def slope(*values):
        inputs = [torch.tensor(v.detach().numpy(), requires_grad=True) for v in values]
        with torch.enable_grad():
            grads = torch.autograd.grad(f(*inputs), inputs)
        return sum((g * g).sum() for g in grads)

    inputs = [torch.tensor(v, requires_grad=True) for v in given]
    grads = torch.autograd.grad(f(*inputs), inputs, create_graph=True)
    sum((g * g).sum() for g in grads).backward()
    for x, wanted in zip(inputs, difference(slope, *given), strict=True):
        np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_the_view_shows_what_happened():
    a = torch.ones(2, 2, requires_grad=True)
    b = a * 1
    v = b[0]
    v.mul_(2)
    assert b.grad_fn.name() == "torch::autograd::CopySlices" and v.tolist() == [2.0, 2.0]
    assert b.tolist() == [[2.0, 2.0], [1.0, 1.0]]


@pytest.mark.parametrize("change", [lambda w: w.mul_(2), lambda w: w[0].mul_(2),
                                    lambda w: w.__setitem__(0, 1.0)])
def test_leaves_that_want_gradients_are_not_changed(change):
    w = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        change(w)
    with torch.no_grad():
        change(w)
    assert w.is_leaf and w.requires_grad


def test_a_kept_tensor_that_was_changed_through_a_view_is_noticed():
    a = torch.ones(3, requires_grad=True)
    b = a.exp()
    b[0] = 5.0
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        b.sum().backward()


def test_elements_that_share_a_place_are_not_written():
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1).expand(3).add_(1)


# -- views of one tensor, one written from the other -----------------------------------------------

#: (written, read): two tensors, or twice the same
BETWEEN_VIEWS = {
    "columns": lambda w, r: w[:, 2:].add_(r[:, :2]),
    "columns, scaled": lambda w, r: w[:, 2:].mul_(r[:, :2]),
    "every other": lambda w, r: w[:, ::2].sub_(r[:, 1::2]),
    "wide from narrow": lambda w, r: w[:, 1:].add_(r[:, :1]),
    "out=": lambda w, r: torch.mul(r[:, :2], 3, out=w[:, 2:]),
    "two at once": lambda w, r: w[:, :2].addcmul_(r[:, 2:], r[:, 2:], value=0.5),
}


@pytest.mark.parametrize("name", BETWEEN_VIEWS)
@pytest.mark.parametrize("rows", [2, 3, 20])
def test_views_that_share_memory_but_no_element(name, rows):
    x = torch.arange(4.0 * rows).view(rows, 4)
    wanted = x.clone()
    BETWEEN_VIEWS[name](wanted, x.clone())
    BETWEEN_VIEWS[name](x, x)
    assert torch.equal(x, wanted)


def test_gradient_of_a_view_written_from_another():
    x = torch.arange(1.0, 13.0).view(3, 4).requires_grad_()
    y = x * 1
    y[:, 2:] *= y[:, :2]
    y.sum().backward()
    left, right = x.detach()[:, :2], x.detach()[:, 2:]
    assert torch.equal(x.grad, torch.cat([1 + right, left], 1))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.float16])
def test_copies_convert_to_what_is_written(dtype):
    x = torch.tensor([-2.7, 0.0, 1.5])
    wanted = x.to(dtype)
    assert torch.equal(torch.zeros(3, dtype=dtype).copy_(x), wanted)
    columns = torch.zeros(3, 2, dtype=dtype)
    columns[:, 1] = x
    assert torch.equal(columns[:, 1], wanted) and not columns[:, 0].any()


# -- results that were put together inside an op ---------------------------------------------------


@pytest.mark.parametrize("layer", [
    torch.nn.GroupNorm(2, 4), torch.nn.InstanceNorm2d(4, affine=True), torch.nn.BatchNorm2d(4)])
def test_what_a_layer_returns_can_be_changed_in_place(layer):
    """Its memory may have been another tensor's inside; the graph knows the result only."""
    x = torch.randn(2, 4, 3, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(torch.relu(layer(x)).square().sum(), x)
    y = layer(x)
    y.relu_()
    assert torch.autograd.grad(y.square().sum(), x)[0].allclose(expected)


# -- the same change again -------------------------------------------------------------------------


def test_changes_made_again_and_again():
    """The second change by the same op goes a shorter way, with the same checks."""
    x, y = torch.ones(4), torch.full((4,), 2.0)
    for k in range(1, 5):
        assert x.add_(y) is x and x._version == 2 * k - 1
        assert x.mul_(0.5) is x and x._version == 2 * k
    assert x.tolist() == [1.9375] * 4
    with pytest.raises(RuntimeError, match="single memory location"):
        x[1:].add_(x[:-1])  # parts of one memory
    leaf = torch.ones(4, requires_grad=True)
    with torch.no_grad():
        leaf.add_(y).add_(leaf)
        part = leaf[:2]
    assert leaf.tolist() == [6.0] * 4
    for changed in (leaf, part):
        with pytest.raises(RuntimeError, match="in-place operation"):
            changed.add_(changed.detach().clone())
    z = (leaf * 1.0)
    z.add_(y).mul_(y)
    z.sum().backward()
    assert leaf.grad.tolist() == [2.0] * 4
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(2, dtype=torch.int64).add_(torch.ones(2))
    with pytest.raises(RuntimeError, match="doesn't match the broadcast"):
        torch.ones(2).add_(torch.ones(3, 2))


@pytest.mark.parametrize("again", range(3))
def test_a_form_in_place_is_found_again(again):
    """The first call plans, later ones run natively: each means the same."""
    x, other = torch.ones(2, 3), torch.full((3,), 2.0)
    for _ in range(3):
        x.fill_(1).add_(other).mul_(2.0).neg_()
        x[0].zero_()
        x[1].copy_(other)
    assert x.tolist() == [[0.0] * 3, [2.0] * 3]
    assert x._version == 18


def test_a_form_in_place_refuses_what_it_cannot_take():
    x, leaf = torch.ones(3), torch.ones(3, requires_grad=True)
    for _ in range(3):
        x.add_(1).zero_()
        for call in (lambda: x.add_(), lambda: x.zero_(1), lambda: x.fill_(), lambda: x.add_("1")):
            with pytest.raises(TypeError):
                call()
        for change in (leaf.zero_, leaf[1:].zero_, lambda: leaf.copy_(x)):
            with pytest.raises(RuntimeError, match="leaf"):
                change()
        with torch.no_grad():
            leaf.add_(1).zero_()
    assert leaf._version == 6


def test_a_change_in_place_names_its_line():
    kept = torch.ones(3)
    for _ in range(2):
        out = kept * torch.ones(3, requires_grad=True)
        kept.add_(1)
        with pytest.raises(RuntimeError, match=r"test_inplace_views\.py:\d+, in test_a_change"):
            out.sum().backward()
