"""Sums of products over named or numbered dimensions: einsum, tensordot, kron."""

from __future__ import annotations

import functools
import math
import string

from ..core import dtype as dt
from ..core import shape as sh
from .declare import composite, engine
from .product import bmm, mm
from .shape import permute, reshape

LETTERS = string.ascii_uppercase + string.ascii_lowercase


@composite(method=False)
def tensordot(a, b, dims=2):
    """Sums of products over some dimensions of both tensors."""
    dims = dims.tolist() if hasattr(dims, "tolist") else dims
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        dims = (list(range(a.dim() - dims, a.dim())), list(range(dims)))
    over_a, over_b = (sh.wrap_dims((d,) if isinstance(d, int) else d, x.dim(), "tensordot")
                      for d, x in zip(dims, (a, b), strict=True))
    if len(over_a) != len(over_b):
        raise RuntimeError("both dimension lists should have same length")
    a, b = _ones_summed(a, over_a, b, over_b)
    kept_a = [d for d in range(a.dim()) if d not in over_a]
    kept_b = [d for d in range(b.dim()) if d not in over_b]
    shape = (*(a.shape[d] for d in kept_a), *(b.shape[d] for d in kept_b))
    inner = 1
    for d in over_a:
        inner *= a.shape[d]
    outer_a, outer_b = (_count(x, kept) for x, kept in ((a, kept_a), (b, kept_b)))
    left = a.permute((*kept_a, *over_a)).reshape((outer_a, inner))
    right = b.permute((*over_b, *kept_b)).reshape((inner, outer_b))
    return mm(left, right).reshape(shape)


def summed(x, dims, keepdim: bool = False):
    """A sum that keeps the dtype, as products do."""
    return engine.cast(x.sum(dims, keepdim), x.dtype)


def _count(x, dims) -> int:
    total = 1
    for d in dims:
        total *= x.shape[d]
    return total


def _ones_summed(a, over_a, b, over_b):
    """A dimension of size 1 on one side stands for any size: the other side is summed."""
    for i, j in zip(over_a, over_b, strict=True):
        if a.shape[i] == b.shape[j]:
            continue
        if b.shape[j] == 1:
            a = summed(a, i, True)
        elif a.shape[i] == 1:
            b = summed(b, j, True)
        else:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} "
                f"and second has size {b.shape[j]} in dim {j}")
    return a, b


@composite(backward="UnsafeViewBackward0")
def kron(input, other):
    """Every product of an element of one with the whole of the other, block by block."""
    rank = max(input.dim(), other.dim())
    one = (1,) * (rank - input.dim()) + tuple(input.shape)
    two = (1,) * (rank - other.dim()) + tuple(other.shape)
    left = tuple(n for size in one for n in (size, 1))
    right = tuple(n for size in two for n in (1, size))
    product = input.reshape(left) * other.reshape(right)
    return product.reshape(tuple(p * q for p, q in zip(one, two, strict=True)))


# -- einsum ----------------------------------------------------------------------------------------


@composite(method=False)
def einsum(*args):
    """Sums of products written in the Einstein notation, such as "ij,jk->ik"."""
    if len(args) == 3 and isinstance(args[0], str) and (
            hasattr(args[1], "sig") and hasattr(args[2], "sig")):
        recipe = _product(args[0], args[1].sig, args[2].sig)
        if recipe is not None:
            return _multiplied(recipe, args[1], args[2])
        views = _abreast(args[0], args[1].sig, args[2].sig)
        if views is not None:
            return _viewed(args[1], views[0]) * _viewed(args[2], views[1])
    elif len(args) == 2 and isinstance(args[0], str) and hasattr(args[1], "sig"):
        x = args[1]
        twice, steps = _alone(args[0], x.sig.rank)
        for first, second in twice:
            if x.shape[first] != x.shape[second]:
                break  # which is refused below
            x = x.diagonal(0, first, second).movedim(-1, first)
        else:
            return _reduced(x, *steps)
    equation, operands = _read(args)
    inputs, output = _parse(equation, [x.dim() for x in operands])
    operands = [_with_diagonals(x, labels) for x, labels in zip(operands, inputs, strict=True)]
    inputs = [_unique(labels) for labels in inputs]
    _check_sizes(operands, inputs)
    total, labels = operands[0], inputs[0]
    for k in range(1, len(operands)):
        later = set(output).union(*inputs[k + 1:])
        total, labels = _pair(total, labels, operands[k], inputs[k], later)
    return _reduced(total, *_last_steps(labels, output))


