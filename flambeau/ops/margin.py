"""Losses with a margin: what is right by enough costs nothing."""

from __future__ import annotations

from ..core import dtype as dt
from ..core.lazily import np
from .activation import logsigmoid
from .declare import composite, engine, registry
from .loss_reduction import reduced, reduction_of
from .refusal import spoken
from .similarity import pairwise_distance


def _at_least_zero(x):
    return registry["clamp_min"](x, 0)


def _where(condition, x, y):
    return registry["where"](condition, x, y)


@composite(where="nn.functional")
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None,
                         reduction="mean"):
    """input where target is 1, max(0, margin - input) where it is -1."""
    reduction = reduction_of(reduction, size_average, reduce)
    apart = _where(target != 1, _at_least_zero(margin - input), 0.0)
    near = _where(target != -1, input, 0.0)
    return reduced(apart + near, reduction)


@composite(where="nn.functional")
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None,
                        reduction="mean"):
    """max(0, -target (input1 - input2) + margin)"""
    reduction = reduction_of(reduction, size_average, reduce)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError("margin_ranking_loss : All input tensors should have same dimension but "
                           f"got sizes: input1: {input1.shape}, input2: {input2.shape}, target: "
                           f"{target.shape} ")
    return reduced(_at_least_zero(-target * (input1 - input2) + float(margin)), reduction)


@composite(where="nn.functional")
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None,
                          reduction="mean"):
    """1 - cosine where target is 1, max(0, cosine - margin) where it is -1."""
    reduction = reduction_of(reduction, size_average, reduce)
    dims = target.dim()
    if dims > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input1.dim() != dims + 1 or input2.dim() != dims + 1:
        raise RuntimeError(f"{dims}D target tensor expects {dims + 1}D input tensors, but found "
                           f"inputs with sizes {list(input1.shape)} and {list(input2.shape)}.")
    total = registry["sum"](input1 * input2, dims)
    sizes = [registry["sum"](x * x, dims) + 1e-12 for x in (input1, input2)]
    cosine = total / registry["sqrt"](sizes[0] * sizes[1])
    like = _where(target == 1, 1 - cosine, 0.0)
    unlike = _where(target == -1, _at_least_zero(cosine - margin), 0.0)
    return reduced(like + unlike, reduction)


@composite(where="nn.functional")
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None,
                                reduction="mean"):
    """Binary cross entropy of each of several labels, averaged over the labels."""
    reduction = reduction_of(reduction, size_average, reduce)
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    losses = losses if weight is None else losses * weight
    return reduced(registry["sum"](losses, input.dim() - 1) / input.shape[-1], reduction)


# -- one class against all others ------------------------------------------------------------------


def _as_batch(name: str, input, target, target_dims: int):
    """(N, C) scores and their targets; how to undo it for the result."""
    no_classes = input.dim() == 2 and not input.shape[1]
    if input.dim() > 2 or no_classes or (input.dim() < 2 and not input.numel()):
        raise RuntimeError(f"{name}: Expected non-empty vector or matrix with optional 0-dim batch "
                           f"size, but got: {list(input.shape)}")
    batched = input.dim() == 2
    if batched:
        wanted = tuple(input.shape)[:1 + (target_dims == 2)]
    else:
        wanted = (input.numel(),) if target_dims == 2 else (1,)
        target = engine.reshape(target, (-1,)) if target.dim() == 0 else target
    if tuple(target.shape) != wanted:
        have, given = list(input.shape), list(target.shape)
        raise RuntimeError(
            f"{name}: inconsistent target size: {given} for input of size: {have}"
            if target_dims == 2 else
            f"{name}: target tensor should be 1-D with size equal to the number of input samples "
            f"(batch size). Expected target size {list(wanted)}, but got {given}. Input has shape "
            f"{have}.")
    if batched:
        return input, target, True
    shape = (1, -1)
    wanted = shape if target_dims == 2 else (1,)
    return engine.reshape(input, shape), engine.reshape(target, wanted), False


