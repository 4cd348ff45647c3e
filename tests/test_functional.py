"""nn.functional: losses, norms, dropout, embeddings, attention and recurrence, against numpy."""

import itertools
import math

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau.devices.cpu.routines import ROUTINES
from flambeau.ops.declare import registry

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.standard_normal(shape)


def slopes(function, x, step=1e-6):
    """The gradient of a function of one array, by differences."""
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * step
            ends.append(function(torch.tensor(moved)).item())
        found[place] = (ends[0] - ends[1]) / (2 * step)
    return found


def check_gradient(function, x):
    leaf = torch.tensor(x, requires_grad=True)
    function(leaf).backward()
    np.testing.assert_allclose(leaf.grad.numpy(), slopes(function, x), atol=1e-5)


def weighted_sum(out):
    """A scalar in which every element counts differently."""
    return (out * torch.arange(1, out.numel() + 1, dtype=out.dtype).reshape(out.shape)).sum()


# -- cross entropy ---------------------------------------------------------------------------------


def entropy_by_hand(x, target, weight, ignored, smoothing):
    """Mean cross entropy of (N, C) logits."""
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    total = divisor = 0.0
    for row, t in zip(logs, target, strict=True):
        if t != ignored:
            total += (1 - smoothing) * -row[t] * weight[t]
            total += smoothing * -(row * weight).sum() / len(row)
            divisor += weight[t]
    return total / divisor


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_is_what_it_says(smoothing, weighted):
    x, target = numbers(6, 5), np.array([0, 4, 2, 2, 1, 3])
    weight = RNG.random(5) if weighted else np.ones(5)
    options = {"weight": torch.tensor(weight) if weighted else None, "ignore_index": 2,
               "label_smoothing": smoothing}
    got = F.cross_entropy(torch.tensor(x), torch.tensor(target), **options)
    assert got.item() == pytest.approx(entropy_by_hand(x, target, weight, 2, smoothing))
    check_gradient(lambda v: F.cross_entropy(v, torch.tensor(target), **options), x)


def test_cross_entropy_of_images_is_that_of_their_pixels():
    x, target = numbers(2, 3, 4, 5), RNG.integers(0, 3, (2, 4, 5))
    got = F.cross_entropy(torch.tensor(x), torch.tensor(target), reduction="none")
    flat = F.cross_entropy(torch.tensor(x.transpose(0, 2, 3, 1).reshape(-1, 3)),
                           torch.tensor(target.reshape(-1)), reduction="none")
    np.testing.assert_allclose(got.numpy().reshape(-1), flat.numpy())


def test_cross_entropy_survives_large_logits():
    x = torch.tensor([[1000.0, 0.0], [0.0, -1000.0]], requires_grad=True)
    loss = F.cross_entropy(x, torch.tensor([1, 0]))
    loss.backward()
    assert loss.item() == pytest.approx(500.0)
    np.testing.assert_allclose(x.grad.numpy(), [[0.5, -0.5], [0.0, 0.0]], atol=1e-7)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("target", [5, -1])
def test_classes_that_do_not_exist_are_refused(target, reduction):
    x = torch.zeros(2, 5)
    for loss in (F.cross_entropy, F.nll_loss):
        with pytest.raises(IndexError, match="out of bounds"):
            loss(x, torch.tensor([0, target]), reduction=reduction)


def test_targets_of_another_batch_are_refused():
    with pytest.raises(ValueError, match="batch_size"):
        F.cross_entropy(torch.zeros(2, 5), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="reduction"):
        F.cross_entropy(torch.zeros(2, 5), torch.zeros(2, dtype=torch.int64), reduction="some")


def test_only_ignored_targets_have_no_mean():
    x, target = torch.zeros(2, 5), torch.full((2,), -100)
    assert math.isnan(F.cross_entropy(x, target).item())
    assert F.cross_entropy(x, target, reduction="sum").item() == 0


# -- other losses ----------------------------------------------------------------------------------


