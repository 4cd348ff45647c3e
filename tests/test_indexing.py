"""Indexing reads and writes what numpy's does, and gradients go where elements came from."""

import numpy as np
import pytest

import flambeau as torch


def pair(*shape):
    array = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
    return array.copy(), torch.tensor(array)


MASK = np.array([True, False, True])
KEYS = {
    "integer":          (1,),
    "negative":         (-1,),
    "slice":            (slice(1, None),),
    "step":             (slice(None), slice(None, None, 2)),
    "none":             (None, 0),
    "ellipsis":         (Ellipsis, 1),
    "list":             ([1, 0, 1],),
    "two lists":        ([0, 1], [2, 0]),
    "apart":            ([0, 1], slice(None), [3, 1]),
    "between":          (slice(None), [2, 0], slice(1, 3)),
    "broadcast":        (np.array([[0], [1]]), np.array([[0, 2]])),
    "negative list":    (slice(None), [-1, -3]),
    "mask":             (slice(None), MASK),
    "mask of two":      (np.arange(6).reshape(2, 3) % 2 == 0,),
    "mask and list":    (0, MASK, [0, 1]),
    "mask of all":      (np.arange(24).reshape(2, 3, 4) % 5 == 1,),
    "list then none":   ([0, 1], None, 1),
    "empty list":       ([],),
    "true":             (True, 1),
}


def lifted(key):
    return tuple(torch.tensor(k) if isinstance(k, np.ndarray) else k for k in key)


def numpys(key):
    return tuple(np.array(k, dtype=int) if isinstance(k, list) else k for k in key)


@pytest.mark.parametrize("name", KEYS)
def test_reading(name):
    array, x = pair(2, 3, 4)
    key = numpys(KEYS[name])
    np.testing.assert_array_equal(x[lifted(KEYS[name])].numpy(), array[key])


@pytest.mark.parametrize("name", [n for n in KEYS if n != "empty list"])
def test_writing_a_number_and_a_tensor(name):
    array, x = pair(2, 3, 4)
    x[lifted(KEYS[name])] = -1.0
    array[KEYS[name]] = -1.0
    np.testing.assert_array_equal(x.numpy(), array)
    value = np.arange(array[KEYS[name]].size, dtype=np.float64).reshape(array[KEYS[name]].shape)
    x[lifted(KEYS[name])] = torch.tensor(value)
    array[KEYS[name]] = value
    np.testing.assert_array_equal(x.numpy(), array)


@pytest.mark.parametrize("name", KEYS)
def test_the_gradient_of_reading_counts_how_often(name):
    _, x = pair(2, 3, 4)
    x.requires_grad_()
    (x[lifted(KEYS[name])] * 2).sum().backward()
    wanted = np.zeros((2, 3, 4))
    key = numpys(KEYS[name])
    np.add.at(wanted, key, 2.0)
    np.testing.assert_array_equal(x.grad.numpy(), wanted)


@pytest.mark.parametrize("name", [n for n in KEYS if n != "empty list"])
def test_the_gradient_of_writing_goes_to_the_value(name):
    array, x = pair(2, 3, 4)
    x.requires_grad_()
    y = x * 1
    w = torch.ones(array[KEYS[name]].shape, dtype=torch.float64, requires_grad=True)
    y[lifted(KEYS[name])] = w * 3
    weights = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4)
    (y * weights).sum().backward()
    rest = weights.numpy().copy()
    rest[KEYS[name]] = 0
    np.testing.assert_array_equal(x.grad.numpy(), rest)
    np.testing.assert_array_equal(w.grad.numpy(), 3 * weights.numpy()[KEYS[name]])


