"""Convolutions against sums written out, and the identities that tie their gradients together."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import flambeau as torch
from flambeau.ops.declare import registry

CASES = {
    "plain":     ((2, 3, 6, 7), (4, 3, 3, 2), {}),
    "strided":   ((2, 3, 7, 8), (4, 3, 3, 3), {"stride": (2, 3), "padding": (1, 2)}),
    "dilated":   ((1, 2, 9, 8), (3, 2, 3, 2), {"dilation": (2, 3), "padding": 1}),
    "grouped":   ((2, 4, 5, 5), (6, 2, 2, 3), {"groups": 2, "padding": (0, 1)}),
    "depthwise": ((2, 3, 6, 5), (6, 1, 3, 3), {"groups": 3, "stride": 2, "padding": 1}),
    "pointwise": ((2, 5, 4, 3), (2, 5, 1, 1), {}),
    "line":      ((2, 3, 9), (4, 3, 4), {"stride": 2, "padding": 1}),
    "volume":    ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"stride": (1, 2, 1), "padding": 1}),
}


def sample(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def tensors(*shapes):
    return [torch.from_numpy(sample(s, k)).requires_grad_() for k, s in enumerate(shapes)]


def functions(rank):
    n = rank - 2
    return getattr(torch, f"conv{n}d"), getattr(torch, f"conv_transpose{n}d")


def each(value, n):
    return value if isinstance(value, tuple) else (value,) * n


def written_out(x, w, bias, stride=1, padding=0, dilation=1, groups=1):
    """The definition: every element of the result as one sum."""
    n = x.ndim - 2
    stride, padding, dilation = each(stride, n), each(padding, n), each(dilation, n)
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    outs = [(size - d * (k - 1) - 1) // s + 1 for size, k, s, d in
            zip(x.shape[2:], w.shape[2:], stride, dilation, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *outs))
    per_in, per_out = w.shape[1], w.shape[0] // groups
    for sample_, channel, *at in product(*map(range, out.shape)):
        group = channel // per_out
        part = x[(sample_, slice(group * per_in, (group + 1) * per_in),
                  *(slice(a * s, a * s + d * (k - 1) + 1, d) for a, s, d, k in
                    zip(at, stride, dilation, w.shape[2:], strict=True)))]
        out[(sample_, channel, *at)] = (part * w[channel]).sum() + bias[channel]
    return out


@pytest.mark.parametrize("case", CASES)
def test_convolution_is_the_sum_it_is_defined_by(case):
    data, weights, options = CASES[case]
    x, w, b = tensors(data, weights, weights[:1])
    conv, _ = functions(x.dim())
    expected = written_out(*(t.detach().numpy() for t in (x, w, b)), **options)
    np.testing.assert_allclose(conv(x, w, b, **options).detach().numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_adjoint(case):
    """<g, conv(x, w)> is linear in each: its gradients give it back."""
    data, weights, options = CASES[case]
    x, w, b = tensors(data, weights, weights[:1])
    conv, _ = functions(x.dim())
    out = conv(x, w, b, **options)
    g = torch.from_numpy(sample(tuple(out.shape), 9))
    pairing = (g * (out - b.reshape(-1, *[1] * (out.dim() - 2)))).sum().item()
    out.backward(g)
    assert (x.grad * x).sum().item() == pytest.approx(pairing)
    assert (w.grad * w).sum().item() == pytest.approx(pairing)
    dims = [d for d in range(out.dim()) if d != 1]
    np.testing.assert_allclose(b.grad.numpy(), g.numpy().sum(tuple(dims)))


@pytest.mark.parametrize("case", CASES)
def test_transposed_convolution_is_the_gradient_of_convolution(case):
    data, weights, options = CASES[case]
    x, w = tensors(data, weights)
    conv, transposed = functions(x.dim())
    out = conv(x, w, **options)
    g = torch.from_numpy(sample(tuple(out.shape), 9))
    out.backward(g)
    smallest = transposed(g, w, **options)
    n = x.dim() - 2
    more = tuple(a - b for a, b in zip(x.shape[2:], smallest.shape[2:], strict=True))
    assert all(m >= 0 for m in more) and len(more) == n
    found = transposed(g, w, output_padding=more, **options)
    np.testing.assert_allclose(found.detach().numpy(), x.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("case", ["strided", "grouped", "depthwise", "line"])
def test_second_gradients_match_small_steps(case):
    data, weights, options = CASES[case]
    x, w = tensors(data, weights)
    conv, _ = functions(x.dim())

    def slope(x, w):
        (found,) = torch.autograd.grad((conv(x, w, **options) ** 3).sum(), x, create_graph=True)
        return found

    direction = torch.from_numpy(sample(weights, 5))
    (slope(x, w) ** 2).sum().backward()
    step = 1e-5
    ahead, behind = ((slope(x, w + sign * step * direction) ** 2).sum().item() for sign in (1, -1))
    along = (w.grad * direction).sum().item()
    assert along == pytest.approx((ahead - behind) / (2 * step), rel=1e-5)


def test_same_padding_keeps_the_size_and_pads_the_end_more():
    x, w = torch.arange(5.0).reshape(1, 1, 5), torch.tensor([[[1.0, 0.0]]])
    assert torch.conv1d(x, w, padding="same").tolist() == [[[0.0, 1.0, 2.0, 3.0, 4.0]]]
    assert torch.conv1d(x, w, padding="valid").shape == (1, 1, 4)


def test_no_batch_dimension():
    x, w = tensors((3, 6, 7), (4, 3, 3, 3))
    alone = torch.conv2d(x, w)
    assert alone.shape == (4, 4, 5)
    assert torch.equal(alone, torch.conv2d(x.unsqueeze(0), w)[0])


def test_output_padding_up_to_the_dilation():
    """Padding at the end can make room for windows that the gradient must not count."""
    x, w = tensors((1, 1, 4), (1, 1, 2))
    out = torch.conv_transpose1d(x, w, dilation=3, output_padding=2)
    assert out.shape == (1, 1, 9)
    out.sum().backward()
    assert x.grad.shape == x.shape
    np.testing.assert_allclose(x.grad.numpy(), np.full((1, 1, 4), w.detach().numpy().sum()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_other_dtypes(dtype):
    x = torch.arange(16).reshape(1, 1, 4, 4).to(dtype)
    out = torch.conv2d(x, torch.ones(1, 1, 2, 2, dtype=dtype))
    assert out.dtype is dtype
    assert out.tolist() == [[[[10, 14, 18], [26, 30, 34], [42, 46, 50]]]]


def test_nothing_in_the_batch():
    x = torch.empty(0, 3, 5, 5, requires_grad=True)
    w = torch.ones(2, 3, 3, 3, requires_grad=True)
    out = torch.conv2d(x, w)
    assert out.shape == (0, 2, 3, 3)
    out.sum().backward()
    assert not w.grad.any() and w.grad.shape == w.shape


def test_meta_tensors_have_shapes():
    x, w = torch.empty(2, 3, 8, 8, device="meta"), torch.empty(4, 3, 3, 3, device="meta")
    assert torch.conv2d(x, w, stride=2).shape == (2, 4, 3, 3)


@pytest.mark.parametrize(("arguments", "said"), [
    ({"stride": 0}, "stride"),
    ({"padding": -1}, "padding"),
    ({"dilation": 0}, "dilation"),
    ({"groups": 2}, "groups=2"),
    ({"padding": "half"}, "half"),
    ({"padding": "same", "stride": 2}, "same"),
    ({"stride": (1, 2, 3)}, "stride"),
    ({"dilation": 4}, "Kernel size"),
])
def test_what_is_refused(arguments, said):
    with pytest.raises(RuntimeError, match=said):
        torch.conv2d(torch.ones(1, 3, 5, 5), torch.ones(3, 3, 3, 3), **arguments)


def test_dtypes_must_agree():
    with pytest.raises(RuntimeError, match="should be the same"):
        torch.conv1d(torch.ones(1, 1, 3), torch.ones(1, 1, 2, dtype=torch.float64))
    with pytest.raises(TypeError, match="must be Tensor"):
        torch.conv1d([1.0], torch.ones(1, 1, 2))


def test_patches_and_back():
    """Folding adds up what unfolding took apart: each element as often as windows hold it."""
    unfold, fold = registry["nn.functional.unfold"], registry["nn.functional.fold"]
    x = torch.from_numpy(sample((2, 3, 6, 7))).requires_grad_()
    options = {"kernel_size": (2, 3), "stride": (2, 1), "padding": (0, 1), "dilation": (1, 2)}
    columns = unfold(x, **options)
    assert columns.shape == (2, 18, 15)
    times = fold(unfold(torch.ones_like(x), **options), (6, 7), **options)
    np.testing.assert_allclose(fold(columns, (6, 7), **options).detach().numpy(),
                               (x * times).detach().numpy())
    (columns ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), (2 * x * times).detach().numpy())
