"""Fetching and joining twice: the first call plans, the second takes the quick way."""

import numpy as np
import pytest

import flambeau as fl

F = fl.nn.functional


def draw(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def twice(call):
    first, second = call(), call()
    assert fl.equal(first, second) and first.sig is second.sig
    return second.detach().numpy()


@pytest.mark.parametrize("pad", [(1, 2), (0, 3, 1, 0), (-1, 2), (2, -3, -1, 1), (0, 0, 0, 0, 2, 1),
                                 (-2, -1), (1, 1, 1, 1, 1, 1)])
def test_constant_borders(pad):
    x = draw(3, 4, 5)
    found = twice(lambda: F.pad(fl.tensor(x), pad, value=2.5))
    pairs = [(0, 0)] * (3 - len(pad) // 2) + [pad[k:k + 2] for k in range(len(pad) - 2, -1, -2)]
    wanted = np.pad(x, [(max(a, 0), max(b, 0)) for a, b in pairs], constant_values=2.5)
    cut = tuple(slice(max(-a, 0), n - max(-b, 0))
                for (a, b), n in zip(pairs, wanted.shape, strict=True))
    np.testing.assert_array_equal(found, wanted[cut])


def test_borders_of_views_and_their_gradient():
    x = fl.tensor(draw(4, 6), requires_grad=True)
    for _ in range(2):
        x.grad = None
        out = F.pad(x.t()[1:], (1, 2, -1, 1), value=3)
        assert out.shape == (5, 7) and (out[-1] == 3).all()
        out.backward(fl.arange(35.0, dtype=fl.float64).view(5, 7))
        wanted = np.zeros((4, 6))
        wanted[:, 2:] = np.arange(35.0).reshape(5, 7)[:4, 1:5].T
        np.testing.assert_array_equal(x.grad.numpy(), wanted)


@pytest.mark.parametrize("dtype", [fl.int64, fl.int32])
def test_embedding(dtype):
    weight = fl.tensor(draw(5, 3), requires_grad=True)
    places = fl.tensor([[0, 4, 2], [2, 2, 1]], dtype=dtype)
    for _ in range(2):
        weight.grad = None
        out = F.embedding(places, weight, padding_idx=-3)
        np.testing.assert_array_equal(out.detach().numpy(), weight.detach().numpy()[places.numpy()])
        out.backward(fl.ones(2, 3, 3, dtype=fl.float64))
        assert weight.grad[:, 0].tolist() == [1, 1, 0, 0, 1]


@pytest.mark.parametrize("wrong", [-1, 5, 2**40])
def test_indices_out_of_bounds_are_refused_every_time(wrong):
    weight, good = fl.randn(5, 3), fl.zeros(9, dtype=fl.int64)
    bad = good.clone()
    bad[7] = wrong
    calls = (lambda i: F.embedding(i, weight), lambda i: weight.index_select(0, i),
             lambda i: fl.gather(weight, 0, i[:, None]))
    for call in calls:
        for _ in range(2):
            call(good)
            with pytest.raises((IndexError, RuntimeError), match="out of"):
                call(bad)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_and_index_select(dim):
    x, axis = draw(4, 5), dim % 2
    places = np.random.default_rng(1).integers(0, 4, (4, 5))
    found = twice(lambda: fl.gather(fl.tensor(x), dim, fl.tensor(places)))
    np.testing.assert_array_equal(found, np.take_along_axis(x, places, axis))
    found = twice(lambda: fl.tensor(x).index_select(dim, fl.tensor(places[0])))
    np.testing.assert_array_equal(found, x.take(places[0], axis))


def test_gradients_and_their_gradients():
    x = fl.tensor(draw(4, 3), requires_grad=True)
    places = fl.tensor([[1, 0, 3], [1, 1, 2]])
    for _ in range(2):
        assert fl.autograd.gradgradcheck(lambda x: fl.gather(x, 0, places) ** 2, (x,))
        assert fl.autograd.gradgradcheck(lambda x: F.embedding(places, x) ** 2, (x,))
        assert fl.autograd.gradgradcheck(lambda x: x.index_select(1, places[0, :2]) ** 2, (x,))
        assert fl.autograd.gradgradcheck(lambda x: fl.cat([x, x * 2], 1) ** 2, (x,))
        assert fl.autograd.gradgradcheck(lambda x: F.pad(x, (1, -1)) ** 2, (x,))


def test_joins():
    a, b = draw(2, 3), draw(2, 3)
    tensors = [fl.tensor(a), fl.tensor(b)]
    for dim in (0, 1, -1):
        for ours, theirs in ((fl.cat, np.concatenate), (fl.stack, np.stack)):
            found = twice(lambda dim=dim, ours=ours: ours(tensors, dim))
            np.testing.assert_array_equal(found, theirs([a, b], dim))
    out = fl.empty(4, 3, dtype=fl.float64)
    assert fl.cat(tensors, out=out) is out and fl.equal(out, fl.cat(tensors=tensors, dim=0))
    half = fl.tensor(b, requires_grad=True)
    for _ in range(2):
        half.grad = None
        fl.cat((tensors[0], half)).sum().backward()
        assert (half.grad == 1).all()
    with pytest.raises(TypeError):
        fl.cat(tensors[0])
    with pytest.raises(RuntimeError):
        fl.cat([tensors[0], fl.zeros(2, 4)])


def test_joins_of_long_rows():
    a, b, c = draw(3, 40), draw(3, 70), draw(3, 1)
    for dtype in (np.float64, np.float32, np.uint8):
        parts = [x.astype(dtype) for x in (a, b, c)]
        tensors = [fl.tensor(p) for p in parts]
        np.testing.assert_array_equal(twice(lambda t=tensors: fl.cat(t, 1)),
                                      np.concatenate(parts, 1))
    many = [np.arange(n, dtype=np.int64) for n in (300_000, 5)]
    np.testing.assert_array_equal(twice(lambda: fl.cat([fl.tensor(m) for m in many])),
                                  np.concatenate(many))


def test_a_change_of_the_index_is_noticed():
    x, places = fl.randn(4, 2, requires_grad=True), fl.tensor([0, 1])
    for _ in range(2):
        out = x.index_select(0, places)
        places.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            out.sum().backward()
        places.sub_(1)


# -- lookups that add to one table's gradient ------------------------------------------------------


def lookups(table, **options):
    """Several of one shape, so that all but the first take the quick way."""
    places = [fl.tensor([[k, 1], [1, 2]]) for k in (0, 3, 0, 2)]
    return [F.embedding(p, table, **options) * (k + 1) for k, p in enumerate(places)]


def expected_gradient():
    wanted = np.zeros((5, 3))
    for k, first in enumerate((0, 3, 0, 2)):
        for place in (first, 1, 1, 2):
            wanted[place] += k + 1
    return wanted


def test_lookups_add_up_in_the_gradient_of_a_leaf():
    table = fl.tensor(draw(5, 3), requires_grad=True)
    total = sum(out.sum() for out in lookups(table))
    total.backward(retain_graph=True)
    np.testing.assert_array_equal(table.grad.numpy(), expected_gradient())
    held = table.grad
    total.backward()
    assert table.grad is held  # added to, not replaced
    np.testing.assert_array_equal(held.numpy(), 2 * expected_gradient())
    table.grad = fl.ones(5, 3, dtype=fl.float64)
    sum(out.sum() for out in lookups(table)).backward()
    np.testing.assert_array_equal(table.grad.numpy(), 1 + expected_gradient())


def test_lookups_seen_by_hooks_and_asked_for_by_grad():
    table, seen = fl.tensor(draw(5, 3), requires_grad=True), []
    table.register_hook(lambda g: seen.append(g.clone()))
    sum(out.sum() for out in lookups(table)).backward()
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0].numpy(), expected_gradient())
    np.testing.assert_array_equal(table.grad.numpy(), expected_gradient())
    (found,) = fl.autograd.grad(sum(out.sum() for out in lookups(table)), table)
    np.testing.assert_array_equal(found.numpy(), expected_gradient())
    np.testing.assert_array_equal(table.grad.numpy(), expected_gradient())