ELEMENTWISE = {
    "mse_loss":       lambda x, y: (x - y) ** 2,
    "l1_loss":        lambda x, y: np.abs(x - y),
    "smooth_l1_loss": lambda x, y: np.where(np.abs(x - y) < 1, (x - y) ** 2 / 2,
                                            np.abs(x - y) - 0.5),
    "huber_loss":     lambda x, y: np.where(np.abs(x - y) < 1, (x - y) ** 2 / 2,
                                            np.abs(x - y) - 0.5),
    "soft_margin_loss": lambda x, y: np.log1p(np.exp(-x * y)),
    "binary_cross_entropy_with_logits": lambda x, y: np.log1p(np.exp(x)) - x * y,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_losses_of_elements(name):
    x, y = numbers(4, 3) * 2, numbers(4, 3)
    loss = getattr(F, name)
    each = ELEMENTWISE[name](x, y)
    for reduction, wanted in (("none", each), ("sum", each.sum()), ("mean", each.mean())):
        got = loss(torch.tensor(x), torch.tensor(y), reduction=reduction)
        np.testing.assert_allclose(got.numpy(), wanted)
    check_gradient(lambda v: loss(v, torch.tensor(y)), x)


@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.uint8])
@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss", "huber_loss"])
def test_targets_may_be_whole_numbers(name, dtype):
    x = torch.tensor([0.2, 0.7], requires_grad=True)
    target = torch.tensor([0, 1])
    getattr(F, name)(x, target.to(dtype)).backward()
    (expected,) = torch.autograd.grad(getattr(F, name)(x, target.float()), x)
    assert x.grad.tolist() == expected.tolist()
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        getattr(F, name)(target, target)


def test_whole_numbers_are_promoted_where_something_is_a_float():
    x, whole = torch.tensor([1.5, 2.0]), torch.tensor([1, 3])
    for function in (torch.hypot, torch.logaddexp, torch.logaddexp2, F.cosine_similarity):
        for y in (whole, whole > 1):
            if function is F.cosine_similarity:
                found, expected = function(x[None], y[None]), function(x[None], y.float()[None])
            else:
                found, expected = function(y, x), function(y.float(), x)
            assert found.dtype is torch.float32 and found.equal(expected)
    assert torch.addcmul(x, x, whole > 1).tolist() == [1.5, 4.0]


