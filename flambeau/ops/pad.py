"""Tensors made larger at their borders."""

from __future__ import annotations

from ..core import expr as e
from .arithmetic import clone
from .declare import T, composite, engine, indexed
from .join import cat
from .shape import narrow


def _pairs(x, pad, name: str) -> list[tuple[int, int]]:
    """(before, after) for each dimension, from the first; pads are given from the last."""
    pad = tuple(int(p) for p in pad)
    rank = x.sig.rank if hasattr(x, "sig") else x.rank
    if len(pad) % 2:
        raise RuntimeError(f"{name}: Padding length must be divisible by 2, but got {len(pad)}")
    if len(pad) // 2 > rank:
        raise RuntimeError(f"{name}: Padding length should be less than or equal to two times the "
                           f"input dimension. Got padding length {len(pad)} and input dimensions "
                           f"{rank}")
    pairs = [(pad[2 * k], pad[2 * k + 1]) for k in range(len(pad) // 2)]
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


def _check_sizes(x, pairs) -> None:
    for d, (a, b) in enumerate(pairs):
        if x.sig.shape[d] + a + b < 0:
            raise RuntimeError(f"The input size {x.sig.shape[d]}, plus negative padding {a} and "
                               f"{b} resulted in a negative output size, which is invalid. Check "
                               f"dimension {d} of your input.")


@composite(method=False, backward="ConstantPadNdBackward0")
def constant_pad_nd(x: T, pad, value=0):
    """One value around a tensor; negative pads cut it."""
    pairs = _pairs(x, pad, "constant_pad_nd")
    _check_sizes(x, pairs)
    for d, (a, b) in enumerate(pairs):
        cut, n = max(-a, 0), x.sig.shape[d]
        if a < 0 or b < 0:
            x = narrow(x, d, min(cut, n), max(n - cut - max(-b, 0), 0))
    wide = tuple(n + max(a, 0) + max(b, 0) for n, (a, b) in zip(x.sig.shape, pairs, strict=True))
    out = engine.full(wide, value or 0, x.sig.dtype, x.sig.device)
    hole = out
    for d, (a, _) in enumerate(pairs):
        hole = narrow(hole, d, max(a, 0), x.sig.shape[d])
    engine.copy_into(hole, x)
    return out


@constant_pad_nd.gradient
def constant_pad_nd(g, pad):
    return constant_pad_nd(g, tuple(-p for p in pad), 0)


def _padded_shape(x, before, after):
    """The last dimensions larger by what comes before and after each, or smaller."""
    kept = x.rank - len(before)
    return (*x.shape[:kept], *[n + a + b for n, a, b in zip(x.shape[kept:], before, after,
                                                           strict=True)])


def _moved(x, at, before, place):
    """The coordinates of what is read, by `place(coordinate, last one)` in the last dimensions."""
    kept = len(at) - len(before)
    return (*at[:kept], *[place(at[kept + k] - a, x.size(kept + k) - 1)
                          for k, a in enumerate(before)])


@indexed(shape=_padded_shape, method=False, function_form=False, backward="ReplicationPadBackward0")
def replicated(x, at, before, after):
    """A tensor whose border elements go on beyond it."""
    return x[_moved(x, at, before, lambda c, last: e.minimum(e.maximum(c, 0), last))]


def _mirror(c, last):
    c = e.where(c < 0, -c, c)
    return e.where(c > last, last + last - c, c)


@indexed(shape=_padded_shape, method=False, function_form=False, backward="ReflectionPadBackward0")
def mirrored(x, at, before, after):
    """A tensor that goes on beyond its borders as it came."""
    return x[_moved(x, at, before, _mirror)]


#: mode -> what borders are made by
_BORDERS = {"replicate": replicated, "reflect": mirrored}


def _wrapped(x, pairs):
    """The tensor, cut where pads are negative, continued periodically."""
    for d, (a, b) in enumerate(pairs):
        n = x.sig.shape[d]
        if a > n or b > n:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if n + a + b < 0:
            raise RuntimeError("Negative padding value is resulting in an empty dimension")
        body = narrow(x, d, max(-a, 0), n - max(-a, 0) - max(-b, 0))
        left = [narrow(body, d, body.sig.shape[d] - a, a)] if a > 0 else []
        right = [narrow(body, d, 0, b)] if b > 0 else []
        x = cat([*left, body, *right], d) if left or right else body
    return x


def _check_bordered(mode: str, x, pad, pairs) -> None:
    """torch pads the last one to three of a batch's dimensions this way."""
    rank, count = x.sig.rank, len(pad) // 2
    if not (1 <= count <= 3 and rank in (count + 1, count + 2)):
        raise NotImplementedError("Only 2D, 3D, 4D, 5D padding with non-constant padding are "
                                  f"supported for now; given a tensor of {rank} dimensions and "
                                  f"{len(pad)} pads")
    shape = x.sig.shape
    if any(n == 0 for n in shape[rank - count - 1:]) or (
            x.sig.numel == 0 and rank == count + 1):
        raise RuntimeError(f"{mode} padding: Expected {count + 1}D or {count + 2}D tensor with "
                           "possibly 0 batch size and other non-zero dimensions for input, but "
                           f"got: {list(shape)}")
    for d, (a, b) in enumerate(pairs):
        if mode == "reflect" and ((a >= shape[d] and a > 0) or (b >= shape[d] and b > 0)):
            raise RuntimeError("Argument #4: Padding size should be less than the corresponding "
                               f"input dimension, but got: padding ({a}, {b}) at dimension {d} of "
                               f"input {list(shape)}")
        if shape[d] + a + b < 1 and (a or b):
            raise RuntimeError(f"input (size {shape[d]}) is too small for padding ({a}, {b}) along "
                               f"dimension {d}")


@composite(where="nn.functional")
def pad(input, pad, mode="constant", value=None):
    """A tensor with borders: constant, reflect, replicate or circular."""
    if mode == "constant":
        return constant_pad_nd(input, tuple(pad), 0 if value is None else value)
    if value not in (None, 0):
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    pairs = _pairs(input, pad, mode)
    _check_bordered(mode, input, pad, pairs)
    if mode != "circular":
        count = len(pad) // 2
        return _BORDERS[mode](input, *map(tuple, zip(*pairs[-count:], strict=True)))
    out = _wrapped(input, pairs)
    # where nothing was joined, nothing was copied yet
    return out if any(p > 0 for pair in pairs for p in pair) else clone(out)


@composite(where="nn.functional")
def one_hot(tensor, num_classes=-1):
    """Integers as vectors that are 1 at that place and 0 elsewhere."""
    return engine.one_hot(tensor, num_classes)
