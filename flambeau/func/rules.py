"""How ops are applied to all examples at once: rules by the kind of the op, and by its name.

A rule is given the call and returns its result; what it does not cover it refuses with NoRule.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.nn import functional as F

from .batched import KINDS, RULES, Call, NoRule


def rule(names: str) -> Callable:
    """Decorator: the rule of these ops."""
    def declared(function: Callable) -> Callable:
        RULES.update(dict.fromkeys(names.split(), function))
        return function
    return declared


def _aligned(whole: Any, rank: int) -> Any:
    """A whole whose examples have so many dimensions, ones being put before their own."""
    missing = rank + 1 - whole.dim()
    return whole.reshape(whole.shape[0], *[1] * missing, *whole.shape[1:]) if missing > 0 else whole


# -- by kind ---------------------------------------------------------------------------------------


def pointwise(call: Call) -> Any:
    """Dimensions of examples are aligned from the right; those in front are the examples'."""
    tensors = call.tensors()
    if len(tensors) == 1:
        return call.wrapped(call.wholes())
    rank = max([x.dim() for x in tensors])
    if not _same_promotion(tensors):
        raise NoRule
    return call.wrapped(call.replaced(
        lambda x: _aligned(x.whole, rank) if call.level.owns(x) else x))


def _same_promotion(tensors: list[Any]) -> bool:
    """Whether examples that are single numbers, which have less say about the dtype of a result
    than their wholes have, would have none."""
    dtypes = {x.dtype for x in tensors}
    if len(dtypes) == 1:
        return True
    deciding = {x.dtype for x in tensors if x.dim()} or dtypes
    return (functools.reduce(flambeau.promote_types, deciding)
            == functools.reduce(flambeau.promote_types, dtypes))


def reduction(call: Call) -> Any:
    bound = call.bound()
    x, dim, keepdim = bound["x"], bound["dim"], bound["keepdim"]
    if dim is None or dim == ():
        if keepdim or call.op.running:
            raise NoRule
        return call.wrapped(call.on(x=_rows(x.whole), dim=1))
    return call.wrapped(call.on(x=x.whole, dim=_behind(dim, x.dim())))


def _rows(whole: Any) -> Any:
    """The elements of each example in a row."""
    return whole.flatten(1) if whole.dim() > 1 else whole.unsqueeze(1)


def composite(call: Call) -> Any:
    """Its ops have rules, and gradients; where it has its own the parts may have none as good."""
    if call.op.formula is not None or call.op.keeps:
        raise NoRule
    return call.op.body(*call.args, **call.kwargs)


KINDS.update(pointwise=pointwise, reduction=reduction, composite=composite)


# -- along dimensions that are named ---------------------------------------------------------------


def _behind(dim: Any, rank: int) -> Any:
    """Where a dimension of an example, or several, are in the whole."""
    if isinstance(dim, (tuple, list)):
        return tuple(_behind(d, rank) for d in dim)
    if type(dim) is not int or not -rank <= dim < rank:
        raise NoRule
    return dim % rank + 1


#: ops of one tensor, and their parameters that are dimensions of it
ALONG = {
    "transpose":    "dim0 dim1",
    "flatten":      "start_dim end_dim",
    "select":       "dim",
    "narrow":       "dim",
    "slice":        "dim",
    "unbind":       "dim",
    "split":        "dim",
    "chunk":        "dim",
    "diagonal":     "dim1 dim2",
    "unfold":       "dimension",
    "flip":         "dims",
    "roll":         "dims",
    "movedim":      "source destination",
    "softmax":      "dim",
    "log_softmax":  "dim",
    "sort":         "dim",
    "topk":         "dim",
    "kthvalue":     "dim",
    "median_along": "dim",
    "mode":         "dim",
    "logcumsumexp": "dim",
    "fft_c2c":      "dims",
    "fft_r2c":      "dims",
    "fft_c2r":      "dims",
}  # fmt: skip


@rule(" ".join(ALONG))
def along(call: Call) -> Any:
    bound = call.bound()
    first = call.op.names[0]
    x = _only(call, bound[first])
    dims = {name: _behind(bound[name], x.dim()) for name in ALONG[call.op.name].split()}
    return call.wrapped(call.on(**{first: x.whole}, **dims))


def _only(call: Call, x: Any) -> Any:
    """The tensor that alone is batched."""
    if not call.level.owns(x) or any(call.level.owns(y) for y in call.tensors() if y is not x):
        raise NoRule
    return x