def test_logits_far_from_zero_keep_their_loss():
    x = torch.tensor([1e4, -1e4], requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(x, torch.tensor([0.0, 0.0]), reduction="sum")
    loss.backward()
    assert loss.item() == 1e4
    assert x.grad.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("outside", [1.5, -0.5, math.nextafter(1, 2), -5e-324, math.inf, -math.inf,
                                     math.nan])
def test_probabilities_outside_the_unit_are_refused(outside, dtype):
    inside = torch.tensor([0.0, -0.0, 0.5, 1.0] * 50, dtype=dtype)
    F.binary_cross_entropy(inside, torch.ones_like(inside))
    for at in (0, 77, -1):
        x = inside.clone()
        x[at] = outside
        if 0 <= x[at].item() <= 1:  # what is next to 1 or 0 is rounded to it
            continue
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            F.binary_cross_entropy(x, torch.ones_like(x))


def ctc_by_hand(log_probs, target, blank=0):
    """Minus the log of the summed probabilities of every alignment."""
    steps, classes = log_probs.shape
    total = 0.0
    for path in itertools.product(range(classes), repeat=steps):
        merged = [c for c, _ in itertools.groupby(path)]
        if [c for c in merged if c != blank] == list(target):
            total += math.exp(sum(log_probs[t, c] for t, c in enumerate(path)))
    return -math.log(total)


@pytest.mark.parametrize("target", [[1], [1, 1], [2, 1], []])
def test_ctc_sums_over_every_alignment(target):
    x = numbers(4, 3)
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    got = F.ctc_loss(torch.tensor(logs), torch.tensor(target, dtype=torch.int64), torch.tensor(4),
                     torch.tensor(len(target)), reduction="sum")
    assert got.item() == pytest.approx(ctc_by_hand(logs, target))
    check_gradient(lambda v: F.ctc_loss(
        F.log_softmax(v, 1), torch.tensor(target, dtype=torch.int64), torch.tensor(4),
        torch.tensor(len(target)), reduction="sum"), x)


# -- norms -----------------------------------------------------------------------------------------


def normalised(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_layer_norm():
    x, w, b = numbers(3, 4, 5), numbers(4, 5), numbers(4, 5)
    got = F.layer_norm(torch.tensor(x), (4, 5), torch.tensor(w), torch.tensor(b))
    np.testing.assert_allclose(got.numpy(), normalised(x, (1, 2)) * w + b)
    weight, bias = torch.tensor(w), torch.tensor(b)
    check_gradient(lambda v: weighted_sum(F.layer_norm(v, (4, 5), weight, bias)), x)
    check_gradient(lambda v: weighted_sum(F.layer_norm(torch.tensor(x), (4, 5), v, bias)), w)


def test_running_statistics_count_as_changed():
    x, mean, var = torch.randn(8, 3), torch.zeros(3), torch.ones(3)
    for k in range(1, 4):
        F.batch_norm(x, mean, var, training=True)
        assert mean._version == var._version == k
    half = torch.zeros(6)
    F.batch_norm(x, half[::2], half[1::2], training=True)
    assert half.ne(0).all() and half._version == 2
    kept = (torch.ones(3, requires_grad=True) * mean).sum()
    F.batch_norm(x, mean, var, training=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()


def test_batch_norm_and_its_running_statistics():
    x = numbers(6, 3, 4)
    mean, var = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    got = F.batch_norm(torch.tensor(x), mean, var, training=True, momentum=0.25)
    np.testing.assert_allclose(got.numpy(), normalised(x, (0, 2)))
    np.testing.assert_allclose(mean.numpy(), 0.25 * x.mean((0, 2)))
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * x.var((0, 2), ddof=1))
    fixed = F.batch_norm(torch.tensor(x), mean, var)
    shape = (1, 3, 1)
    wanted = (x - mean.numpy().reshape(shape)) / np.sqrt(var.numpy().reshape(shape) + 1e-5)
    np.testing.assert_allclose(fixed.numpy(), wanted)
    check_gradient(lambda v: weighted_sum(F.batch_norm(v, None, None, training=True)), x)
    check_gradient(lambda v: weighted_sum(F.batch_norm(v, mean, var)), x)


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_group_and_instance_norm(layout):
    x = numbers(2, 4, 3, 5)
    given = torch.tensor(x)
    if layout == "transposed":
        given = torch.tensor(x.transpose(0, 1, 3, 2).copy()).transpose(2, 3)
    groups = normalised(x.reshape(2, 2, 2, 3, 5), (2, 3, 4)).reshape(x.shape)
    np.testing.assert_allclose(F.group_norm(given, 2).numpy(), groups)
    np.testing.assert_allclose(F.instance_norm(given).numpy(), normalised(x, (2, 3)))
    check_gradient(lambda v: weighted_sum(F.group_norm(v, 2)), x)


def test_rms_norm():
    x, w = numbers(3, 5), numbers(5)
    got = F.rms_norm(torch.tensor(x), (5,), torch.tensor(w), 1e-3)
    np.testing.assert_allclose(got.numpy(), x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-3) * w)
    check_gradient(lambda v: weighted_sum(F.rms_norm(v, (5,), torch.tensor(w), 1e-3)), x)


def test_gradients_of_norms_can_be_differentiated():
    x = torch.tensor(numbers(3, 5), requires_grad=True)
    (g,) = torch.autograd.grad(weighted_sum(F.layer_norm(x, (5,))), x, create_graph=True)
    (again,) = torch.autograd.grad((g * g).sum(), x)

    def squared(v):
        v = v.detach().requires_grad_()
        (g,) = torch.autograd.grad(weighted_sum(F.layer_norm(v, (5,))), v)
        return (g * g).sum()

    np.testing.assert_allclose(again.numpy(), slopes(squared, x.detach().numpy()), atol=1e-4)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(RuntimeError, match="normalized_shape"):
        F.layer_norm(torch.zeros(2, 3), (4,))
    with pytest.raises(RuntimeError, match="divisible"):
        F.group_norm(torch.zeros(2, 3, 4), 2)
    with pytest.raises(ValueError, match="more than 1 value"):
        F.batch_norm(torch.zeros(1, 3), None, None, training=True)


# -- dropout ---------------------------------------------------------------------------------------


def test_dropout_scales_what_it_keeps():
    torch.manual_seed(3)
    x = torch.ones(1000, requires_grad=True)
    out = F.dropout(x, 0.25)
    assert set(out.tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert 0.68 < (out != 0).float().mean().item() < 0.82
    out.sum().backward()
    assert (x.grad == out.detach()).all()
    torch.manual_seed(3)
    assert (F.dropout(x, 0.25) == out).all()


def test_dropout_of_channels_takes_all_or_nothing():
    out = F.dropout2d(torch.ones(8, 16, 5, 5))
    sums = out.sum((2, 3))
    assert ((sums == 0) | (sums == 50)).all()
    assert (sums == 0).any() and (sums != 0).any()


def test_dropout_in_place_and_at_its_ends():
    x = torch.ones(4)
    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x, 1.0).tolist() == [0, 0, 0, 0]
    assert F.dropout(x, 1.0, inplace=True) is x
    assert x.tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(x, 1.5)


# -- embeddings ------------------------------------------------------------------------------------


def test_embedding_gradients_add_up():
    weight = torch.tensor(numbers(5, 3), requires_grad=True)
    index = torch.tensor([[1, 1], [4, 0]])
    out = F.embedding(index, weight, padding_idx=0)
    np.testing.assert_allclose(out.detach().numpy(), weight.detach().numpy()[index.numpy()])
    out.sum().backward()
    assert weight.grad[:, 0].tolist() == [0, 2, 0, 0, 1]
    weight.grad = None
    F.embedding(index, weight, scale_grad_by_freq=True).sum().backward()
    assert weight.grad[:, 0].tolist() == [1, 1, 0, 0, 1]


def test_embedding_refuses_rows_that_do_not_exist():
    with pytest.raises(IndexError):
        F.embedding(torch.tensor([5]), torch.zeros(5, 3))


def test_embedding_shrinks_long_rows():
    weight = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    F.embedding(torch.tensor([0, 1]), weight, max_norm=1.0)
    np.testing.assert_allclose(weight.numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-5)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode):
    table, index, offsets = numbers(6, 2), np.array([1, 2, 5, 0, 3]), [0, 2, 2, 4]
    got = F.embedding_bag(torch.tensor(index), torch.tensor(table), torch.tensor(offsets),
                          mode=mode)
    fold = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    bags = [table[index[a:b]] for a, b in zip(offsets, [*offsets[1:], 5], strict=True)]
    wanted = [fold(bag, 0) if len(bag) else np.zeros(2) for bag in bags]
    np.testing.assert_allclose(got.numpy(), wanted)
    check_gradient(lambda v: weighted_sum(F.embedding_bag(
        torch.tensor(index), v, torch.tensor(offsets), mode=mode)), table)


