"""Views: other shapes over the same storage."""

from __future__ import annotations

from ..core import shape as sh
from .declare import view as as_view


def ints(args) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    return tuple(int(a) for a in args)


@as_view
def expand(x, size):
    """Repeat dimensions of size 1 without copying."""
    lead = len(size) - x.rank
    if lead < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(size)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({x.rank})")
    shape = tuple(x.shape[d - lead] if n == -1 and d >= lead else n for d, n in enumerate(size))
    for d, n in enumerate(shape):
        have = x.shape[d - lead] if d >= lead else 1
        if n < 0 or (have not in (1, n)):
            raise RuntimeError(
                f"expand: The expanded size of the tensor ({n}) must match the existing size ({have}) "
                f"at non-singleton dimension {d}. Target sizes: {list(size)}. Tensor sizes: "
                f"{list(x.shape)}")
    return shape, sh.expand_strides(x.shape, x.strides, shape)


@expand.gradient
def expand(g, x_meta):
    return expand.engine.sum_to(g, x_meta.shape)


@as_view
def unsqueeze(x, dim):
    """Insert a dimension of size 1."""
    d = sh.wrap_dim(dim, x.rank + 1, "unsqueeze")
    step = x.shape[d] * x.strides[d] if d < x.rank else 1
    return (*x.shape[:d], 1, *x.shape[d:]), (*x.strides[:d], step, *x.strides[d:])


@unsqueeze.gradient
def unsqueeze(g, dim):
    return squeeze(g, dim)


@as_view
def squeeze(x, dim=None):
    """Drop dimensions of size 1."""
    if dim is None:
        dropped = set(range(x.rank))
    else:
        dropped = set(sh.wrap_dims((dim,) if isinstance(dim, int) else dim, x.rank, "squeeze"))
    kept = [d for d in range(x.rank) if d not in dropped or x.shape[d] != 1]
    return tuple(x.shape[d] for d in kept), tuple(x.strides[d] for d in kept)


@squeeze.gradient
def squeeze(g, x_meta):
    return view(g, tuple(x_meta.shape))


@as_view
def view(x, shape):
    """The same elements under another shape, if strides allow it."""
    wanted = sh.infer_size(shape, x.numel)
    strides = sh.view_strides(x.shape, x.strides, wanted)
    if strides is None:
        raise RuntimeError(
            "view: view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead; given "
            f"{tuple(x.shape)} with strides {x.strides}, wanted {wanted}.")
    return wanted, strides


@view.gradient
def view(g, x_meta):
    return view.engine.reshape(g, tuple(x_meta.shape))


@as_view
def transpose(x, dim0, dim1):
    """Swap two dimensions; no data moves."""
    a, b = (sh.wrap_dim(d, x.rank, "transpose") for d in (dim0, dim1))
    shape, strides = list(x.shape), list(x.strides)
    if x.rank:
        shape[a], shape[b] = shape[b], shape[a]
        strides[a], strides[b] = strides[b], strides[a]
    return tuple(shape), tuple(strides)


@transpose.gradient
def transpose(g, dim0, dim1):
    return transpose(g, dim0, dim1)
