"""Views: other shapes over the same storage."""

from __future__ import annotations

import functools
from math import prod
from operator import index

from ..core import dtype as dt
from ..core import shape as sh
from ..core.formats import contiguous_format
from .complex import conj
from .declare import T, composite, engine
from .declare import view as as_view

_INT = frozenset((int,))


def ints(args) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence."""
    if len(args) == 1 and not isinstance(args[0], int) and hasattr(args[0], "__iter__"):
        args = args[0]
    return tuple(index(a) for a in args)


def whole(op: str, name: str, values) -> tuple[int, ...]:
    """A tuple of integers, or torch's TypeError."""
    if type(values) is tuple and _INT.issuperset(map(type, values)):
        return values
    values = (values,) if isinstance(values, int) else values
    if not isinstance(values, (tuple, list)) or not all(hasattr(v, "__index__") for v in values):
        raise TypeError(f"{op}(): argument '{name}' must be tuple of ints, not "
                        f"{type(values).__name__} {values!r}")
    return tuple(v.__index__() for v in values)


# -- the same elements in the same order ---------------------------------------------------------


def _viewed(x, shape: tuple[int, ...]):
    """The shape and strides (None: in row-major order) of a view, or None where there is none."""
    if x.regular:
        return shape, None
    strides = sh.view_strides(x.shape, x.strides, shape)
    return None if strides is None else (shape, strides)


@as_view(variadic=True)
def view(x, size):
    """The same elements under another shape or another dtype, if strides allow it."""
    if isinstance(size, dt.dtype):
        return _as_dtype(x, size)
    wanted = sh.infer_size(whole("view", "size", size), x.numel)
    found = _viewed(x, wanted)
    if found is None:
        raise RuntimeError(
            "view: view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead; given "
            f"{tuple(x.shape)} with strides {x.strides}, wanted {wanted}.")
    return found


@view.gradient
def view(g, x_meta, size):
    if isinstance(size, dt.dtype):
        return view(g, x_meta.dtype)
    return reshape(g, tuple(x_meta.shape))