def _last_steps(labels: list, output: list) -> tuple:
    """(dimensions that are summed over, the order of the others or None)."""
    dropped = tuple(d for d, name in enumerate(labels) if name not in output)
    labels = [name for name in labels if name in output]
    order = tuple(labels.index(name) for name in output)
    return dropped, None if order == tuple(sorted(order)) else order


def _reduced(x, dropped: tuple, order: tuple | None):
    x = x.sum(dropped) if dropped else x
    return x if order is None else x.permute(order)


@functools.lru_cache(maxsize=4096)
def _alone(equation: str, rank: int):
    """What is done to a single operand: pairs of dimensions whose diagonals are taken, one after
    the other, and the last steps."""
    (labels,), output = _parse(equation, [rank])
    twice = []
    for name in _unique(labels):
        while labels.count(name) > 1:
            first = labels.index(name)
            twice.append((first, labels.index(name, first + 1)))
            del labels[twice[-1][1]]
    return twice, _last_steps(labels, output)


@functools.lru_cache(maxsize=4096)
def _abreast(equation: str, x, y):
    """How factors of which nothing is summed are viewed, so that they broadcast against each other:
    (order, shape) of each; None where anything is, or sizes differ."""
    inputs, output = _parse(equation, [x.rank, y.rank])
    sizes = dict(zip(inputs[0], x.shape, strict=True))
    if x.dtype is not y.dtype or x.dtype.kind != "f" or len(sizes) < x.rank or (
            len(set(inputs[1])) < y.rank or set(output) != {*inputs[0], *inputs[1]} or any(
            sizes.get(name, n) != n for name, n in zip(inputs[1], y.shape, strict=True))):
        return None
    found = []
    for labels, sig in zip(inputs, (x, y), strict=True):
        order = tuple(labels.index(name) for name in output if name in labels)
        shape = tuple(sig.shape[labels.index(name)] if name in labels else 1 for name in output)
        found.append((None if order == tuple(sorted(order)) else order,
                      None if len(shape) == sig.rank else shape))
    return found


def _viewed(x, view):
    order, shape = view
    x = x if order is None else x.permute(order)
    return x if shape is None else x.reshape(shape)


@functools.lru_cache(maxsize=4096)
def _product(equation: str, x, y):
    """How an equation of two signatures is one product of matrices: (op, how to arrange each factor
    and the result); None where it is not, or is refused.

    An arrangement is an order of dimensions and a shape, or None for what is as it should be.
    """
    inputs, output = _parse(equation, [x.rank, y.rank])
    in_x, in_y = inputs
    sizes = dict(zip(in_x, x.shape, strict=True))
    if x.dtype is not y.dtype or x.dtype.kind != "f" or len(sizes) < x.rank or (
            len(set(in_y)) < y.rank or 0 in x.shape or 0 in y.shape or any(
            sizes.get(name, n) != n for name, n in zip(in_y, y.shape, strict=True))):
        return None
    sizes.update(zip(in_y, y.shape, strict=True))
    both = [name for name in in_x if name in in_y]
    batch, inner = ([n for n in both if (n in output) == kept] for kept in (True, False))
    left, right = ([n for n in names if n not in both] for names in (in_x, in_y))
    if not inner or sorted(map(str, output)) != sorted(map(str, batch + left + right)):
        return None

    def arrangement(labels, *groups):
        order = tuple(labels.index(n) for group in groups for n in group)
        shape = tuple(math.prod(sizes[n] for n in group) for group in groups)
        return (None if order == tuple(range(len(order))) else order,
                None if all(len(group) == 1 for group in groups) else shape)

    groups = [batch] if batch else []
    names = [*batch, *left, *right]
    shape, order = tuple(sizes[n] for n in names), tuple(names.index(n) for n in output)
    return (bmm if batch else mm, arrangement(in_x, *groups, left, inner),
            arrangement(in_y, *groups, inner, right),
            (None if all(len(g) == 1 for g in (*groups, left, right)) else shape,
             None if order == tuple(range(len(order))) else order))