@rule("vector_norm")
def norm(call: Call) -> Any:
    bound = call.bound()
    x = _only(call, bound["x"])
    if bound["dim"] is None and not bound["keepdim"]:
        return call.wrapped(call.on(x=_rows(x.whole), dim=1))
    return call.wrapped(call.on(x=x.whole, dim=_behind(bound["dim"], x.dim())))


@rule("gather take_along_dim")
def along_with_others(call: Call) -> Any:
    bound = call.bound()
    index = "index" if "index" in bound else "indices"
    x, places, level = bound["x"], bound[index], call.level
    if not x.dim() or x.dim() != places.dim():
        raise NoRule
    return call.wrapped(call.on(**{"x": level.whole(x), index: level.whole(places)},
                                dim=_behind(bound["dim"], x.dim())))


# -- shapes ----------------------------------------------------------------------------------------


@rule("detach alias clone contiguous real imag zeros_like ones_like full_like empty_like tril triu "
      "constant_pad_nd inv inv_ex det slogdet cholesky cholesky_ex qr eigh eig svd lu_factor_ex")
def as_it_is(call: Call) -> Any:
    """What looks at each element, or at the last two dimensions, whatever is before them."""
    first = call.args[0] if call.args else None
    _only(call, first)
    return call.wrapped(call.wholes())


@rule("unsqueeze")
def unsqueeze(call: Call) -> Any:
    x, dim = call.bound().values()
    return call.wrapped(x.whole.unsqueeze(_behind(dim, x.dim() + 1)))


@rule("squeeze")
def squeeze(call: Call) -> Any:
    x, dim = call.bound().values()
    if dim is None:
        return call.wrapped(x.whole.reshape(x.whole.shape[0], *[n for n in x.shape if n != 1]))
    return call.wrapped(x.whole.squeeze(_behind(dim, x.dim())))


@rule("permute")
def permute(call: Call) -> Any:
    x, dims = call.bound().values()
    return call.wrapped(x.whole.permute(0, *_behind(tuple(dims), x.dim())))


@rule("t")
def turned(call: Call) -> Any:
    (x,) = call.bound().values()
    if x.dim() > 2:
        raise NoRule
    return call.wrapped(x.whole.transpose(1, 2) if x.dim() == 2 else x.whole)


@rule("reshape view")
def reshape(call: Call) -> Any:
    x, shape = call.bound().values()
    shape = (shape,) if isinstance(shape, int) else shape
    if not isinstance(shape, (tuple, list)):
        raise NoRule
    return call.wrapped(x.whole.reshape(call.level.size, *shape))


@rule("expand")
def expand(call: Call) -> Any:
    x, shape = call.bound().values()
    shape = (shape,) if isinstance(shape, int) else shape
    return call.wrapped(_aligned(x.whole, len(shape)).expand(call.level.size, *shape))


@rule("cat stack")
def joined(call: Call) -> Any:
    bound = call.bound()
    tensors, rank = bound["tensors"], bound["tensors"][0].dim() + (call.op.name == "stack")
    if any(x.dim() != tensors[0].dim() for x in tensors):
        raise NoRule
    return call.wrapped(call.func([call.level.whole(x) for x in tensors],
                                  _behind(bound["dim"], rank)))


@rule("__getitem__")
def getitem(call: Call) -> Any:
    x, key = call.args
    key = key if type(key) is tuple else (key,)
    lists = [k for k in key if isinstance(k, (Tensor, list))]
    if any(call.level.owns(k) for k in key):
        return call.wrapped(_at_places(call, x, key))
    # Where there are several lists, or one and a number, it depends where their dimension goes.
    if len(lists) > 1 or (lists and any(type(k) is not slice for k in key if k is not lists[0])):
        raise NoRule
    return call.wrapped(x.whole[(slice(None), *key)])


def _at_places(call: Call, x: Any, key: tuple) -> Any:
    """Elements, or rows of them, at places that each example has its own of."""
    level = call.level
    places = [k for k in key if isinstance(k, Tensor) and k.dtype == flambeau.int64]
    rank = max(k.dim() for k in places)
    if len(places) + sum(type(k) is int for k in key) < len(key):
        raise NoRule
    whole = tuple(_aligned(k.whole, rank) if level.owns(k) else k for k in key)
    if not level.owns(x):
        return x[whole]
    return x.whole[(flambeau.arange(level.size).reshape(-1, *[1] * rank), *whole)]


# -- products --------------------------------------------------------------------------------------