def _as_dtype(x, dtype):
    """Shape and strides of the same bytes read as another dtype."""
    have, want = x.dtype.itemsize, dtype.itemsize
    if have == want:
        return x.shape, x.strides, 0, dtype
    if not x.rank:
        raise RuntimeError("view: self.dim() cannot be 0 to view "
                           f"{x.dtype} as {dtype} (different element sizes)")
    if x.strides[-1] != 1 and x.shape[-1] != 1:
        raise RuntimeError("view: self.stride(-1) must be 1 to view "
                           f"{x.dtype} as {dtype} (different element sizes), but got "
                           f"{x.strides[-1]}")
    if have > want:
        ratio = have // want
        return ((*x.shape[:-1], x.shape[-1] * ratio),
                (*(s * ratio for s in x.strides[:-1]), 1), 0, dtype)
    ratio = want // have
    if x.shape[-1] % ratio or any(s % ratio for s in x.strides[:-1]):
        raise RuntimeError(f"view: self.size(-1) and the strides must be divisible by {ratio} to "
                           f"view {x.dtype} as {dtype} (different element sizes), but got "
                           f"{tuple(x.shape)} with strides {x.strides}")
    return ((*x.shape[:-1], x.shape[-1] // ratio),
            (*(s // ratio for s in x.strides[:-1]), 1), 0, dtype)


def _copied(x, shape):
    return view(engine.contiguous(x), shape)


@as_view(variadic=True, otherwise=_copied, backward="ViewBackward0")
def reshape(x, shape):
    """The same elements under another shape: a view if strides allow it, else a copy."""
    return _viewed(x, sh.infer_size(whole("reshape", "shape", shape), x.numel))


@reshape.gradient
def reshape(g, x_meta):
    return reshape(g, tuple(x_meta.shape))


@composite
def view_as(x, other):
    """view(other.shape)"""
    return view(x, tuple(other.shape))


@composite(function_form=False)
def reshape_as(x, other):
    """reshape(other.shape)"""
    return reshape(x, tuple(other.shape))


def _flat_shape(shape, start_dim: int, end_dim: int):
    """The shape with some neighbouring dimensions made one, or None if that changes nothing."""
    rank = len(shape)
    start, end = sh.wrap_dim(start_dim, rank, "flatten"), sh.wrap_dim(end_dim, rank, "flatten")
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not rank:
        return (1,)
    return None if start == end else (*shape[:start], prod(shape[start:end + 1]), *shape[end + 1:])


def _itself_or_copied(x, start_dim, end_dim):
    shape = _flat_shape(x.sig.shape, start_dim, end_dim)
    return x if shape is None else _copied(x, shape)


@as_view(otherwise=_itself_or_copied, backward="ViewBackward0")
def flatten(x, start_dim=0, end_dim=-1):
    """Dimensions from `start_dim` to `end_dim` made one."""
    shape = _flat_shape(tuple(x.shape), start_dim, end_dim)
    return None if shape is None else _viewed(x, shape)


@flatten.gradient
def flatten(g, x_meta):
    return reshape(g, tuple(x_meta.shape))


@composite
def ravel(x):
    """All elements in one dimension."""
    return reshape(contiguous(x), (-1,)) if x.sig.numel else reshape(x, (0,))


@composite
def unflatten(x, dim, sizes):
    """One dimension made several."""
    d = sh.wrap_dim(dim, x.sig.rank, "unflatten")
    sizes = whole("unflatten", "sizes", sizes)
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    shape = tuple(x.sig.shape)
    try:
        sizes = sh.infer_size(sizes, shape[d])
    except RuntimeError as error:
        raise RuntimeError(f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size "
                           f"of dim {d} ({shape[d]}) in the input tensor") from error
    return view(x, (*shape[:d], *sizes, *shape[d + 1:]))


# -- dimensions of size 1, and repeated ones -----------------------------------------------------


@as_view(variadic=True)
def expand(x, size):
    """Repeat dimensions of size 1 without copying."""
    size = whole("expand", "size", size)
    lead = len(size) - x.rank
    if lead < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(size)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({x.rank})")
    own = (1,) * lead + tuple(x.shape)
    shape = tuple([own[d] if n == -1 and d >= lead else n for d, n in enumerate(size)])
    for d, (n, have) in enumerate(zip(shape, own)):
        if n < 0 or (have not in (1, n)):
            raise RuntimeError(
                f"expand: The expanded size of the tensor ({n}) must match the existing size "
                f"({have}) at non-singleton dimension {d}. Target sizes: {list(size)}. Tensor "
                f"sizes: {list(x.shape)}")
    return shape, sh.expand_strides(x.shape, x.strides, shape)


@expand.gradient
def expand(g, x_meta):
    return engine.sum_to(g, tuple(x_meta.shape))


@composite(function_form=False)
def expand_as(x, other):
    """expand(other.shape)"""
    return expand(x, tuple(other.shape))


@composite
def broadcast_to(x, size):
    """expand(size)"""
    return expand(x, size)


@composite(method=False)
def broadcast_tensors(*tensors):
    """All tensors expanded to the shape they broadcast to."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    shape = sh.broadcast("broadcast_tensors", *[tuple(t.sig.shape) for t in tensors])
    return tuple(expand(t, shape) for t in tensors)


@composite(function_form=False)
def sum_to_size(x, *size):
    """The sum over the dimensions a size was broadcast along."""
    wanted, have = ints(size), tuple(x.sig.shape)
    lead = len(have) - len(wanted)
    if lead < 0 or any(n not in (1, h) for n, h in zip(wanted, have[lead:], strict=True)):
        raise RuntimeError(f"size {{{list(wanted)}}} is not expandable to size {{{list(have)}}}.")
    if not wanted:
        return x.sum()
    return alias(x) if wanted == have else engine.sum_to(x, wanted)


@composite(method=False)
def resize_as_(x, the_template, **options):
    """Another tensor's shape; see Tensor.resize_as_."""
    return x.resize_as_(the_template, **options)


@as_view
def unsqueeze(x, dim):
    """Insert a dimension of size 1."""
    if not isinstance(dim, int):
        raise TypeError(f"unsqueeze(): argument 'dim' must be int, not {type(dim).__name__}")
    d = sh.wrap_dim(dim, x.rank + 1, "unsqueeze")
    shape, strides = tuple(x.shape), x.strides
    step = shape[d] * strides[d] if d < x.rank else 1
    return (*shape[:d], 1, *shape[d:]), (*strides[:d], step, *strides[d:])


@unsqueeze.gradient
def unsqueeze(g, dim):
    return squeeze(g, dim)


def _squeezed(bound) -> str:
    """torch counts its forms: of all dimensions, of one, and of several."""
    dim = bound["dim"]
    return f"SqueezeBackward{0 if dim is None else 1 if isinstance(dim, int) else 2}"


@as_view(backward=_squeezed)
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
    return reshape(g, tuple(x_meta.shape))


def _at_least(name: str, convert):
    def on_one_or_several(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
            return tuple(convert(t) for t in tensors[0])
        return convert(tensors[0]) if len(tensors) == 1 else tuple(convert(t) for t in tensors)

    on_one_or_several.__name__ = name
    on_one_or_several.__doc__ = f"Tensors with at least {name[8]} dimensions."
    return composite(method=False)(on_one_or_several)


atleast_1d = _at_least("atleast_1d", lambda x: x if x.sig.rank >= 1 else reshape(x, (1,)))
atleast_2d = _at_least("atleast_2d", lambda x: x if x.sig.rank >= 2 else
                       reshape(x, (1, 1)) if x.sig.rank == 0 else unsqueeze(x, 0))
atleast_3d = _at_least("atleast_3d", lambda x: x if x.sig.rank >= 3 else
                       reshape(x, (1, 1, 1)) if x.sig.rank == 0 else
                       unsqueeze(unsqueeze(x, 0), -1) if x.sig.rank == 1 else unsqueeze(x, -1))


# -- dimensions in another order -----------------------------------------------------------------


@as_view
def transpose(x, dim0, dim1):
    """Swap two dimensions; no data moves."""
    a, b = sh.wrap_dim(dim0, x.rank, "transpose"), sh.wrap_dim(dim1, x.rank, "transpose")
    shape, strides = list(x.shape), list(x.strides)
    if x.rank:
        shape[a], shape[b] = shape[b], shape[a]
        strides[a], strides[b] = strides[b], strides[a]
    return tuple(shape), tuple(strides)


@transpose.gradient
def transpose(g, dim0, dim1):
    return transpose(g, dim0, dim1)


@as_view
def t(x):
    """The transpose of a matrix."""
    if x.rank > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.rank}D")
    return x.shape[::-1], x.strides[::-1]


@t.gradient
def t(g):
    return t(g)


@as_view(variadic=True)
def permute(x, dims):
    """Dimensions in another order."""
    dims = whole("permute", "dims", dims)
    if len(dims) != x.rank:
        raise RuntimeError("permute(sparse_coo): number of dimensions in the tensor input does not "
                           "match the length of the desired ordering of dimensions i.e. "
                           f"input.dim() = {x.rank} is not equal to len(dims) = {len(dims)}")
    order = tuple([sh.wrap_dim(d, x.rank, "permute") for d in dims])
    if len(set(order)) != len(order):
        raise RuntimeError(f"permute(): duplicate dims are not allowed, got dims {list(dims)}")
    shape, strides = tuple(x.shape), x.strides
    return tuple([shape[d] for d in order]), tuple([strides[d] for d in order])


@permute.gradient
def permute(g, dims):
    rank = len(dims)
    order = [d % rank for d in dims]
    return permute(g, tuple(order.index(d) for d in range(rank)))


def _distinct(name: str, dims, rank: int) -> tuple[int, ...]:
    """The dimensions movedim is given, each once."""
    wrapped = tuple(sh.wrap_dim(d, rank, "movedim") for d in dims)
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(dims)})")
    return wrapped


def moved_order(rank: int, source, destination) -> tuple[int, ...]:
    """The permutation that takes dimensions from some places to others."""
    source, destination = (whole("movedim", n, v) for n, v in
                           (("source", source), ("destination", destination)))
    if len(source) != len(destination):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({list(source)} "
                           f"dims) should contain the same number of dims as destination "
                           f"({list(destination)} dims)")
    source, destination = (_distinct(n, d, rank) for n, d in
                           (("source", source), ("destination", destination)))
    order = [d for d in range(rank) if d not in source]
    for place, d in sorted(zip(destination, source, strict=True)):
        order.insert(place, d)
    return tuple(order)


_moved_once = functools.lru_cache(maxsize=1024)(moved_order)


@composite
def movedim(x, source, destination):
    """Dimensions taken to other places; the others keep their order."""
    if type(source) is int and type(destination) is int and x.sig.rank:
        return permute(x, _moved_once(x.sig.rank, source, destination))
    if x.sig.rank == 0:
        moved_order(0, source, destination)
        return permute(x, ())
    return permute(x, moved_order(x.sig.rank, source, destination))


@composite(function_form=False, method=False)
def T_(x):
    """All dimensions in reverse order."""
    return permute(x, tuple(range(x.sig.rank))[::-1])


@composite(function_form=False, method=False)
def mT(x):
    """Matrices transposed."""
    if not x.sig.rank:  # as torch still has it
        return view(x, ())
    if x.sig.rank < 2:
        raise RuntimeError("tensor.mT is only supported on matrices or batches of matrices. Got "
                           f"{x.sig.rank}-D tensor.")
    return transpose(x, -2, -1)


@composite
def adjoint(x):
    """Matrices transposed and conjugated."""
    if x.sig.rank == 0:
        return conj(view(x, ()))
    if x.sig.rank == 1:
        raise RuntimeError("tensor.adjoint() is only supported on matrices or batches of matrices. "
                           "Got 1-D tensor.")
    return conj(transpose(x, -2, -1))


@composite(function_form=False, method=False)
def H(x):
    """A matrix transposed and conjugated."""
    if x.sig.rank not in (0, 2):
        raise RuntimeError("tensor.H is only supported on matrices (2-D tensors). Got "
                           f"{x.sig.rank}-D tensor.")
    return adjoint(x)


# -- parts ----------------------------------------------------------------------------------------


@as_view
def select(x, dim, index):
    """One place along a dimension, which goes."""
    if not x.rank:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = sh.wrap_dim(dim, x.rank, "select")
    n = x.shape[d]
    if not -n <= index < n:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(x.shape)} "
                         f"at dimension {d}")
    return ((*x.shape[:d], *x.shape[d + 1:]), (*x.strides[:d], *x.strides[d + 1:]),
            index % n * x.strides[d])