def _multiplied(recipe, x, y):
    product, (order, shape), (other_order, other_shape), (whole, final) = recipe
    x = x if order is None else permute(x, order)
    x = x if shape is None else reshape(x, shape)
    y = y if other_order is None else permute(y, other_order)
    y = y if other_shape is None else reshape(y, other_shape)
    out = product(x, y)
    out = out if whole is None else reshape(out, whole)
    return out if final is None else permute(out, final)


def _read(args):
    """The equation and operands; lists of dimension numbers are turned into letters."""
    if not args:
        raise ValueError("einsum(): must specify the equation string and at least one operand, or "
                         "at least one operand and its subscripts list")
    if isinstance(args[0], str):
        operands = args[1:]
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = operands[0]
        if not operands:
            raise RuntimeError("einsum(): must provide at least one operand")
        return args[0], list(operands)
    pairs = list(args)
    final = pairs.pop() if len(pairs) % 2 else None
    operands, lists = pairs[::2], pairs[1::2]
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    equation = ",".join(map(_letters, lists))
    return equation if final is None else f"{equation}->{_letters(final)}", operands


def _letters(numbers) -> str:
    found = []
    for n in numbers:
        if n is Ellipsis:
            found.append("...")
        elif isinstance(n, int) and 0 <= n < len(LETTERS):
            found.append(LETTERS[n])
        else:
            raise ValueError("einsum(): expected a list of integers in the range [0, 52) or "
                             f"Ellipsis, but got {n}")
    return "".join(found)