# -- attention -------------------------------------------------------------------------------------


def attention_by_hand(q, k, v, allowed):
    scores = np.where(allowed, q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]), -np.inf)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True) @ v


def test_attention_with_masks():
    q, k, v = numbers(2, 4, 8), numbers(2, 6, 8), numbers(2, 6, 3)
    allowed = RNG.random((4, 6)) < 0.7
    allowed[:, 0] = True
    mask = torch.tensor(allowed)
    tensors = [torch.tensor(t) for t in (q, k, v)]
    got = F.scaled_dot_product_attention(*tensors, attn_mask=mask)
    np.testing.assert_allclose(got.numpy(), attention_by_hand(q, k, v, allowed))
    added = torch.zeros(4, 6, dtype=torch.float64).masked_fill(~mask, -math.inf)
    np.testing.assert_allclose(
        F.scaled_dot_product_attention(*tensors, attn_mask=added).numpy(), got.numpy())
    causal = F.scaled_dot_product_attention(*tensors, is_causal=True)
    np.testing.assert_allclose(causal.numpy(),
                               attention_by_hand(q, k, v, np.tril(np.ones((4, 6), bool))))
    check_gradient(lambda x: weighted_sum(F.scaled_dot_product_attention(
        x, tensors[1], tensors[2], attn_mask=mask)), q)


def test_a_query_that_sees_nothing_gets_nothing():
    mask = torch.tensor([[True, True], [False, False]])
    x = torch.ones(2, 2, requires_grad=True)
    out = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
    out.sum().backward()
    assert out[1].tolist() == [0, 0]
    assert torch.isfinite(x.grad).all()