def test_lookups_differentiated_twice_and_in_a_computed_table():
    table = fl.tensor(draw(5, 3), requires_grad=True)
    (first,) = fl.autograd.grad(sum(out.pow(3).sum() for out in lookups(table)), table,
                                create_graph=True)
    (second,) = fl.autograd.grad(first.sum(), table)
    counts = np.zeros((5, 1))
    for k, place in enumerate((0, 3, 0, 2)):
        for each in (place, 1, 1, 2):
            counts[each] += (k + 1) ** 3
    np.testing.assert_allclose(second.numpy(), 6 * counts * table.detach().numpy(), rtol=1e-12)
    sum(out.sum() for out in lookups(table * 2)).backward()
    np.testing.assert_array_equal(table.grad.numpy(), 2 * expected_gradient())


@pytest.mark.parametrize("options", [{"padding_idx": 1}, {"scale_grad_by_freq": True}])
def test_lookups_with_options_take_the_formula(options):
    found = []
    for _ in range(2):
        table = fl.tensor(draw(5, 3), requires_grad=True)
        sum(out.sum() for out in lookups(table, **options)).backward()
        found.append(table.grad.numpy())
    np.testing.assert_array_equal(*found)
    assert (found[0][1] == 0).all() == ("padding_idx" in options)


#: widths of rows on both sides of every vector that copies them
WIDTHS = (*range(1, 20), 31, 32, 33, 63, 64, 65, 127, 128, 129, 300)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
def test_rows_of_every_width(dtype):
    for width in WIDTHS:
        x = (100 * draw(40, width + 2)).astype(dtype)
        numbers = np.random.default_rng(1).integers(0, 40, 50)
        for kind in (np.int64, np.int32):
            index = fl.tensor(numbers.astype(kind))
            for whole, array in ((fl.tensor(x), x), (fl.tensor(x)[:, 1:-1], x[:, 1:-1])):
                found = twice(lambda w=whole, i=index: fl.index_select(w, 0, i))
                np.testing.assert_array_equal(found, array[numbers])
        rest = x[:, :width]
        joined = twice(lambda a=x, b=rest: fl.cat((fl.tensor(a), fl.tensor(b)), 1))
        np.testing.assert_array_equal(joined, np.concatenate((x, rest), 1))