def _parse(equation: str, ranks: list[int]):
    """Labels of each operand and of the result; dimensions under `...` are labelled by number."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) < len(ranks):
        raise RuntimeError("einsum(): more operands were provided than specified in the equation")
    if len(terms) > len(ranks):
        raise RuntimeError("einsum(): fewer operands were provided than specified in the equation")
    hidden = max((rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True)
                  if "..." in term), default=0)
    inputs = [_labels(term, rank, hidden, k)
              for k, (term, rank) in enumerate(zip(terms, ranks, strict=True))]
    if arrow:
        output = _labels(right, None, hidden if any("..." in t for t in terms) else 0, None)
        _check_output(output, inputs)
    else:
        flat = [name for labels in inputs for name in labels]
        once = sorted(name for name in set(flat) if isinstance(name, str) and flat.count(name) == 1)
        output = [*range(hidden), *once]
    return inputs, output


def _labels(term: str, rank: int | None, hidden: int, operand: int | None) -> list:
    where = "the output" if operand is None else f"operand {operand}"
    named = term.replace("...", "", 1)
    if "." in named:
        raise RuntimeError(f"einsum(): found '.' for {where} that is not part of any ellipsis")
    for letter in named:
        if letter not in LETTERS:
            raise RuntimeError(f"einsum(): invalid subscript given at {where} in the equation "
                               f"string, subscripts must be in [a-zA-Z], got {letter!r}")
    if "..." not in term:
        if rank is not None and rank != len(named):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(named)}) does not match "
                f"the number of dimensions ({rank}) for {where} and no ellipsis was given")
        return list(named)
    count = hidden if rank is None else rank - len(named)
    if count < 0:
        raise RuntimeError(f"einsum(): the number of subscripts in the equation ({len(named)}) is "
                           f"more than the number of dimensions ({rank}) for {where}")
    before, _, after = term.partition("...")
    return [*before, *range(hidden - count, hidden), *after]


def _check_output(output, inputs) -> None:
    known = {name for labels in inputs for name in labels}
    for name in output:
        if output.count(name) > 1:
            raise RuntimeError(f"einsum(): output subscript {name} appears more than once in the "
                               "output")
        if isinstance(name, str) and name not in known:
            raise RuntimeError(f"einsum(): output subscript {name} does not appear in the equation "
                               "for any input operand")


def _with_diagonals(x, labels):
    """A label given twice takes the diagonal of its dimensions."""
    labels = list(labels)
    for name in _unique(labels):
        while labels.count(name) > 1:
            first = labels.index(name)
            second = labels.index(name, first + 1)
            if x.shape[first] != x.shape[second]:
                raise RuntimeError(f"einsum(): subscript {name} is repeated for an operand but the "
                                   f"sizes don't match, {x.shape[second]} != {x.shape[first]}")
            x = x.diagonal(0, first, second).movedim(-1, first)
            del labels[second]
    return x


def _unique(labels) -> list:
    return list(dict.fromkeys(labels))


def _check_sizes(operands, inputs) -> None:
    sizes: dict = {}
    for k, (x, labels) in enumerate(zip(operands, inputs, strict=True)):
        for d, name in enumerate(labels):
            have = sizes.setdefault(name, x.shape[d])
            if have == 1:
                sizes[name] = x.shape[d]
            elif x.shape[d] not in (1, have):
                raise RuntimeError(
                    f"einsum(): subscript {name} has size {x.shape[d]} for operand {k} which does "
                    f"not broadcast with previously seen size {have}")


def _pair(x, in_x, y, in_y, later):
    """The product of two operands, summed over labels that nothing later needs: one bmm."""
    size = {}
    for t, labels in ((x, in_x), (y, in_y)):
        for d, name in enumerate(labels):
            size[name] = max(size.get(name, 1), t.shape[d]) if t.shape[d] else 0
    x, in_x = _summed_alone(x, in_x, in_y, later)
    y, in_y = _summed_alone(y, in_y, in_x, later)
    both = [name for name in in_x if name in in_y]
    batch = [n for n in both if n in later and x.shape[in_x.index(n)] == y.shape[in_y.index(n)]]
    inner = [n for n in both if n not in later]
    odd = [n for n in both if n in later and n not in batch]  # of size 1 on one side only
    left = [n for n in in_x if n not in both or (n in odd and x.shape[in_x.index(n)] != 1)]
    right = [n for n in in_y if n not in both or (n in odd and y.shape[in_y.index(n)] != 1)]
    x, in_x = _without_ones(x, in_x, [n for n in odd if n not in left])
    y, in_y = _without_ones(y, in_y, [n for n in odd if n not in right])

    def arranged(t, labels, *groups):
        order = [labels.index(n) for group in groups for n in group]
        shape = []
        for group in groups:
            count = 1
            for n in group:
                count *= t.shape[labels.index(n)]
            shape.append(count)
        return t.permute(tuple(order)).reshape(tuple(shape))

    x, y = _inner_ones(x, in_x, y, in_y, inner)
    joined = dt.promote(x.dtype, y.dtype)  # sums of integers are wider
    x, y = engine.cast(x, joined), engine.cast(y, joined)
    product = bmm(arranged(x, in_x, batch, left, inner), arranged(y, in_y, batch, inner, right))
    names = [*batch, *left, *right]
    return product.reshape(tuple(size[n] for n in names)), names


def _summed_alone(x, labels, other, later):
    """Sum over labels that only this operand has."""
    alone = [d for d, name in enumerate(labels) if name not in other and name not in later]
    if not alone:
        return x, labels
    return x.sum(tuple(alone)), [n for d, n in enumerate(labels) if d not in alone]


def _without_ones(x, labels, names):
    if not names:
        return x, labels
    x = x.squeeze(tuple(labels.index(n) for n in names))
    return x, [n for n in labels if n not in names]


def _inner_ones(x, in_x, y, in_y, inner):
    """A summed label of size 1 on one side: the other side is summed first."""
    for n in inner:
        i, j = in_x.index(n), in_y.index(n)
        if x.shape[i] != y.shape[j]:
            if x.shape[i] == 1:
                y = y.sum(j, True)
            else:
                x = x.sum(i, True)
    return x, y
