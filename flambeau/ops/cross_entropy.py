"""Cross entropy and the negative log-likelihood of classes: one kernel forward, one back."""

from __future__ import annotations

import functools
import math

from ..core import dtype as dt
from ..core import expr as e
from ..core.rows import along, each, once, row_program
from .declare import T, composite, engine, registry
from .loss_reduction import check_smoothing, reduction_of
from .refusal import spoken

# -- programs --------------------------------------------------------------------------------------


def _weight_of_target(rows, x, target, weight):
    """The weight of a row's class: 1 without weights."""
    if weight is None:
        return e.const(1, x.dtype)
    return rows.sum(e.where(_chosen(rows, target), weight, 0))


def _chosen(rows, target):
    """Whether this is the target's place; in 32 bits, for classes that do not exist are refused."""
    return e.cast(rows.position, dt.int32) == e.cast(target, dt.int32)


def _kept(target, ignored, value):
    return e.where(target == ignored, e.const(0, value.dtype), value)


def _results(rows, loss, own, target, weight, ignored, *more):
    """The loss, the class's weight if there are weights, and what else there is."""
    weights = () if weight is None else (rows.once(_kept(target, ignored, own)),)
    return (rows.once(_kept(target, ignored, loss)), *more, *weights)


@row_program
def entropies(rows, x: each, target: once, weight: along, *, ignored, smoothing):
    """Of each row of logits: the loss, the log of the sum of exponentials, and with weights the
    class's own."""
    largest = rows.top(x)
    shift = e.where(e.call("abs", largest) == math.inf, e.const(0, x.dtype), largest)
    above = x - shift
    total, chosen = rows.sums(e.call("exp_falling", above),
                              e.where(_chosen(rows, target), above, 0))
    log_total = e.call("log", total)
    lse = log_total + shift
    own = _weight_of_target(rows, x, target, weight)
    loss = own * (log_total - chosen)
    if smoothing is not None:
        apart = lse - x
        spread = rows.sum(apart if weight is None else weight * apart) / rows.count
        loss = (1 - smoothing) * loss + smoothing * spread
    return _results(rows, loss, own, target, weight, ignored, rows.once(lse))


@row_program
def entropy_slopes(rows, x: each, target: once, weight: along, g: once, divisor: once, lse: once, *,
                   ignored, smoothing):
    """The gradient of the logits."""
    here = _chosen(rows, target)
    own = _weight_of_target(rows, x, target, weight)
    likely = e.call("exp_falling", x - lse)  # rounding may lift it above 0, but hardly
    if smoothing is None:
        slope = own * e.where(here, likely - 1, likely)
    else:
        each_weight = e.const(1, x.dtype) if weight is None else weight
        whole = rows.count if weight is None else rows.sum(weight)
        share = smoothing / rows.count
        slope = ((1 - smoothing) * own * e.where(here, likely - 1, likely)
                 + share * (whole * likely - each_weight))
    scale = g if divisor is None else g / divisor
    return rows.each(_kept(target, ignored, scale * slope))


@row_program
def likelihoods(rows, x: each, target: once, weight: along, *, ignored):
    """Of each row of log-probabilities: minus that of the class, and with weights its own."""
    chosen = rows.sum(e.where(_chosen(rows, target), x, 0))
    own = _weight_of_target(rows, x, target, weight)
    return _results(rows, -own * chosen, own, target, weight, ignored)


@row_program
def likelihood_slopes(rows, x: each, target: once, weight: along, g: once, divisor: once, *,
                      ignored):
    """The gradient of the log-probabilities."""
    own = e.const(1, x.dtype) if weight is None else weight
    scale = g * own if divisor is None else g * own / divisor
    return rows.each(e.where(_chosen(rows, target) & (target != ignored), -scale, 0))


@row_program
def averaged(rows, losses: each, weights: each, target: each, *, ignored, classes, mean):
    """The mean or sum of losses, and the sum of weights: NaN if there are classes that do not
    exist."""
    counted = e.cast(target != ignored, losses.dtype)
    wrong = (target != ignored) & ((target < 0) | (target >= classes))
    total, weight, bad = rows.sums(losses, counted if weights is None else weights,
                                   e.cast(wrong, losses.dtype))
    checked = e.where(bad > 0, e.const(math.nan, weight.dtype), weight)
    return rows.once(total / weight if mean else total), rows.once(checked)


@row_program
def misplaced(rows, target: each, *, ignored, classes):
    """How many classes do not exist."""
    wrong = (target != ignored) & ((target < 0) | (target >= classes))
    return rows.once(rows.sum(e.cast(wrong, dt.int64)), dt.int64)


# -- what the two losses share ---------------------------------------------------------------------