def test_what_eager_calls_have_planned_is_traced_all_the_same():
    F = fl.nn.functional

    def work(x, y, i, lab):
        deposit = fl.zeros(16, 10).scatter_(1, lab[:, None], 1.0)
        first, second = x.chunk(2)
        found = [x[i], x[i, i], deposit, F.one_hot(lab, 10), fl.einsum("ij,kj->ik", x, y),
                 first * second, F.cosine_similarity(x, y), x.flip(0) * x.roll(1, 0) * x,
                 fl.zeros(16, 32).index_add_(0, i, x[:8]) ** 2, fl.tril(x), x.norm(),
                 F.nll_loss(F.log_softmax(x[:, :10], -1), lab),
                 fl.arange(4) + fl.linspace(0, 1, 4) + fl.eye(4)]
        return sum(f.sum() for f in found) * (1.0 if fl.equal(x, y) else 2.0)

    def given(seed):
        fl.manual_seed(seed)
        return (fl.randn(16, 32), fl.randn(16, 32), fl.randint(0, 16, (8,)),
                fl.randint(0, 10, (16,)))

    for seed in (0, 1):
        work(*given(seed))
    compiled = fl.compile(work)
    for seed in range(5):
        x, *rest = given(seed)
        grads = []
        for f in (work, compiled):
            w = x.clone().requires_grad_()
            f(w, *rest).backward()
            grads.append((f(x, *rest).item(), w.grad))
        assert abs(grads[0][0] - grads[1][0]) < 1e-2
        assert fl.allclose(grads[0][1], grads[1][1], 1e-4, 1e-4)
        assert abs(work(x, x.clone(), *rest[1:]) - compiled(x, x.clone(), *rest[1:])) < 1e-2
    x, y, _, lab = given(0)
    with pytest.raises(IndexError):
        compiled(x, y, fl.full((8,), 99), lab)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_images_that_lie_otherwise_are_sampled_natively(mode, monkeypatch):
    from flambeau.ops import sampling

    fl.manual_seed(3)
    image, grid = fl.randn(2, 3, 7, 9), fl.rand(2, 5, 4, 2) * 2.4 - 1.2
    wanted = F.grid_sample(image, grid, mode=mode, align_corners=False)
    turned = grid.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0)
    monkeypatch.setattr(sampling, "_sampled", None)  # which reads corner by corner
    for x in (image.contiguous(memory_format=fl.channels_last), image[..., :9]):
        found = F.grid_sample(x, turned, mode=mode, align_corners=False)
        assert fl.equal(found, wanted)
