"""Joining, repeating, padding, rolling: what numpy has it is compared with."""

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn.functional import pad

A = np.arange(12, dtype=np.float64).reshape(3, 4)

#: name -> (ours, numpy's)
SAME = {
    "cat 0":        (lambda x: torch.cat([x, x[:1]]), lambda a: np.concatenate([a, a[:1]])),
    "cat 1":        (lambda x: torch.cat([x, x[:, :1]], 1),
                     lambda a: np.concatenate([a, a[:, :1]], 1)),
    "cat strided":  (lambda x: torch.cat([x.t(), x.t()]), lambda a: np.concatenate([a.T, a.T])),
    "stack":        (lambda x: torch.stack([x, x * 2], -1), lambda a: np.stack([a, a * 2], -1)),
    "hstack":       (lambda x: torch.hstack([x, x]), lambda a: np.hstack([a, a])),
    "vstack":       (lambda x: torch.vstack([x[0], x]), lambda a: np.vstack([a[0], a])),
    "dstack":       (lambda x: torch.dstack([x, x]), lambda a: np.dstack([a, a])),
    "column_stack": (lambda x: torch.column_stack([x[:, 0], x]),
                     lambda a: np.column_stack([a[:, 0], a])),
    "roll":         (lambda x: x.roll((1, -2), (0, 1)), lambda a: np.roll(a, (1, -2), (0, 1))),
    "roll all":     (lambda x: x.roll(5), lambda a: np.roll(a, 5)),
    "flip":         (lambda x: x.flip(0, 1), lambda a: np.flip(a, (0, 1))),
    "rot90":        (lambda x: x.rot90(-1), lambda a: np.rot90(a, -1)),
    "repeat":       (lambda x: x.repeat(2, 3), lambda a: np.tile(a, (2, 3))),
    "interleave":   (lambda x: x.repeat_interleave(2, 1), lambda a: np.repeat(a, 2, 1)),
    "interleave n": (lambda x: x.repeat_interleave(torch.tensor([0, 2, 1]), 0),
                     lambda a: np.repeat(a, [0, 2, 1], 0)),
    "tril":         (lambda x: x.tril(1), lambda a: np.tril(a, 1)),
    "triu":         (lambda x: x.t().triu(-1), lambda a: np.triu(a.T, -1)),
    "diag":         (lambda x: x[0].diag(1), lambda a: np.diag(a[0], 1)),
    "diag of":      (lambda x: x.diag(-1), lambda a: np.diag(a, -1)),
    "trace":        (lambda x: x.trace(), lambda a: np.trace(a)),
    "constant":     (lambda x: pad(x, (1, 2, 0, 1), value=7),
                     lambda a: np.pad(a, ((0, 1), (1, 2)), constant_values=7)),
    "reflect":      (lambda x: pad(x[None], (2, 3), "reflect")[0],
                     lambda a: np.pad(a, ((0, 0), (2, 3)), "reflect")),
    "replicate":    (lambda x: pad(x[None, None], (1, 1, 2, 0), "replicate")[0, 0],
                     lambda a: np.pad(a, ((2, 0), (1, 1)), "edge")),
    "circular":     (lambda x: pad(x[None, None], (1, 2, 1, 0), "circular")[0, 0],
                     lambda a: np.pad(a, ((1, 0), (1, 2)), "wrap")),
    "take along":   (lambda x: x.take_along_dim(torch.tensor([[0], [3], [-1]]), 1),
                     lambda a: np.take_along_axis(a, np.array([[0], [3], [-1]]), 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_values(name):
    ours, theirs = SAME[name]
    np.testing.assert_array_equal(ours(torch.tensor(A)).numpy(), theirs(A))


@pytest.mark.parametrize("name", SAME)
def test_gradients_go_back_to_where_elements_came_from(name):
    """All of these are linear, so that the gradient is what the transpose says."""
    ours, _ = SAME[name]
    x = torch.tensor(A, requires_grad=True)
    y = ours(x)
    weights = torch.arange(y.numel(), dtype=torch.float64).reshape(y.shape)
    (y * weights).sum().backward()
    start = ours(torch.zeros(3, 4, dtype=torch.float64))
    wanted = np.zeros(12)
    for k in range(12):
        unit = torch.zeros(12, dtype=torch.float64)
        unit[k] = 1
        wanted[k] = ((ours(unit.reshape(3, 4)) - start) * weights).sum().item()
    np.testing.assert_allclose(x.grad.numpy().ravel(), wanted)


def test_joining_promotes_and_refuses():
    assert torch.cat([torch.ones(1, dtype=torch.int64), torch.ones(1)]).dtype is torch.float32
    assert torch.cat([torch.zeros(0), torch.ones(2, 2)]).shape == (2, 2)
    for bad in (lambda: torch.cat([torch.ones(2, 2), torch.ones(3, 3)]),
                lambda: torch.stack([torch.ones(2), torch.ones(3)]),
                lambda: torch.cat([torch.tensor(1.0), torch.ones(1)])):
        with pytest.raises(RuntimeError):
            bad()
    with pytest.raises(TypeError):
        torch.cat(torch.ones(2))


def test_grids_and_combinations():
    a, b = torch.arange(2), torch.arange(3)
    for indexing in ("ij", "xy"):
        found = torch.meshgrid(a, b, indexing=indexing)
        wanted = np.meshgrid(a.numpy(), b.numpy(), indexing=indexing)
        for f, w in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(f.numpy(), w)
    assert torch.cartesian_prod(a, b).tolist() == [[i, j] for i in range(2) for j in range(3)]
    assert torch.combinations(b).tolist() == [[0, 1], [0, 2], [1, 2]]
    assert torch.tril_indices(3, 3).tolist() == np.stack(np.tril_indices(3)).tolist()
    assert torch.block_diag(torch.ones(1, 2), torch.tensor(5.0)).tolist() == [[1, 1, 0], [0, 0, 5]]


def test_pixels():
    x = torch.arange(16.0).reshape(1, 4, 2, 2)
    y = torch.nn.functional.pixel_shuffle(x, 2)
    assert y[0, 0, :2, :2].flatten().tolist() == x[0, :, 0, 0].tolist()
    assert torch.nn.functional.pixel_unshuffle(y, 2).tolist() == x.tolist()


def test_parts_replaced_leave_the_original_alone():
    x = torch.zeros(2, 3)
    assert torch.select_scatter(x, torch.ones(3), 0, 1).tolist() == [[0] * 3, [1] * 3]
    assert torch.diagonal_scatter(x, torch.ones(2)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert torch.slice_scatter(x, torch.ones(2, 1), 1, 2).tolist() == [[0, 0, 1]] * 2
    assert x.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("copy", [
    lambda x: x.repeat(3, 1), lambda x: x.repeat(1, 1), lambda x: x.t().repeat(1, 1),
    lambda x: x.repeat_interleave(3, 0), lambda x: x.tile(2),
    lambda x: x.expand(3, 4)[:, 0].ravel(),
    lambda x: pad(x, (0, 0), mode="reflect"), lambda x: pad(x[None], (-1, 0), mode="circular"),
    lambda x: torch.nn.functional.pixel_shuffle(x[None], 1)])
def test_repeated_and_padded_tensors_have_memory_of_their_own(copy):
    """Also where a view with strides of zero would show the same elements."""
    x = torch.zeros(1, 4)
    x.as_strided((4,), (1,))[:] = torch.arange(4.0)
    y = copy(x)
    before = y.clone()
    y.view(-1)[0] += 7
    assert x.tolist() == [[0, 1, 2, 3]]
    assert (y != before).sum() == 1


def test_one_hot():
    found = torch.nn.functional.one_hot(torch.tensor([[0, 2]]))
    assert found.tolist() == [[[1, 0, 0], [0, 0, 1]]]
    with pytest.raises(RuntimeError):
        torch.nn.functional.one_hot(torch.tensor([3]), 2)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int16", "uint8", "bool",
                                   "complex64", "complex128"])
@pytest.mark.parametrize("shape, order", [
    ((33, 70), (1, 0)), ((300, 9), (1, 0)), ((8, 400), (1, 0)), ((3, 20, 30), (0, 2, 1)),
    ((20, 5, 30), (2, 1, 0)), ((4, 10, 3, 12), (0, 2, 3, 1)), ((1000, 7), (1, 0))])
def test_copies_that_turn_memory(shape, order, dtype):
    a = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    x = torch.from_numpy(a).permute(order)
    wanted = a.transpose(order)
    assert (x.contiguous().numpy() == wanted).all()
    part = torch.from_numpy(a)[..., 1:].permute(order)
    assert (part.contiguous().numpy() == a[..., 1:].transpose(order)).all()
    target = torch.zeros(wanted.shape, dtype=x.dtype)
    assert (target.copy_(x).numpy() == wanted).all()


def test_transposed_copies_flow_back_and_share_threads():
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((70, 90))).requires_grad_()
    g = torch.from_numpy(np.random.default_rng(2).standard_normal((90, 70)))
    x.t().contiguous().backward(g)
    assert (x.grad.numpy() == g.numpy().T).all()
    wide, before = torch.arange(1_200_000.0).view(1000, 1200), torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            assert (wide.t().contiguous().numpy() == wide.numpy().T).all()
    finally:
        torch.set_num_threads(before)


def test_moves_met_before_are_what_they_were():
    x = torch.arange(6.0).reshape(2, 3)
    for _ in range(3):
        assert x.flip(0).tolist() == [[3, 4, 5], [0, 1, 2]]
        assert x.flip(0, -1).tolist() == x.flip((0, 1)).tolist() == [[5, 4, 3], [2, 1, 0]]
        assert x.roll(1, 0).tolist() == [[3, 4, 5], [0, 1, 2]]
        assert x.roll(-1, -1).tolist() == [[1, 2, 0], [4, 5, 3]]
        assert x.roll(1).tolist() == [[5, 0, 1], [2, 3, 4]]
        assert torch.tensor(1.0).flip().item() == 1
        with pytest.raises(IndexError):
            x.flip(2)
        with pytest.raises(RuntimeError):
            x.flip(0, 0)
    w = x.clone().requires_grad_()
    for _ in range(2):
        (w.flip(1) * x + w.roll(1, 1) * x).sum().backward()
    assert w.grad.tolist() == [[6, 6, 0], [18, 18, 12]]


def test_cosines_met_before_are_what_they_were():
    reference = pytest.importorskip("torch")
    cosine = torch.nn.functional.cosine_similarity
    for dtype in ("float32", "float64"):
        x, y = (torch.randn(3, 4, 5, dtype=getattr(torch, dtype)) for _ in range(2))
        x[0, 0] = 0
        for _ in range(2):
            for dim, eps in ((1, 1e-8), (-1, 1e-8), (2, 10.0), (0, 0)):
                ours = cosine(x, y, dim, eps)
                theirs = reference.nn.functional.cosine_similarity(
                    *(reference.from_numpy(v.numpy()) for v in (x, y)), dim, eps)
                np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)
            w = x.clone().requires_grad_()
            assert cosine(w, y).requires_grad
        assert cosine(x, y[:1]).shape == (3, 5) and cosine(x[0, 0], y[0, 0], dim=0).shape == ()