def bounds(start, stop, step: int, n: int) -> tuple[int, int]:
    """Where a slice of n elements starts, and how many it has."""
    start = 0 if start is None else start
    stop = n if stop is None else stop
    start = min(max(start + n if start < 0 else start, 0), n)
    stop = min(max(stop + n if stop < 0 else stop, start), n)
    return start, -(-(stop - start) // step)


@as_view(function_form=False, method=False)
def slice(x, dim=0, start=None, end=None, step=1):
    """Every `step`-th place along a dimension, from `start` to before `end`."""
    if not x.rank:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    d = sh.wrap_dim(dim, x.rank, "slice")
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    first, count = bounds(start, end, step, x.shape[d])
    return ((*x.shape[:d], count, *x.shape[d + 1:]),
            (*x.strides[:d], x.strides[d] * step, *x.strides[d + 1:]), first * x.strides[d])


@as_view(backward="SliceBackward0")
def narrow(x, dim, start, length):
    """`length` places along a dimension, from `start`."""
    if not x.rank:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    d = sh.wrap_dim(dim, x.rank, "narrow")
    n = x.shape[d]
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got "
                         f"{start})")
    start += n if start < 0 else 0
    if start + length > n:
        raise RuntimeError(f"narrow: start ({start}) + length ({length}) exceeds dimension size "
                           f"({n}).")
    return ((*x.shape[:d], length, *x.shape[d + 1:]), x.strides, start * x.strides[d])


