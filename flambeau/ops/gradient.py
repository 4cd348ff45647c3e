"""Slopes of sampled functions: central differences inside, one-sided ones at the edges."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import shape as sh
from .declare import composite, engine, registry

_NUMBERS = (int, float, complex)


def _is_tensor(value) -> bool:
    return hasattr(value, "sig")


def _dims(input, dim) -> tuple[int, ...]:
    rank = input.sig.rank
    if dim is None:
        return tuple(range(rank))
    if not isinstance(dim, (int, tuple, list)) or isinstance(dim, bool):
        raise TypeError("gradient(): argument 'dim' must be int or tuple of ints, not "
                        f"{type(dim).__name__}")
    return sh.wrap_dims((dim,) if isinstance(dim, int) else dim, rank, "torch.gradient")


def _spacings(spacing, count: int) -> list:
    """One distance or vector of coordinates for each dimension."""
    if _is_tensor(spacing) and not spacing.sig.rank:
        spacing = spacing.item()
    if spacing is None:
        spacing = 1
    if isinstance(spacing, _NUMBERS):
        return [spacing] * count
    if not isinstance(spacing, (tuple, list)):
        raise TypeError("gradient(): argument 'spacing' must be a number, or a list of numbers or "
                        f"of tensors, not {type(spacing).__name__}")
    for one in spacing:
        if _is_tensor(one) is not _is_tensor(spacing[0]) or not (
                _is_tensor(one) or isinstance(one, _NUMBERS)):
            raise TypeError("gradient(): argument 'spacing' must hold numbers only or tensors "
                            f"only, but there is one {type(one).__name__} in it")
    if len(spacing) != count:
        raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar or it's "
                           "spacing and dim arguments to have the same length, but got a spacing "
                           f"argument of length {len(spacing)} and a dim argument of length "
                           f"{count}.")
    return list(spacing)


def _check(input, dims, spacings, edge_order) -> None:
    if not _is_tensor(input):
        raise TypeError("gradient(): argument 'input' (position 1) must be Tensor, not "
                        f"{type(input).__name__}")
    if input.sig.dtype is dt.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2., got "
                           f"{edge_order}")
    for d, spacing in zip(dims, spacings, strict=True):
        size = input.sig.shape[d]
        if size < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least "
                               f"edge_order+1, got {size} along dimension {d}")
        if not _is_tensor(spacing):
            continue
        if spacing.sig.rank != 1:
            raise RuntimeError("torch.gradient expected each element of spacing to have one "
                               "dimension, but got an element with "
                               f"{spacing.sig.rank} dimensions!")
        if spacing.sig.shape[0] != size:
            raise RuntimeError("torch.gradient expected one coordinate for each place along "
                               f"dimension {d}, but got {spacing.sig.shape[0]} for {size}")


def _even(x, d: int, step, edge_order: int):
    """Slopes along a dimension whose samples are `step` apart."""
    size = x.sig.shape[d]

    def at(i: int, n: int = 1):
        return engine.narrow(x, d, i, n)

    inside = (at(2, size - 2) - at(0, size - 2)) / (2 * step)
    if edge_order == 1:
        first, last = at(1) - at(0), at(size - 1) - at(size - 2)
    else:
        first = at(0) * -1.5 + at(1) * 2 - at(2) * 0.5
        last = at(size - 1) * 1.5 - at(size - 2) * 2 + at(size - 3) * 0.5
    return registry["cat"]([first / step, inside, last / step], d)


def _uneven(x, d: int, coordinates, edge_order: int):
    """Slopes along a dimension whose samples lie at coordinates: of the parabola through three."""
    size, rank = x.sig.shape[d], x.sig.rank
    gaps = engine.narrow(coordinates, 0, 1, size - 1) - engine.narrow(coordinates, 0, 0, size - 1)
    gaps = engine.reshape(gaps, tuple(-1 if k == d else 1 for k in range(rank)))

    def at(i: int, n: int = 1):
        return engine.narrow(x, d, i, n)

    def gap(i: int, n: int = 1):
        return engine.narrow(gaps, d, i, n)

    before, after = gap(0, size - 2), gap(1, size - 2)
    both = before + after
    inside = (at(2, size - 2) * (before / (after * both))
              + at(1, size - 2) * ((after - before) / (before * after))
              - at(0, size - 2) * (after / (before * both)))
    if edge_order == 1:
        first = (at(1) - at(0)) / gap(0)
        last = (at(size - 1) - at(size - 2)) / gap(size - 2)
    else:
        first = _edge(at(0), at(1), at(2), gap(0), gap(1))
        last = -_edge(at(size - 1), at(size - 2), at(size - 3), gap(size - 2), gap(size - 3))
    return registry["cat"]([first, inside, last], d)


def _edge(here, near, far, step, further):
    """The slope, away from an edge, at the edge: of the parabola through its three samples."""
    both = step + further
    return (near * (both / (step * further)) - here * ((step + both) / (step * both))
            - far * (step / (further * both)))


@composite(method=False)
def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """Estimates of the slope along each dimension: a tuple of tensors like the input.

    `spacing` is the distance between samples, one for each dimension, or their coordinates.
    """
    dims = _dims(input, dim) if _is_tensor(input) else ()
    spacings = _spacings(spacing, len(dims)) if _is_tensor(input) else []
    _check(input, dims, spacings, edge_order)
    return tuple((_uneven if _is_tensor(one) else _even)(input, d, one, edge_order)
                 for d, one in zip(dims, spacings, strict=True))
