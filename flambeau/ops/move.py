"""Elements moved to other places: rolled, flipped, repeated, padded, cut to triangles."""

from __future__ import annotations

from ..core import expr as e
from ..core import shape as sh
from .arithmetic import clone
from .declare import T, composite, engine, indexed
from .refusal import no_kernel
from .shape import (
    contiguous,
    diagonal,
    expand,
    flatten,
    ints,
    narrow,
    permute,
    reshape,
    transpose,
    unflatten,
    unsqueeze,
)

# -- around and back -------------------------------------------------------------------------------


def _tuple(value) -> tuple:
    return (value,) if isinstance(value, int) else tuple(value)


@composite
def roll(x, shifts, dims=None):
    """Elements moved along dimensions; what leaves at one end enters at the other."""
    shifts, dims = _tuple(shifts), () if dims is None else _tuple(dims)
    if not shifts:
        raise RuntimeError("`shifts` required")
    if not dims and len(shifts) == 1:
        return reshape(roll(reshape(x, (-1,)), shifts, 0), tuple(x.sig.shape))
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:"
                           f"{len(dims)}")
    for shift, dim in zip(shifts, dims, strict=True):
        if not x.sig.rank:
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        x = engine.rolled(x, shift, sh.wrap_dim(dim, x.sig.rank, "roll"))
    return x


@composite
def flip(x, *args, dims=None):
    """Dimensions run backwards."""
    given = ints(args if dims is None else (dims,))
    return engine.flipped(x, sh.wrap_dims(given, x.sig.rank, "flip"))


@composite
def fliplr(x):
    """The second dimension run backwards."""
    if x.sig.rank < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(x, 1)


@composite
def flipud(x):
    """The first dimension run backwards."""
    if x.sig.rank < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(x, 0)


@composite(backward="Rot90Backward0")
def rot90(x, k=1, dims=(0, 1)):
    """A quarter turn of two dimensions, k times."""
    dims = tuple(dims)
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if x.sig.rank < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {x.sig.rank}")
    a, b = dims
    if a == b or abs(a - b) == x.sig.rank:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {a} and dim1 = "
                           f"{b}")
    for d in dims:
        if not -x.sig.rank <= d < x.sig.rank:
            raise RuntimeError(f"Rotation dim{dims.index(d)} out of range, dim{dims.index(d)} = "
                               f"{d}")
    turns = {1: lambda: transpose(flip(x, b), a, b), 2: lambda: flip(x, dims),
             3: lambda: flip(transpose(x, a, b), b), 0: lambda: engine.clone(x)}
    return turns[k % 4]()


# -- more of the same ------------------------------------------------------------------------------


@composite(function_form=False, backward="RepeatBackward0")
def repeat(x, *args, repeats=None):
    """The tensor repeated along each dimension."""
    counts = ints(args if repeats is None else (repeats,))
    if len(counts) < x.sig.rank:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of "
                           f"dimensions of tensor; got {len(counts)} for {x.sig.rank}")
    if any(c < 0 for c in counts):
        raise RuntimeError(f"Trying to create tensor with negative dimension: repeats {counts}")
    lead = len(counts) - x.sig.rank
    shape = (1,) * lead + tuple(x.sig.shape)
    paired = reshape(x, tuple(k for n in shape for k in (1, n)))
    wide = expand(paired, tuple(k for c, n in zip(counts, shape, strict=True) for k in (c, n)))
    whole = tuple(c * n for c, n in zip(counts, shape, strict=True))
    return _apart(wide, whole)


def _apart(x, shape: tuple):
    """`reshape` into memory of its own: what is written to the result stays there."""
    return reshape(clone(x) if x.sig.contiguous else contiguous(x), shape)


@composite(backward="RepeatBackward0")
def tile(x, *args, dims=None):
    """`repeat`, with as many counts as dimensions at most."""
    counts = ints(args if dims is None else (dims,))
    return repeat(x, (1,) * (x.sig.rank - len(counts)) + counts)


