"""Tensors put together."""

from __future__ import annotations

from ..core.dtype import int64
from .declare import composite, engine
from .shape import atleast_1d, atleast_2d, atleast_3d, expand, flatten, reshape


@composite(method=False)
def cat(tensors, dim=0):
    """Tensors one after another along a dimension."""
    return engine.joined("cat", tensors, dim, False)


@composite(method=False)
def stack(tensors, dim=0):
    """Tensors of one shape along a fresh dimension."""
    return engine.joined("stack", tensors, dim, True)


@composite(method=False)
def hstack(tensors):
    """Tensors side by side: along the second dimension, or the first of vectors."""
    tensors = _sequence("hstack", tensors, 1, atleast_1d)
    return cat(tensors, 0 if tensors[0].sig.rank == 1 else 1)


@composite(method=False)
def vstack(tensors):
    """Tensors below each other: along the first dimension, vectors as rows."""
    return cat(_sequence("vstack", tensors, 2, atleast_2d), 0)


@composite(method=False)
def dstack(tensors):
    """Tensors behind each other: along the third dimension."""
    return cat(_sequence("dstack", tensors, 3, atleast_3d), 2)


@composite(method=False)
def column_stack(tensors):
    """Tensors side by side, vectors as columns."""
    return cat([reshape(x, (x.sig.numel, 1)) if x.sig.rank <= 1 else x
                for x in _sequence("column_stack", tensors)], 1)


def _sequence(name: str, tensors, rank: int = 0, widened=None) -> list:
    """The tensors of a call, with as many dimensions as are wanted at least."""
    if hasattr(tensors, "sig") or not hasattr(tensors, "__iter__"):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not "
                        f"{type(tensors).__name__}")
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return widened(tensors) if any([x.sig.rank < rank for x in tensors]) else tensors


@composite(method=False)
def block_diag(*tensors):
    """Matrices along the diagonal of a larger one, zeros elsewhere."""
    for i, x in enumerate(tensors):
        if x.sig.rank > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. "
                               f"Input {i} has {x.sig.rank} dimensions")
    matrices = [atleast_2d(x) for x in tensors] or [reshape(engine.empty((0,)), (1, 0))]
    width = sum(m.sig.shape[1] for m in matrices)
    dtype = engine.result_type(matrices)
    rows, start = [], 0
    for m in matrices:
        height, n = m.sig.shape
        before, after = (engine.full((height, w), 0, dtype, m.sig.device)
                         for w in (start, width - start - n))
        rows.append(cat([before, engine.cast(m, dtype), after], 1))
        start += n
    return cat(rows, 0)


@composite(method=False)
def meshgrid(*tensors, indexing=None):
    """For each vector, the grid of its values over all combinations."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for x in tensors:
        if x.sig.rank > 1:
            raise RuntimeError("torch.meshgrid: Expected 0D or 1D tensor in the tensor list but "
                               f"got: {x.sig.rank}D of shape {tuple(x.sig.shape)}")
        if x.sig.dtype is not tensors[0].sig.dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError("torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but "
                           f"received: {indexing}")
    swapped = indexing == "xy" and len(tensors) >= 2
    if swapped:
        tensors = (tensors[1], tensors[0], *tensors[2:])
    shape = tuple(x.sig.numel for x in tensors)
    grids = [expand(reshape(x, tuple(-1 if k == i else 1 for k in range(len(shape)))), shape)
             for i, x in enumerate(tensors)]
    if swapped:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@composite(method=False)
def cartesian_prod(*tensors):
    """All combinations of one element from each vector, as rows."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    if not tensors:
        raise RuntimeError("cartesian_prod expects a non-empty TensorList")
    for x in tensors:
        if x.sig.rank != 1:
            raise RuntimeError("Expect a 1D vector, but got shape "
                               f"{list(x.sig.shape)} for cartesian_prod")
    if len(tensors) == 1:
        return reshape(tensors[0], tuple(tensors[0].sig.shape))
    return stack([flatten(grid) for grid in meshgrid(*tensors, indexing="ij")], 1)


@composite(method=False)
def combinations(input, r=2, with_replacement=False):
    """All ways to choose r elements of a vector, as rows."""
    if input.sig.rank != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.sig.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return engine.empty((0,), input.sig.dtype)
    return input[engine.choices(input.sig.numel, r, with_replacement)]


def _triangle_places(name: str, lower: bool):
    def places(row, col, offset=0, *, dtype=int64, device=None, layout=None):
        found = engine.triangle(row, col, offset, lower)
        return found if dtype is None else engine.cast(found, dtype)

    places.__name__ = name
    places.__doc__ = f"The places of the {'lower' if lower else 'upper'} triangle of a matrix."
    return composite(method=False)(places)


tril_indices = _triangle_places("tril_indices", True)
triu_indices = _triangle_places("triu_indices", False)