@rule("dot")
def dot(call: Call) -> Any:
    a, b = call.bound().values()
    if not a.dim() == b.dim() == 1 or a.dtype != b.dtype or a.shape != b.shape:
        raise NoRule
    a, b = (x.whole if call.level.owns(x) else x for x in (a, b))
    return call.wrapped((a * b).sum(1))


@rule("matmul mm bmm mv")
def product(call: Call) -> Any:
    a, b = call.bound().values()
    return call.wrapped(_product(call, a, b))


def _product(call: Call, a: Any, b: Any) -> Any:
    """The matrix product as torch.matmul has it, of vectors or stacks of matrices."""
    row, column = a.dim() == 1, b.dim() == 1
    if not a.dim() or not b.dim():
        raise NoRule
    rank = max(a.dim(), b.dim(), 2)
    left = _matrices(call, a, rank, -2 if row else None)
    right = _matrices(call, b, rank, -1 if column else None)
    out = left @ right
    out = out.squeeze(-1) if column else out
    return out.squeeze(-1 if column else -2) if row else out


def _matrices(call: Call, x: Any, rank: int, vector: int | None) -> Any:
    """A factor as matrices, those of examples in front; one that is not batched has them once."""
    owned = call.level.owns(x)
    whole = x.whole if owned else x
    whole = whole.unsqueeze(vector) if vector is not None else whole
    return _aligned(whole, rank) if owned else whole


@rule("addmm addmv baddbmm")
def added_product(call: Call) -> Any:
    x, a, b, beta, alpha = call.bound().values()
    return x * beta + alpha * call.level.batched(_product(call, a, b))


@rule("linear")
def linear(call: Call) -> Any:
    x, weight, bias = call.bound().values()
    level = call.level
    if not level.owns(weight):
        out = F.linear(level.whole(x), weight, None if level.owns(bias) else bias)
        return call.wrapped(out + _aligned(bias.whole, x.dim()) if level.owns(bias) else out)
    if weight.dim() != 2 or not x.dim():
        raise NoRule
    rows = level.whole(x)
    rows = rows.unsqueeze(1) if x.dim() == 1 else rows.flatten(1, -2)
    turned = weight.whole.mT
    if bias is None:
        out = flambeau.bmm(rows, turned)
    else:
        out = flambeau.baddbmm(level.whole(bias).unsqueeze(1), rows, turned)
    return call.wrapped(out.reshape(level.size, *x.shape[:-1], weight.shape[0]))


@rule("einsum")
def einsum(call: Call) -> Any:
    equation, *operands = call.args
    if not isinstance(equation, str) or "." in equation or len(operands) != equation.count(",") + 1:
        raise NoRule
    given, _, wanted = equation.replace(" ", "").partition("->")
    if "->" not in equation:
        letters = given.replace(",", "")
        wanted = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    batch = next(c for c in string.ascii_letters if c not in equation)
    parts = [batch + part if call.level.owns(x) else part
             for part, x in zip(given.split(","), operands, strict=True)]
    wholes = [x.whole if call.level.owns(x) else x for x in operands]
    return call.wrapped(flambeau.einsum(f"{','.join(parts)}->{batch}{wanted}", *wholes))


@rule("solve")
def solve(call: Call) -> Any:
    bound = call.bound()
    A, B = bound["A"], bound["B"]
    if A.dim() != 2 or B.dim() > 2:
        raise NoRule
    sides = call.level.whole(B)
    found = call.on(A=call.level.whole(A), B=sides if B.dim() == 2 else sides.unsqueeze(-1))
    return call.wrapped(found if B.dim() == 2 else found.squeeze(-1))


@rule("solve_matrices solve_triangular scaled_dot_product_attention")
def aligned(call: Call) -> Any:
    """What broadcasts all but the last dimensions."""
    rank = max(x.dim() for x in call.tensors())
    if any(x.dim() < 2 for x in call.tensors()):
        raise NoRule
    return call.wrapped(call.replaced(
        lambda x: _aligned(x.whole, rank) if call.level.owns(x) else x))


# -- layers ----------------------------------------------------------------------------------------


@rule("convolution")
def convolution(call: Call) -> Any:
    """Examples with weights of their own are groups of channels of one convolution."""
    bound, level = call.bound(), call.level
    x, weight, bias = bound["input"], bound["weight"], bound["bias"]
    if bias is not None and (level.owns(bias) or level.owns(weight)):
        return call.on(bias=None) + bias.reshape(-1, *[1] * (x.dim() - 2))
    if not level.owns(weight):
        out = call.on(input=x.whole.flatten(0, 1))
        return call.wrapped(out.unflatten(0, (level.size, -1)))
    images = level.whole(x).transpose(0, 1).flatten(1, 2)
    out = call.on(input=images, weight=weight.whole.flatten(0, 1),
                  groups=bound["groups"] * level.size)
    return call.wrapped(out.unflatten(1, (level.size, -1)).transpose(0, 1))