@composite
def repeat_interleave(x, repeats=None, dim=None, *, output_size=None):
    """Each place along a dimension repeated, one after another."""
    if repeats is None:
        return engine.repeated_places(x, output_size)
    if dim is None:
        x, dim = flatten(x), 0
    d = sh.wrap_dim(dim, x.sig.rank, "repeat_interleave")
    if not x.sig.rank:
        raise IndexError("repeat_interleave: Dimension out of range (expected to be in range of "
                         f"[-1, 0], but got {d + 1})")
    if isinstance(repeats, int):
        if repeats < 0:
            raise RuntimeError("repeats cannot be negative")
        n = x.sig.shape[d]
        wide = [*x.sig.shape[:d + 1], repeats, *x.sig.shape[d + 1:]]
        shape = (*x.sig.shape[:d], n * repeats, *x.sig.shape[d + 1:])
        wide = expand(unsqueeze(x, d + 1), tuple(wide))
        return _apart(wide, shape)
    if repeats.sig.rank == 0 or (repeats.sig.rank == 1 and repeats.sig.shape[0] == 1):
        repeats = expand(reshape(repeats, (1,)), (x.sig.shape[d],))
    if repeats.sig.rank != 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    if repeats.sig.shape[0] != x.sig.shape[d]:
        raise RuntimeError("repeats must have the same size as input along dim, but got "
                           f"repeats.size(0) = {repeats.sig.shape[0]} and input.size({d}) = "
                           f"{x.sig.shape[d]}")
    return x.index_select(d, engine.repeated_places(repeats, output_size))


# -- triangles and diagonals ----------------------------------------------------------------------


def _matrix_shape(name: str):
    def shape(x, diagonal=0):
        if x.rank < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions, got "
                               f"{x.rank}")
        return x.shape
    return shape


@indexed(shape=_matrix_shape("tril"), inplace=True)
def tril(x, at, diagonal=0):
    """The lower triangle, zeros elsewhere."""
    element = x[at]
    return e.where(at[-1] - at[-2] <= diagonal, element, e.const(0, element.dtype))


@indexed(shape=_matrix_shape("triu"), inplace=True)
def triu(x, at, diagonal=0):
    """The upper triangle, zeros elsewhere."""
    element = x[at]
    return e.where(at[-1] - at[-2] >= diagonal, element, e.const(0, element.dtype))


@composite
def diag_embed(x: T, offset=0, dim1=-2, dim2=-1):
    """Vectors along the diagonals of two dimensions, zeros elsewhere."""
    rank = x.sig.rank + 1
    a, b = (sh.wrap_dim(d, rank, "diag_embed") for d in (dim1, dim2))
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = x.sig.shape[-1] + abs(offset)
    others = iter(x.sig.shape[:-1])
    shape = tuple(size if d in (a, b) else next(others) for d in range(rank))
    out = engine.full(shape, 0, x.sig.dtype, x.sig.device)
    engine.copy_into(diagonal(out, offset, a, b), x)
    return out


@diag_embed.gradient
def diag_embed(g, offset, dim1, dim2):
    return diagonal(g, offset, dim1, dim2)


@composite
def diag(x, diagonal=0):
    """A vector as the diagonal of a matrix, or the diagonal of a matrix."""
    if x.sig.rank == 1:
        return diag_embed(x, diagonal)
    if x.sig.rank == 2:
        return engine.clone(x.diagonal(diagonal))
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {x.sig.rank}D")


@composite
def diagflat(x, offset=0):
    """All elements along the diagonal of a matrix."""
    return diag(flatten(x), offset)


@composite(backward="TraceBackward0")
def trace(x):
    """The sum of the diagonal of a matrix."""
    if x.sig.rank != 2:
        raise RuntimeError("trace: expected a matrix")
    if x.sig.dtype.kind == "b":
        raise no_kernel("trace", x.sig.dtype)
    return diagonal(x).sum()


# -- with a part replaced -------------------------------------------------------------------------


def _part_replaced(name: str, view: str):
    """Declare the op that replaces what a view op looks at."""
    def replaced(input, src, *args, **kwargs):
        return engine.with_view(name, input, src, lambda whole: getattr(engine, view)(
            whole, *args, **kwargs))

    replaced.__name__ = name
    replaced.__doc__ = f"A copy of the tensor with the part that `{view}` shows replaced."
    return replaced