def class_dim(rank: int) -> int:
    return 0 if rank == 1 else 1


@functools.cache
def dims_of(rank: int) -> tuple[int, ...]:
    return tuple(range(rank))


def _refuse_classes(target, ignored: int, classes: int) -> None:
    """IndexError for the first class that does not exist, if there is one."""
    for t in engine.to_array(target).ravel().tolist():
        if t != ignored and not 0 <= t < classes:
            raise IndexError(f"Target {t} is out of bounds: there are {classes} classes.")


def _refuse_misplaced(target, ignored: int, classes: int) -> None:
    wrong = misplaced(target, dims=dims_of(target.sig.rank), ignored=ignored, classes=classes)

    def refuse() -> Exception:
        _refuse_classes(target, ignored, classes)
        return IndexError(f"Target is out of bounds: there are {classes} classes.")

    engine.check_none(wrong, refuse)


def _finished(losses, weights, target, ignored: int, classes: int, reduction: str):
    """The reduced loss and what a mean divides by; classes that do not exist are refused."""
    weights = weights[0] if weights else None
    if reduction == "none":
        if not target.is_meta:
            _refuse_misplaced(target, ignored, classes)
        return losses, None
    dims = dims_of(losses.sig.rank)
    loss, divisor = averaged(losses, weights, target, dims=dims, ignored=ignored, classes=classes,
                             mean=reduction == "mean")
    if target.sig.device.type != "meta":
        if engine.checks_are_recorded():
            _refuse_misplaced(target, ignored, classes)
        elif math.isnan(divisor.item()):
            _refuse_classes(target, ignored, classes)
    return loss, divisor if reduction == "mean" else None


def _chosen_places(input, target, dim: int):
    """True where a class is the target: for derivatives of derivatives."""
    classes = engine.tensor(list(range(input.shape[dim])))
    shape = [1] * input.dim()
    shape[dim] = -1
    return engine.reshape(classes, shape) == registry["unsqueeze"](target, dim)


def _scales(g, input, target, weight, divisor, ignored: int, dim: int):
    """g over what a mean divides by, zero where a target is ignored; with room for classes."""
    scale = g if divisor is None else g / divisor
    scale = registry["where"](target == ignored, 0.0, scale)
    scale = registry["unsqueeze"](scale, dim)
    own = None
    if weight is not None:
        shape = [1] * input.dim()
        shape[dim] = -1
        own = engine.reshape(weight, shape)
    return scale, own


# -- cross entropy ---------------------------------------------------------------------------------


def _step_name(step) -> str:
    """torch has a form of its own for rows of more than classes, as of images."""
    before, number = step.next_functions[0]
    shape = before.variable.shape if hasattr(before, "variable") else before.sigs[number].shape
    return "NllLossBackward0" if len(shape) < 3 else "NllLoss2DBackward0"


@composite(method=False, function_form=False, backward=_step_name, keeps=True)
def class_entropy(input: T, target, weight, ignore_index, reduction, smoothing):
    """Cross entropy of logits with classes."""
    dim = class_dim(input.sig.rank)
    losses, lse, *weights = entropies(input, target, weight, dims=(dim,), ignored=ignore_index,
                                      smoothing=smoothing)
    loss, divisor = _finished(losses, weights, target, ignore_index, input.sig.shape[dim],
                              reduction)
    return loss, (input, target, weight, ignore_index, smoothing, lse, divisor)


@class_entropy.gradient
def class_entropy(g, input, target, weight, ignore_index, smoothing, lse, divisor):
    dim = class_dim(input.sig.rank)
    if not engine.recording():
        return entropy_slopes(input, target, weight, engine.cast(g, input.dtype), divisor, lse,
                              dims=(dim,), ignored=ignore_index, smoothing=smoothing)
    scale, own = _scales(g, input, target, weight, divisor, ignore_index, dim)
    wanted = engine.cast(_chosen_places(input, target, dim), input.dtype)
    wanted = wanted if own is None else wanted * own
    if smoothing is not None:
        evenly = smoothing / input.shape[dim]
        wanted = (1 - smoothing) * wanted + (evenly if own is None else evenly * own)
    likely = registry["softmax"](input, dim)
    return scale * (likely * registry["sum"](wanted, dim, True) - wanted)


@composite(method=False, function_form=False, backward=_step_name, keeps=True)
def class_likelihood(input: T, target, weight, ignore_index, reduction):
    """Minus the log-probabilities of classes."""
    dim = class_dim(input.sig.rank)
    found = likelihoods(input, target, weight, dims=(dim,), ignored=ignore_index)
    losses, *weights = found if weight is not None else (found,)
    loss, divisor = _finished(losses, weights, target, ignore_index, input.sig.shape[dim],
                              reduction)
    return loss, (input, target, weight, ignore_index, divisor)