#: ops on images with channels in a batch, and the dimensions that they have with it
IMAGES = {
    "max_pool1d_with_indices": 3, "max_pool1d_values": 3, "avg_pool1d": 3,
    "max_pool2d_with_indices": 4, "max_pool2d_values": 4, "avg_pool2d": 4,
    "max_pool3d_with_indices": 5, "max_pool3d_values": 5, "avg_pool3d": 5,
    "max_pool2d": 4, "adaptive_avg_pool2d": 4, "interpolate": 0, "group_norm": 0,
}


@rule(" ".join(IMAGES))
def images(call: Call) -> Any:
    bound = call.bound()
    first = call.op.names[0]
    x = _only(call, bound[first])
    rank = IMAGES[call.op.name]
    if rank and x.dim() == rank - 1:
        return call.wrapped(call.on(**{first: x.whole}))
    if rank and x.dim() != rank:
        raise NoRule
    found = call.on(**{first: x.whole.flatten(0, 1)})
    several = isinstance(found, (tuple, list))
    parts = [y.unflatten(0, (call.level.size, -1)) for y in (found if several else (found,))]
    return call.wrapped(tuple(parts) if several else parts[0])


@rule("layer_norm rms_norm")
def normalised(call: Call) -> Any:
    bound = call.bound()
    x, own = bound["input"], {k: bound[k] for k in ("weight", "bias") if k in bound}
    if call.level.owns(x) and not any(map(call.level.owns, own.values())):
        return call.wrapped(call.on(input=x.whole))
    out = call.on(**dict.fromkeys(own))
    out = out if own["weight"] is None else out * own["weight"]
    return out if own.get("bias") is None else out + own["bias"]


@rule("embedding")
def embedding(call: Call) -> Any:
    """Tables of examples lie one after the other, and places in them count on."""
    bound, level = call.bound(), call.level
    places = "input" if "input" in bound else "indices"
    x, table = bound[places], bound["weight"]
    if not level.owns(table):
        return call.wrapped(call.on(**{places: x.whole}))
    if bound.get("max_norm") is not None or bound["padding_idx"] not in (None, -1):
        raise NoRule
    starts = flambeau.arange(level.size).reshape(-1, *[1] * x.dim()) * table.shape[0]
    return call.wrapped(call.on(**{places: level.whole(x) + starts,
                                   "weight": table.whole.flatten(0, 1)}))


@rule("one_hot")
def one_hot(call: Call) -> Any:
    if call.bound()["num_classes"] < 0:
        raise NoRule
    return call.wrapped(call.wholes())


# -- losses ----------------------------------------------------------------------------------------


def _reduced(rows: Any, how: str, count: Any = None) -> Any:
    """Losses of all elements, reduced for each example."""
    if how == "none":
        return rows
    rows = _rows(rows)
    if how == "mean" and count is None:
        return rows.mean(1)
    return rows.sum(1) / count if how == "mean" else rows.sum(1)


@rule("mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss "
      "binary_cross_entropy_with_logits")
def loss_of_elements(call: Call) -> Any:
    bound, level = call.bound(), call.level
    x, y, how = bound["input"], bound["target"], bound["reduction"]
    if how not in ("none", "mean", "sum") or x.shape != y.shape or any(
            bound.get(name) is not None for name in ("size_average", "reduce", "weight",
                                                     "pos_weight")):
        raise NoRule
    each = call.on(input=level.whole(x), target=level.whole(y), reduction="none")
    return call.wrapped(_reduced(each, how))


@rule("cross_entropy nll_loss")
def loss_of_classes(call: Call) -> Any:
    bound, level = call.bound(), call.level
    x, y, how = bound["input"], bound["target"], bound["reduction"]
    if how not in ("none", "mean", "sum") or x.dim() not in (1, 2) or y.dim() != x.dim() - 1 or any(
            bound[name] is not None for name in ("size_average", "reduce", "weight")):
        raise NoRule
    logits, labels = level.whole(x), level.whole(y)
    rows = logits.flatten(0, 1) if x.dim() == 2 else logits
    each = call.on(input=rows, target=labels.reshape(-1), reduction="none")
    counted = (labels != bound["ignore_index"]).reshape(level.size, -1).sum(1)
    return call.wrapped(_reduced(each.reshape(labels.shape), how, counted))