@composite(where="nn.functional", backward="MultiMarginLossBackward0")
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None,
                      reduction="mean"):
    """Margins between the score of the target class and each other, to the power p."""
    reduction = reduction_of(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError(f"only p == 1 and p == 2 supported, got p={p}")
    if weight is not None and weight.dim() != 1:
        raise ValueError(f"weight must be one-dimensional, got {weight.dim()} dimensions")
    scalar_target = target.dim() == 0
    scores, target, batched = _as_batch("multi_margin_loss", input, target, 1)
    classes = scores.shape[1]
    if weight is not None and weight.numel() != classes:
        raise RuntimeError(f"multi_margin_loss: inconsistent weight size, expected {classes} but "
                           f"got {list(weight.shape)}")
    _require_classes("multi_margin_loss", target, classes)
    column = engine.reshape(target, (-1, 1))
    apart = _at_least_zero(margin - registry["gather"](scores, 1, column) + scores)
    apart = apart * apart if p == 2 else apart
    if weight is not None:
        apart = apart * engine.reshape(registry["index_select"](weight, 0, target), (-1, 1))
    others = engine.tensor(np.arange(classes)) != column
    losses = registry["sum"](_where(others, apart, 0.0), 1) / classes
    if not batched and (scalar_target or not input.dim()):
        losses = engine.reshape(losses, ())
    return reduced(losses, reduction)


def _require_classes(name: str, target, classes: int) -> None:
    if target.dtype is not dt.int64:
        raise RuntimeError(f"{name}: target: expected scalar type Long but found "
                           f"{spoken(target.dtype)}")
    engine.check_bounds(target, 0, classes, lambda _: RuntimeError(
        f"{name}: target out of range: there are {classes} classes"))


@composite(where="nn.functional", backward="MultilabelMarginLossBackward0")
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Margins between the scores of the target classes and of all others."""
    reduction = reduction_of(reduction, size_average, reduce)
    if not input.dim():
        input = engine.reshape(input, (1,))
        target, single = engine.reshape(target, (1,)), True
    else:
        single = input.dim() == 1
    scores, target, batched = _as_batch("multilabel_margin_loss", input, target, 2)
    labels = engine.to_array(target)
    n, classes = labels.shape
    if labels.size and (labels.max() >= classes or labels.min() < -1):
        raise RuntimeError("multilabel_margin_loss: Expected argument target to be in range "
                           f"[-1, {classes - 1}]")
    named = np.cumprod(labels >= 0, axis=1).astype(bool)
    right = np.zeros((n, classes), bool)
    rows = np.repeat(np.arange(n), named.sum(1))
    right[rows, labels[named]] = True
    wanted = registry["gather"](scores, 1, engine.tensor(np.where(named, labels, 0)))
    apart = _at_least_zero(1 - engine.reshape(wanted, (n, classes, 1))
                           + engine.reshape(scores, (n, 1, classes)))
    counted = engine.tensor(named[:, :, None] & ~right[:, None, :])
    losses = registry["sum"](_where(counted, apart, 0.0), (1, 2)) / classes
    return reduced(engine.reshape(losses, ()) if single and not batched else losses, reduction)


# -- triplets --------------------------------------------------------------------------------------


def _triplet(anchor, positive, negative, distance, margin, swap, reduction):
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError("The anchor, positive, and negative tensors are expected to have the "
                           f"same number of dimensions, but got: anchor {anchor.dim()}D, positive "
                           f"{positive.dim()}D, and negative {negative.dim()}D inputs")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = registry["minimum"](far, distance(positive, negative))
    return reduced(_at_least_zero(margin + near - far), reduction)


@composite(where="nn.functional")
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False,
                        size_average=None, reduce=None, reduction="mean"):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d being a p-norm."""
    reduction = reduction_of(reduction, size_average, reduce)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(anchor, positive, negative, lambda x, y: pairwise_distance(x, y, p, eps),
                    margin, swap, reduction)


@composite(where="nn.functional")
def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None,
                                      margin=1.0, swap=False, reduction="mean"):
    """The triplet margin loss of any distance."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(anchor, positive, negative, distance_function or pairwise_distance, margin,
                    swap, reduction_of(reduction))