@as_view
def diagonal(x, offset=0, dim1=0, dim2=1):
    """The diagonals of two dimensions, as a last one."""
    a, b = (sh.wrap_dim(d, x.rank, "diagonal") for d in (dim1, dim2))
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, columns = x.shape[a], x.shape[b]
    if offset >= 0:
        count, move = min(rows, columns - offset), offset * x.strides[b]
    else:
        count, move = min(rows + offset, columns), -offset * x.strides[a]
    count = max(count, 0)
    kept = [d for d in range(x.rank) if d not in (a, b)]
    return ((*(x.shape[d] for d in kept), count),
            (*(x.strides[d] for d in kept), x.strides[a] + x.strides[b]), move if count else 0)


@as_view(function_form=False)
def unfold(x, dimension, size, step):
    """Windows of `size` places along a dimension, `step` apart, as a last dimension."""
    d = sh.wrap_dim(dimension, x.rank, "unfold")
    n, stride = (x.shape[d], x.strides[d]) if x.rank else (1, 1)
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    shape, strides = list(x.shape), list(x.strides)
    if x.rank:
        shape[d], strides[d] = (n - size) // step + 1, stride * step
    return (*shape, size), (*strides, stride)


@unfold.gradient
def unfold(g, x_meta, dimension, size, step):
    return engine.accumulated(x_meta, g, lambda zeros: unfold(zeros, dimension, size, step))


@composite
def as_strided(x: T, size, stride, storage_offset=None):
    """A view of the storage with the given sizes and steps."""
    return engine.as_strided(x, whole("as_strided", "size", size),
                             whole("as_strided", "stride", stride), storage_offset)


# -- the same elements ---------------------------------------------------------------------------


@as_view(method=False)
def alias(x):
    """The same view again."""
    return x.shape, x.strides


@alias.gradient
def alias(g):
    return g


@composite(function_form=False)
def contiguous(x, memory_format=contiguous_format):
    """The tensor itself if it lies in memory in row-major order, else a copy that does."""
    return engine.contiguous(x, memory_format)


@as_view(differentiable=False)
def detach(x):
    """The same bytes outside the graph."""
    return x.shape, x.strides