REFUSED = {
    "too large":      (IndexError, lambda x: x[2]),
    "too many":       (IndexError, lambda x: x[0, 0, 0]),
    "index tensor":   (IndexError, lambda x: x[torch.tensor([0, 5])]),
    "too negative":   (IndexError, lambda x: x[torch.tensor([-3])]),
    "float":          (IndexError, lambda x: x[1.5]),
    "float tensor":   (IndexError, lambda x: x[torch.tensor([1.0])]),
    "mask shape":     (IndexError, lambda x: x[torch.tensor([True, False, True])]),
    "no broadcast":   (IndexError, lambda x: x[torch.tensor([0, 1]), torch.tensor([0, 1, 2])]),
    "step":           (ValueError, lambda x: x[::-1]),
    "text":           (TypeError, lambda x: x["a"]),
    "value shape":    (RuntimeError, lambda x: x.__setitem__([0, 1], torch.zeros(7))),
    "value":          (TypeError, lambda x: x.__setitem__(0, "a")),
    "gather":         (RuntimeError, lambda x: x.gather(1, torch.tensor([[9]]))),
    "scatter":        (RuntimeError, lambda x: x.scatter(1, torch.tensor([[-1]]), 1.0)),
    "index_select":   (IndexError, lambda x: x.index_select(0, torch.tensor([2]))),
    "index_add":      (IndexError, lambda x: x.index_add(0, torch.tensor([2]), torch.zeros(1, 3))),
    "take":           (IndexError, lambda x: x.take(torch.tensor([6]))),
    "0-d":            (IndexError, lambda x: torch.tensor(1.0)[0]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_places_outside_are_refused_before_anything_is_touched(name):
    error, call = REFUSED[name]
    x = torch.zeros(2, 3)
    with pytest.raises(error):
        call(x)
    assert x.tolist() == [[0.0] * 3] * 2


def test_gather_and_scatter_are_each_others_gradient():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([[0, 3, 3], [1, 1, 1]])
    y = x.gather(1, index)
    np.testing.assert_array_equal(y.detach().numpy(), np.take_along_axis(
        x.detach().numpy()[:2], index.numpy(), 1))
    g = torch.tensor([[1.0, 2, 3], [4, 5, 6]], dtype=torch.float64)
    y.backward(g)
    wanted = torch.zeros(3, 4, dtype=torch.float64).scatter_add_(1, index, g)
    assert x.grad.tolist() == wanted.tolist()
    assert wanted.tolist() == [[1, 0, 0, 5], [0, 15, 0, 0], [0, 0, 0, 0]]


def test_folding_into_places():
    x, index = torch.tensor([10.0, 20.0, 30.0]), torch.tensor([0, 0, 2])
    src = torch.tensor([1.0, 40.0, 3.0])
    found = {r: x.scatter_reduce(0, index, src, r).tolist()
             for r in ("sum", "prod", "mean", "amax", "amin")}
    assert found == {"sum": [51, 20, 33], "prod": [400, 20, 90], "mean": [17, 20, 16.5],
                     "amax": [40, 20, 30], "amin": [1, 20, 3]}
    alone = x.scatter_reduce(0, index, src, "mean", include_self=False)
    assert alone.tolist() == [20.5, 20, 3]


def test_masks():
    x = torch.arange(6.0).reshape(2, 3)
    mask = x > 2
    assert x.masked_select(mask).tolist() == [3, 4, 5]
    assert x.masked_fill(mask, -1).tolist() == [[0, 1, 2], [-1, -1, -1]]
    assert x.masked_scatter(mask, torch.tensor([9.0, 8, 7, 6])).tolist() == [[0, 1, 2], [9, 8, 7]]
    assert mask.nonzero().tolist() == [[1, 0], [1, 1], [1, 2]]
    assert torch.ones(2, dtype=torch.bool).masked_fill(torch.tensor([True, False]), 0).tolist() == [
        False, True]


def test_duplicates_add_up_with_accumulate():
    x = torch.zeros(3)
    x.index_put_((torch.tensor([0, 0, 1]),), torch.tensor([1.0, 2.0, 4.0]), accumulate=True)
    assert x.tolist() == [3, 4, 0]
    spread = torch.tensor([1]).expand(8)  # all lanes write to one place
    y = torch.zeros(3).index_put_((spread,), torch.ones(8), accumulate=True)
    assert y.tolist() == [0, 8, 0]


@pytest.mark.parametrize("times", [3])
def test_known_selections_and_deposits_mean_what_they_meant(times):
    reference = pytest.importorskip("torch")

    def calls(lib):
        lib.manual_seed(0)
        x = lib.arange(96.0).reshape(8, 12)
        i, j = lib.tensor([0, -1, 3]), lib.tensor([[2, 1, -3]])
        k, rows = lib.tensor([[0, 2], [1, 1]]), lib.tensor([7, 0, 7])
        found = []
        for _ in range(times):  # the later ones by the plan of the first
            z = lib.zeros(8, 12)
            found += [x[i], x[i, j], x[i.int()], x[:, i], x[i, None], x[k, k, ...],
                      z.scatter_(1, k, 2.0).clone(), z.scatter_(1, k, x[:2, :2]).clone(),
                      z.scatter_(0, k, x).clone(), z.scatter_add_(1, k, x[:2, :2]).clone(),
                      z.index_add_(0, rows, x[:3]).clone(),
                      z.index_copy_(1, rows, x[:, :3]).clone(),
                      z.index_add_(0, rows, x[:3], alpha=2).clone(),
                      lib.nn.functional.one_hot(k, 4), lib.nn.functional.one_hot(k)]
            w = x.clone().requires_grad_()
            (w[i, j] ** 2).sum().backward()
            d = lib.zeros(8, 12)
            d.scatter_(1, k, w[:2, :2])
            (d * d).sum().backward()
            found.append(w.grad)
        return [f.tolist() for f in found]

    assert calls(torch) == calls(reference)


def test_known_selections_and_deposits_refuse_what_they_refused():
    x, leaf = torch.zeros(4, 3), torch.zeros(4, 3, requires_grad=True)
    inside, outside = torch.tensor([0, 3]), torch.tensor([0, 4])
    below = torch.tensor([0, -5])
    for index, wrong in ((inside, False), (outside, True), (below, True), (inside, False)):
        for call in (lambda i: x[i], lambda i: x[i, i % 3], lambda i: x.index_add_(0, i, x[:2] + 1),
                     lambda i: x.T.scatter_(1, i[None], 1.0),
                     lambda i: torch.nn.functional.one_hot(i, 4)):
            if wrong:
                with pytest.raises((IndexError, RuntimeError)):
                    call(index)
            else:
                call(index)
    before = x._version
    x.scatter_(0, inside[:, None], 1.0)
    assert x._version == before + 1
    for _ in range(2):
        with pytest.raises(RuntimeError, match="leaf"):
            leaf.scatter_(0, inside[:, None], 1.0)
        with torch.no_grad():
            leaf.scatter_(0, inside[:, None], 1.0)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_whole_dimensions_before_an_index(dtype, kind):
    a = (np.random.default_rng(0).standard_normal((3, 4, 5)) * 9).astype(dtype)
    places = [2, 0, -1, 2]
    for x, b in ((torch.from_numpy(a), a), (torch.from_numpy(a).mT, a.swapaxes(1, 2)),
                 (torch.from_numpy(a)[::2], a[::2])):
        index = torch.tensor(places, dtype=kind)
        for _ in range(3):
            for given in (places, index, index.reshape(2, 2), index[::2]):
                n = given if given is places else given.numpy()
                for found, wanted in ((x[:, given], b[:, n]), (x[:, :, given], b[:, :, n]),
                                      (x[:, 1:, given], b[:, 1:, n]), (x[..., given], b[..., n])):
                    assert found.is_contiguous() and np.array_equal(found.numpy(), wanted)
            assert np.array_equal(x[:, [True, *[False] * (x.shape[1] - 1)]].numpy(), b[:, [0]])
            assert x[:, []].shape == (x.shape[0], 0, x.shape[2])
            assert x[:, torch.zeros(0, dtype=kind)].shape == (x.shape[0], 0, x.shape[2])


def test_whole_dimensions_before_an_index_that_is_wrong_recorded_or_compiled():
    x, w = torch.randn(3, 4), torch.randn(3, 3)
    for _ in range(3):
        assert x[:, [3, 1]].tolist() == [[row[3], row[1]] for row in x.tolist()]
        for wrong in ([0, 4], torch.tensor([0, -5])):
            with pytest.raises(IndexError, match="out of bounds for dimension 1 with size 4"):
                x[:, wrong]
        with pytest.raises(IndexError, match="too many indices"):
            x[:, :, [0]]
        leaf = x.clone().requires_grad_()
        (leaf[:, [1, 1, 2]] * w).sum().backward()
        wanted = torch.stack([torch.zeros(3), w[:, 0] + w[:, 1], w[:, 2], torch.zeros(3)], 1)
        assert torch.allclose(leaf.grad, wanted)
        with torch.no_grad():
            assert torch.equal(leaf[:, [1, 1]], x[:, [1, 1]])
    compiled = torch.compile(lambda x, i: x[:, i] + x[:, [2, 0, 1]])
    for k in range(5):
        i = torch.tensor([k % 4, 0, -1])
        assert torch.equal(compiled(x, i), x[:, i] + x[:, [2, 0, 1]])
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([0, 4, 0]))