@class_likelihood.gradient
def class_likelihood(g, input, target, weight, ignore_index, divisor):
    dim = class_dim(input.sig.rank)
    if not engine.recording():
        return likelihood_slopes(input, target, weight, engine.cast(g, input.dtype), divisor,
                                 dims=(dim,), ignored=ignore_index)
    scale, own = _scales(g, input, target, weight, divisor, ignore_index, dim)
    places = engine.cast(_chosen_places(input, target, dim), input.dtype)
    return -scale * (places if own is None else places * own)


# -- public ----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _check_classes(name: str, input, target, weight) -> None:
    """Refuse signatures that do not fit together."""
    if input.dim() > 1 and target.dim() and input.shape[0] != target.shape[0]:
        raise ValueError(f"Expected input batch_size ({input.shape[0]}) to match target batch_size "
                         f"({target.shape[0]}).")
    if target.dtype is not dt.int64 and target.dtype is not dt.uint8:
        raise RuntimeError(f"{name}: expected target of scalar type Long but found "
                           f"{spoken(target.dtype)}")
    if input.dtype.kind != "f":
        raise NotImplementedError(f'"{name}_out_frame" not implemented for '
                                  f"'{spoken(input.dtype)}'")
    dim = class_dim(input.rank)
    wanted = (*input.shape[:dim], *input.shape[dim + 1:])
    if tuple(target.shape) != tuple(wanted):
        raise RuntimeError(f"{name}: Expected target size {list(wanted)}, got {list(target.shape)}")
    if weight is not None and (weight.dim() != 1 or weight.shape[0] != input.shape[dim]):
        raise RuntimeError(f"{name}: weight tensor should be defined either for all "
                           f"{input.shape[dim]} classes or no classes but got weight tensor of "
                           f"shape: {list(weight.shape)}")
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(f"{name}: expected scalar type {spoken(input.dtype)} but found "
                           f"{spoken(weight.dtype)}")


@composite(where="nn.functional")
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None,
             reduction="mean"):
    """Minus the log-probability of the target class."""
    if reduction != "mean" or size_average is not None or reduce is not None:
        reduction = reduction_of(reduction, size_average, reduce)
    if not input.sig.rank:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if input.sig.rank == 1 and target.sig.rank == 1 and target.sig.shape[0] == 1:
        target = engine.reshape(target, ())
    _check_classes("nll_loss", input.sig, target.sig, None if weight is None else weight.sig)
    return class_likelihood.run(input, target, weight, ignore_index, reduction)


@composite(where="nn.functional")
def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None,
                  reduction="mean", label_smoothing=0.0):
    """Minus the log of the softmax of the target class, or against class probabilities."""
    if reduction != "mean" or size_average is not None or reduce is not None:
        reduction = reduction_of(reduction, size_average, reduce)
    if label_smoothing:
        check_smoothing(label_smoothing)
    if not input.sig.rank:
        raise ValueError("cross_entropy: Expected 1 or more dimensions of logits (got 0)")
    if target.sig.shape == input.sig.shape:
        return _against_probabilities(input, target, weight, ignore_index, reduction,
                                      label_smoothing)
    _check_classes("cross_entropy", input.sig, target.sig, None if weight is None else weight.sig)
    smoothing = float(label_smoothing) if label_smoothing else None
    return class_entropy.run(input, target, weight, ignore_index, reduction, smoothing)


def _against_probabilities(input, target, weight, ignore_index: int, reduction: str, smoothing):
    if target.dtype.kind != "f":
        raise RuntimeError("Expected floating point type for target with class probabilities, got "
                           f"{spoken(target.dtype)}")
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    dim = class_dim(input.sig.rank)
    if weight is not None:
        if weight.dim() != 1 or weight.shape[0] != input.shape[dim]:
            raise RuntimeError(f"cross_entropy: weight tensor should be defined either for all "
                               f"{input.shape[dim]} classes or no classes but got weight tensor of "
                               f"shape: {list(weight.shape)}")
        shape = [1] * input.dim()
        shape[dim] = -1
        weight = engine.reshape(weight, shape)
    if smoothing > 0:
        target = target * (1 - smoothing) + smoothing / input.shape[dim]
    losses = registry["log_softmax"](input, dim) * target
    losses = losses if weight is None else losses * weight
    if reduction == "none":
        return -registry["sum"](losses, dim)
    total = -registry["sum"](losses)
    rows = math.prod(input.shape) // input.shape[dim] if input.shape[dim] else 0
    return total if reduction == "sum" else total / rows
