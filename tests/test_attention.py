"""Attention against its definition in float64: masks, groups, strides, odd sizes, ways back."""

import math

import numpy as np
import pytest

import flambeau as fl

sdpa = fl.nn.functional.scaled_dot_product_attention


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def weights_of(q, k, mask=None, causal=False, scale=None):
    s = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        mask = np.tril(np.ones(s.shape[-2:], bool))
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    most = s.max(-1, keepdims=True)
    p = np.exp(s - np.where(np.isinf(most), 0, most))
    total = p.sum(-1, keepdims=True)
    return p / np.where(total == 0, 1, total)


def oracle(q, k, v, g, mask=None, causal=False, scale=None, z=1.0):
    """The result and the gradients of queries, keys and values."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    p = weights_of(q, k, mask, causal, scale)
    dp = g @ np.swapaxes(v, -1, -2) * z
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
    pz = p * z
    return pz @ v, ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(pz, -1, -2) @ g


def close(found, wanted, tolerance):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * max(1, np.abs(wanted).max()))


TOLERANCE = {np.float32: 3e-6, np.float64: 1e-13}


def check(q, k, v, dtype=np.float32, prepare=lambda x: x, **options):
    tensors = [fl.tensor(x.astype(dtype), requires_grad=True) for x in (q, k, v)]
    mask = options.get("mask")
    given = None if mask is None else fl.tensor(mask if mask.dtype == bool else mask.astype(dtype))
    out = sdpa(*map(prepare, tensors), given, is_causal=options.get("causal", False),
               scale=options.get("scale"))
    assert "Flash" in out.grad_fn.name()
    g = draw(9, *out.shape)
    out.backward(fl.tensor(g.astype(dtype)))
    wanted = oracle(*(prepare(x.astype(dtype).astype(float)) for x in (q, k, v)),
                    g.astype(dtype).astype(float), **options)
    close(out.detach().numpy(), wanted[0], TOLERANCE[dtype])
    for t, w in zip(tensors, wanted[1:], strict=True):
        found = prepare(t.grad).numpy()
        close(found, w, 4 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("t", "s", "d", "e"), [
    (1, 1, 1, 1), (5, 7, 3, 9), (64, 64, 32, 32), (65, 130, 40, 24), (33, 200, 17, 64),
    (150, 70, 8, 72)])
def test_sizes(dtype, causal, t, s, d, e):
    check(draw(0, 2, 3, t, d), draw(1, 2, 3, s, d), draw(2, 2, 3, s, e), dtype, causal=causal)


@pytest.mark.parametrize("shape", [(1, 1, 40, 70), (2, 1, 40, 70), (40, 70), (2, 3, 1, 70),
                                   (1, 3, 40, 1), (2, 3, 40, 70)])
@pytest.mark.parametrize("boolean", [False, True])
def test_masks(shape, boolean):
    mask = draw(5, *shape)
    if boolean:
        mask = mask > 0
        mask[..., :1, :] = False
    check(draw(0, 2, 3, 40, 16), draw(1, 2, 3, 70, 16), draw(2, 2, 3, 70, 16), mask=mask)


def test_transposed_mask():
    mask = draw(5, 70, 40).T
    q, k, v = (fl.tensor(draw(i, 2, n, 8)) for i, n in enumerate((40, 70, 70)))
    found = sdpa(q, k, v, fl.tensor(np.ascontiguousarray(mask.T)).t())
    close(found.numpy(), weights_of(q.numpy(), k.numpy(), mask) @ v.numpy(), 1e-13)


def test_rows_that_see_nothing_are_zero():
    q = fl.tensor(draw(0, 2, 4, 8), requires_grad=True)
    mask = fl.tensor(np.array([[True] * 4, [False] * 4, [True, False] * 2, [False] * 4]))
    out = sdpa(q, q, q, mask)
    assert not out[:, 1].any() and not out[:, 3].any()
    out.sum().backward()
    assert fl.isfinite(q.grad).all()


def test_heads_moved_without_copies():
    for axes in ((0, 2, 1, 3), (1, 2, 0, 3)):
        q, k, v = (draw(i, 4, 6, 5, 8) for i in range(3))
        check(q, k, v, np.float64,
              lambda x, axes=axes: x.permute(*axes) if hasattr(x, "permute") else x.transpose(axes),
              causal=True)
    x = fl.randn(2, 10, 3 * 16)
    q, k, v = (part.view(2, 10, 2, 8).transpose(1, 2) for part in x.chunk(3, -1))
    out = sdpa(q, k, v)
    assert out.transpose(1, 2).is_contiguous()
    assert fl.equal(out, sdpa(q.contiguous(), k.contiguous(), v.contiguous()))


def test_scale_and_odd_strides():
    check(draw(0, 3, 8, 20), draw(1, 3, 8, 30), draw(2, 3, 8, 30), np.float64,
          lambda x: x.transpose(-1, -2) if hasattr(x, "permute") else np.swapaxes(x, -1, -2),
          scale=0.3)


@pytest.mark.parametrize("causal", [False, True])
def test_few_heads_over_many_keys(causal):
    check(draw(0, 1, 1, 600, 16), draw(1, 1, 1, 600, 16), draw(2, 1, 1, 600, 16), np.float64,
          causal=causal)


def test_grouped_heads():
    q, k, v = (draw(0, 2, 6, 20, 8), draw(1, 2, 2, 30, 8), draw(2, 2, 2, 30, 8))
    tensors = [fl.tensor(x, requires_grad=True) for x in (q, k, v)]
    out = sdpa(*tensors, enable_gqa=True)
    g = draw(3, *out.shape)
    out.backward(fl.tensor(g))
    wide = [np.repeat(x, 3, 1) for x in (k, v)]
    wanted = list(oracle(q, *wide, g))
    for i in (2, 3):
        wanted[i] = wanted[i].reshape(2, 2, 3, 30, 8).sum(2)
    for found, w in zip((out.detach(), *(t.grad for t in tensors)), wanted, strict=True):
        close(found.numpy(), w, 1e-13)


def test_batches_broadcast():
    q, k = fl.tensor(draw(0, 1, 5, 4), requires_grad=True), fl.tensor(draw(1, 3, 6, 4))
    out = sdpa(q, k, k)
    out.sum().backward()
    assert out.shape == (3, 5, 4) and q.grad.shape == (1, 5, 4)


def test_dropout_leaves_out_and_goes_back_the_same_way():
    q, k, v = (draw(i, 2, 2, 24, 8) for i in range(3))
    tensors = [fl.tensor(x, requires_grad=True) for x in (q, k, v)]
    fl.manual_seed(3)
    out = sdpa(*tensors, dropout_p=0.3)
    fl.manual_seed(3)
    z = fl.dropout(fl.ones(2, 2, 24, 24, dtype=fl.float64), 0.3, True).numpy()
    g = draw(4, *out.shape)
    out.backward(fl.tensor(g))
    for found, w in zip((out.detach(), *(t.grad for t in tensors)), oracle(q, k, v, g, z=z),
                        strict=True):
        close(found.numpy(), w, 1e-13)


def test_half_precision_is_computed_in_float32():
    q = fl.tensor(draw(0, 2, 30, 16)).to(fl.bfloat16)
    wide = q.to(fl.float32).numpy().astype(float)
    found = sdpa(q, q, q, is_causal=True)
    assert found.dtype is fl.bfloat16
    close(found.to(fl.float32).numpy(), weights_of(wide, wide, causal=True) @ wide, 5e-3)


def test_second_derivatives():
    q, k, v = (fl.tensor(draw(i, 1, 2, 3, 4), requires_grad=True) for i in range(3))
    mask = fl.tensor(draw(7, 3, 3))
    assert fl.autograd.gradgradcheck(lambda *x: sdpa(*x, mask), (q, k, v))
    assert fl.autograd.gradcheck(lambda *x: sdpa(*x, is_causal=True), (q, k, v))


def test_mask_that_wants_a_gradient():
    q, mask = (fl.tensor(draw(i, 4, 4), requires_grad=True) for i in range(2))
    sdpa(q, q, q, mask.detach())
    assert fl.autograd.gradcheck(lambda q, m: sdpa(q, q, q, m), (q, mask))


def test_threads_agree_bit_for_bit():
    q, k, v = (fl.tensor(draw(i, 2, 3, 200, 32).astype("f"), requires_grad=True) for i in range(3))
    before, found = fl.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            fl.set_num_threads(n)
            out = sdpa(q, k, v, is_causal=True)
            found.append([out.detach().numpy(),
                          *(t.numpy() for t in fl.autograd.grad(out.sum(), (q, k, v)))])
    finally:
        fl.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert (a == b).all()


def test_nan_stays_in_its_row():
    k = fl.tensor(draw(0, 6, 4))
    q = k.clone()
    q[2] = math.nan
    out = sdpa(q, k, k)
    assert out[2].isnan().all() and out.isnan().sum() == 4