def test_a_complex_number_is_true_where_either_part_is():
    x = torch.tensor([0j, 1j, 1 + 0j, -0.0j] * 5)
    assert x.bool().tolist() == [False, True, True, False] * 5
    assert torch.zeros(20, dtype=torch.bool).copy_(x).tolist() == x.bool().tolist()


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64", "complex128"])
@pytest.mark.parametrize("mode", ["replicate", "reflect", "circular"])
@pytest.mark.parametrize(("shape", "pad"), [
    ((2, 3, 5, 6), (1, 2, 3, 0)), ((1, 1, 40, 70), (3, 3, 4, 4)), ((2, 9), (4, 3)),
    ((3, 4, 3), (2, 0)), ((2, 2, 4, 33), (0, 5, 0, 0)), ((2, 2, 4, 5), (1, -2, 0, 1)),
    ((1, 2, 3, 4, 5), (1, 1, 2, 2, 1, 0))])
def test_borders_taken_from_planes(dtype, mode, shape, pad):
    """Three times: what was met before goes by native code, other layouts do not."""
    x = (np.random.default_rng(0).standard_normal(shape) * 50).astype(dtype)
    widths = [(0, 0)] * (len(shape) - len(pad) // 2) + [
        (pad[k], pad[k + 1]) for k in range(len(pad) - 2, -1, -2)]
    kept = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(shape, widths, strict=True))
    name = {"replicate": "edge", "reflect": "reflect", "circular": "wrap"}[mode]
    cut = x[kept] if mode == "circular" else x
    want = np.pad(cut, [(max(a, 0), max(b, 0)) for a, b in widths], name)
    if mode != "circular":
        want = want[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in
                          zip(want.shape, widths, strict=True))]
    turned = torch.tensor(x).transpose(-1, -2).contiguous().transpose(-1, -2)
    for t in (torch.tensor(x), torch.tensor(x), torch.tensor(x), turned):
        found = torch.nn.functional.pad(t, pad, mode)
        assert found.is_contiguous() or t is turned
        assert np.array_equal(found.numpy(), want)


def test_borders_have_gradients_after_native_calls():
    x = torch.arange(6.0).reshape(1, 6)
    for _ in range(2):
        torch.nn.functional.pad(x, (2, 1), "reflect")
    x.requires_grad_()
    torch.nn.functional.pad(x, (2, 1), "reflect").sum().backward()
    assert x.grad.tolist() == [[1, 2, 2, 1, 2, 1]]