select_scatter = composite(_part_replaced("select_scatter", "select"))
slice_scatter = composite(_part_replaced("slice_scatter", "slice"))
diagonal_scatter = composite(_part_replaced("diagonal_scatter", "diagonal"))
_strided_replaced = _part_replaced("as_strided_scatter", "as_strided")


@composite
def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """A copy of the tensor with the part that `as_strided` shows replaced."""
    start = input.storage_offset()
    if not start or not input.sig.numel:
        return _strided_replaced(input, src, size, stride, storage_offset)
    # Offsets count from the start of the storage: that is where the copy begins as well.
    steps = zip(input.sig.shape, input.sig.strides, strict=True)
    end = start + 1 + sum((n - 1) * step for n, step in steps)
    whole = _strided_replaced(engine.as_strided(input, (end,), (1,), 0), src, size, stride,
                              start if storage_offset is None else storage_offset)
    return engine.as_strided(whole, tuple(input.sig.shape), input.sig.strides, start)


# -- pixels and channels --------------------------------------------------------------------------


def _at_least(name: str, x, least: int) -> None:
    if x.sig.rank < least:
        raise RuntimeError(f"{name} expects input to have at least {least} dimensions, but got "
                           f"input with {x.sig.rank} dimension(s)")


@composite(method=False, backward="PixelShuffleBackward0")
def pixel_shuffle(x, upscale_factor):
    """Groups of r * r channels spread over blocks of r by r pixels."""
    r = upscale_factor
    _at_least("pixel_shuffle", x, 3)
    *lead, c, h, w = x.sig.shape
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    if c % (r * r):
        raise RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be divisible "
                           f"by the square of upscale_factor, but input.size(-3)={c} is not "
                           f"divisible by {r * r}")
    k = len(lead)
    blocks = reshape(x, (*lead, c // (r * r), r, r, h, w))
    order = (*range(k), k, k + 3, k + 1, k + 4, k + 2)
    return _apart(permute(blocks, order), (*lead, c // (r * r), h * r, w * r))


@composite(method=False, backward="PixelUnshuffleBackward0")
def pixel_unshuffle(x, downscale_factor):
    """Blocks of r by r pixels gathered into groups of r * r channels."""
    r = downscale_factor
    _at_least("pixel_unshuffle", x, 3)
    *lead, c, h, w = x.sig.shape
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    if h % r or w % r:
        raise RuntimeError(f"pixel_unshuffle expects height and width to be divisible by "
                           f"downscale_factor, but {h} by {w} is not divisible by {r}")
    k = len(lead)
    blocks = reshape(x, (*lead, c, h // r, r, w // r, r))
    order = (*range(k), k, k + 2, k + 4, k + 1, k + 3)
    return _apart(permute(blocks, order), (*lead, c * r * r, h // r, w // r))


@composite(method=False, backward="ChannelShuffleBackward0")
def channel_shuffle(x, groups):
    """Channels dealt out to groups in turn."""
    _at_least("channel_shuffle", x, 3)
    if groups <= 0:
        raise RuntimeError("Number of groups to divide channels in must be positive. Value of "
                           f"groups:{groups}")
    if x.sig.shape[1] % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {x.sig.shape[1]} "
                           f"channels and {groups} groups.")
    return reshape(transpose(unflatten(engine.contiguous(x), 1, (groups, -1)), 1, 2),
                   tuple(x.sig.shape))


@composite(function_form=False)
def fill_diagonal_(x, fill_value, wrap=False):
    """Write one value along the main diagonal."""
    shape, strides = x.sig.shape, x.sig.strides
    if x.sig.rank < 2:
        raise RuntimeError("dimensions must larger than 1")
    if x.sig.rank > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    step = sum(strides)
    view = engine.as_strided(x, (min(shape),), (step,))
    view.copy_(engine.full((), fill_value, x.sig.dtype))
    if wrap and x.sig.rank == 2 and shape[0] > shape[1] + 1:
        below = narrow(x, 0, shape[1] + 1, shape[0] - shape[1] - 1)
        fill_diagonal_(below, fill_value, True)
    return x