# -- recurrence ------------------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_hand(x, h, c, w_ih, w_hh, b_ih, b_hh):
    outs = []
    for step in x:
        i, f, g, o = np.split(step @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outs.append(h)
    return np.stack(outs), h, c


def test_lstm_over_a_sequence():
    x, h, c = numbers(5, 3, 4), numbers(3, 2), numbers(3, 2)
    weights = [numbers(8, 4), numbers(8, 2), numbers(8), numbers(8)]
    wanted = lstm_by_hand(x, h, c, *weights)

    def run(*changed):
        hx = (torch.tensor(h[None]), torch.tensor(c[None]))
        given = [torch.tensor(w) for w in weights]
        if changed:
            given[1] = changed[0]
        return torch.lstm(torch.tensor(x), hx, given, True, 1, 0.0, False, False, False)

    out, h_n, c_n = run()
    for got, right in ((out, wanted[0]), (h_n[0], wanted[1]), (c_n[0], wanted[2])):
        np.testing.assert_allclose(got.numpy(), right)
    check_gradient(lambda w: weighted_sum(run(w)[0]) + run(w)[2].sum(), weights[1])


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("both", [False, True])
def test_packed_sequences_end_where_they_end(kind, both):
    torch.manual_seed(0)
    net = getattr(torch.nn, kind)(4, 3, num_layers=2, bidirectional=both)
    x, lengths = torch.randn(5, 3, 4), [5, 3, 2]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths))
    out, _ = torch.nn.utils.rnn.pad_packed_sequence(net(packed)[0])
    for k, n in enumerate(lengths):
        alone = net(x[:n, k:k + 1])[0]
        np.testing.assert_allclose(out[:n, k].detach().numpy(), alone[:, 0].detach().numpy(),
                                   atol=1e-6)
        assert (out[n:, k] == 0).all()


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_bags_of_one_size_are_those_between_offsets(mode, dtype, kind):
    table = torch.randn(7, 3).to(dtype).requires_grad_()
    index = torch.tensor([[1, 1, 6, 0], [2, 5, 5, 5]], dtype=kind)
    offsets, near = torch.tensor([0, 4], dtype=kind), 1e-2 if dtype is torch.float16 else 1e-6
    w, found = torch.randn(2, 3).to(dtype), []
    turned = index.T.contiguous().T
    for given in ((index, table), (turned, table), (index.flatten(), table, offsets)):
        out = F.embedding_bag(*given, mode=mode)
        assert out.dtype is dtype and out.grad_fn.name() == "EmbeddingBagBackward0"
        found.append((out, *torch.autograd.grad((out * w).sum(), table)))
    for pair in found[:2]:
        for one, other in zip(pair, found[2], strict=True):
            assert torch.allclose(one, other, near, near)
    compiled = torch.compile(lambda i, t: F.embedding_bag(i, t, mode=mode) * 2)
    for k in range(4):
        assert torch.allclose(compiled((index + k) % 7, table),
                              F.embedding_bag((index + k) % 7, table, mode=mode) * 2, near, near)


def test_bags_of_one_size_refuse_and_are_empty():
    table = torch.randn(4, 3)
    with pytest.raises(IndexError, match="out of range"):
        F.embedding_bag(torch.tensor([[0, 4]]), table)
    with pytest.raises(RuntimeError, match="Long, Int"):
        F.embedding_bag(torch.tensor([[0.0, 1.0]]), table)
    with pytest.raises(ValueError, match="mode has to be"):
        F.embedding_bag(torch.tensor([[0, 1]]), table, mode="any")
    for mode in ("sum", "mean"):
        empty = torch.zeros(2, 0, dtype=torch.int64)
        assert F.embedding_bag(empty, table, mode=mode).tolist() == [[0] * 3] * 2
        kept = F.embedding_bag(torch.tensor([[0, 1]]), table, mode=mode, padding_idx=1)
        assert torch.allclose(kept[0], table[0])


@pytest.mark.parametrize("seed", range(8))
def test_native_alignments_are_those_of_the_routine(seed):
    """Losses and slopes of sequences of several lengths, some of which nothing can align."""
    rng = np.random.default_rng(seed)
    steps, count, classes, longest = (int(rng.integers(a, b)) for a, b in (
        (1, 30), (1, 5), (2, 9), (0, 12)))
    logs = torch.tensor(rng.standard_normal((steps, count, classes))).log_softmax(2)
    known = {"targets": rng.integers(1, classes, (count, longest)),
             "input_lengths": rng.integers(0, steps + 1, count),
             "target_lengths": rng.integers(0, longest + 1, count), "blank": 0}
    for name in ("ctc_likelihood", "ctc_slopes"):
        found = registry[name](logs, **known).numpy()
        with np.errstate(all="ignore"):
            wanted = ROUTINES[name](log_probs=logs.numpy(), **known)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_what_cannot_be_aligned_has_no_gradient_if_its_loss_is_zero():
    x = torch.randn(2, 1, 4, requires_grad=True)
    loss = F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2, 3]]), torch.tensor([2]),
                      torch.tensor([3]), zero_infinity=True)
    loss.backward()
    assert loss.item() == 0 and not x.grad.any()
