"""Reading and writing at places that indices name."""

from __future__ import annotations

from functools import lru_cache

from ..core import dtype as dt
from ..core import expr as e
from ..core import shape as sh
from .arithmetic import mul
from .declare import SAME, composite, engine, pointwise
from .refusal import check_element
from .shape import expand, reshape, unsqueeze

_WHOLE = (dt.int64, dt.int32)


def _check_index(name: str, index, allowed=_WHOLE) -> None:
    if index.dtype not in allowed:
        wanted = "/".join(d.name for d in reversed(allowed))
        raise RuntimeError(f"{name}(): Expected dtype {wanted} for index, got {index.dtype}")


def _need_tensor(name: str, index) -> None:
    if not hasattr(index, "sig"):
        raise TypeError(f"{name}(): argument 'index' must be Tensor, not {type(index).__name__}")


def _within(name: str, index, n: int, error=IndexError, d: int = 0, low: int = 0) -> None:
    """Refuse an index with elements outside [low, n)."""
    engine.check_bounds(index, low, n, _refusal(name, n, error, d))


@lru_cache(maxsize=256)
def _refusal(name: str, n: int, error, d: int):
    """What makes the error; the same for all calls, as compiled ones remember it."""
    return lambda i: error(f"{name}(): index {i} is out of bounds for dimension {d} with size {n}")


def _raised(x):
    """A 0-d tensor as a vector of one."""
    return reshape(x, (1,)) if x.sig.rank == 0 else x


# -- along one dimension, an index for every place -------------------------------------------------


def _along(name: str, x, dim, index, src=None, wrap=False):
    """(selection, dimension) of gather and scatter, with every check."""
    _need_tensor(name, index)
    d, n = _along_place(name, x.sig, dim, index.sig, getattr(src, "sig", src is not None))
    index = _raised(index)
    _within(name, index, n, RuntimeError, d, -n if wrap else 0)
    return engine.along(index, d, wrap), d


@lru_cache(maxsize=4096)
def _along_place(name: str, x, dim, index, src):
    """(dimension, its size) after checks of shapes; src is a signature, or whether there is one."""
    d = sh.wrap_dim(dim, x.rank, name)
    shape, wanted = tuple(x.shape) or (1,), tuple(index.shape) or (1,)
    if index.numel == 0:
        return d, shape[d]
    _check_index(name, index)
    called = "self" if src else "input"
    if len(shape) != len(wanted):
        raise RuntimeError(f"{name}(): Index tensor must have the same number of dimensions as "
                           f"{called} tensor")
    limits: list[tuple[str, tuple, int | None]] = [(called, shape, d)]
    if hasattr(src, "shape"):
        limits.append(("src", tuple(src.shape) or (1,), None))
        if len(limits[1][1]) != len(wanted):
            raise RuntimeError(f"{name}(): Index tensor must have the same number of dimensions as "
                               "src tensor")
    for called, limit, exempt in limits:
        if any(a > b for k, (a, b) in enumerate(zip(wanted, limit, strict=True)) if k != exempt):
            raise RuntimeError(_too_large(name, wanted, called, limit, exempt))
    return d, shape[d]


def _too_large(name: str, wanted, called: str, limit, exempt) -> str:
    """What torch says of an index that reaches beyond a tensor: gather says where."""
    but = "" if exempt is None else f" apart from dimension {exempt}"
    than = f"to be no larger than {called} {list(limit)}{but}"
    if name != "gather":
        return f"{name}(): Expected index {list(wanted)} {than}"
    at = next(k for k in range(len(limit)) if k != exempt and wanted[k] > limit[k])
    return f"gather(): Size does not match at dimension {at} expected index {list(wanted)} {than}"


@composite
def gather(x, dim, index, *, sparse_grad=False):
    """Elements along a dimension, where an index of the result's shape says."""
    chosen, _ = _along("gather", x, dim, index)
    out = engine.taken(_raised(x), chosen, "GatherBackward0")
    return out if out.sig.rank == index.sig.rank else reshape(out, tuple(index.sig.shape))


@composite(backward="GatherBackward0")
def take_along_dim(x, indices, dim=None):
    """Elements along a dimension, where an index that broadcasts with the input says."""
    _need_tensor("take_along_dim", indices)
    _check_index("take_along_dim", indices.sig, (dt.int64,))
    if dim is None:
        x, indices, dim = reshape(x, (-1,)), reshape(indices, (-1,)), 0
    if x.sig.rank != indices.sig.rank:
        raise RuntimeError("torch.take_along_dim(): input and indices should have the same number "
                           f"of dimensions, but got {x.sig.rank} dimensions for input, and "
                           f"{indices.sig.rank} dimensions for indices")
    d = sh.wrap_dim(dim, x.sig.rank, "take_along_dim")

    def without(shape):
        return (*shape[:d], 1, *shape[d + 1:])

    wide = sh.broadcast("take_along_dim", without(x.sig.shape), without(indices.sig.shape))
    x = expand(x, (*wide[:d], x.sig.shape[d], *wide[d + 1:]))
    indices = expand(indices, (*wide[:d], indices.sig.shape[d], *wide[d + 1:]))
    chosen, _ = _along("take_along_dim", x, d, indices, wrap=True)
    return engine.taken(x, chosen, "TakeAlongDimBackward0")


def _source(x, index, value, name: str):
    """What is scattered, cut to the shape of the index."""
    if not hasattr(value, "sig"):
        return engine.full((), value, x.sig.dtype, x.sig.device)
    if value.sig.dtype is not x.sig.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype, got "
                           f"{x.sig.dtype} and {value.sig.dtype}")
    value = _raised(value)
    wanted = tuple(_raised(index).sig.shape)
    for d, n in enumerate(wanted):
        if len(wanted) == value.sig.rank and value.sig.shape[d] > n:
            value = engine.narrow(value, d, 0, n)
    return value


_COMBINES = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "amax",
             "amin": "amin"}


def _scatter(name: str, x, dim, index, src=None, *, value=None, reduce=None):
    given = src if src is not None else value
    if given is None:
        raise TypeError(f"{name}() missing 1 required positional argument: 'src'")
    combine = None
    if reduce is not None:
        if reduce not in ("add", "multiply"):
            raise RuntimeError(f"{name}(): reduce argument must be either add or multiply.")
        combine = _COMBINES[reduce]
    chosen, _ = _along(name, x, dim, index, given)
    return chosen, _source(x, index, given, name), combine


def _scatter_add(name: str, x, dim, index, src):
    chosen, _ = _along(name, x, dim, index, src)
    return chosen, _source(x, index, src, name), "add"


# -- along one dimension, a vector of places ------------------------------------------------------


def _rows(name: str, x, dim, index, source=None, error=IndexError, low=0):
    """(selection, dimension) of the index_ family."""
    d = sh.wrap_dim(dim, x.sig.rank, name)
    if index.sig.rank > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but got dim: "
                         f"{index.sig.rank} with type: {index.sig.dtype} and size: "
                         f"{list(index.sig.shape)}")
    shape = tuple(_raised(x).sig.shape)
    _within(name, index, shape[d], error, d, low)
    if low:
        index = engine.remainder(index, max(shape[d], 1))
    return engine.rows(index, shape, d), d


@composite
def index_select(x, dim, index):
    """The places along a dimension that a vector names."""
    if index.sig.rank > 1:
        raise IndexError("index_select(): Index is supposed to be a vector, but got dim: "
                         f"{index.sig.rank}")
    _check_index("index_select", index.sig)
    if x.sig.rank == 0 and index.sig.numel != 1:
        raise RuntimeError("index_select(): Index to scalar can have only 1 value, got "
                           f"{index.sig.numel} value(s)")
    out = selected_rows("index_select", x, dim, index)
    return out if x.sig.rank else reshape(out, ())


def selected_rows(name: str, x, dim, index, error=IndexError):
    """The places along a dimension that a vector names, refused in the name of an op."""
    chosen, _ = _rows(name, x, dim, index, error=error)
    return engine.taken(_raised(x), chosen, "IndexSelectBackward0")


def _index_add(name: str, x, dim, index, source, *, alpha=1):
    if index.sig.dtype not in _WHOLE:
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index but got: "
                           f"{index.sig.dtype}")
    _same_dtype(name, x, source, RuntimeError)
    chosen, d = _rows(name, x, dim, index)
    _check_source(name, x, d, index, source, RuntimeError)
    if alpha != 1:
        source = mul(source, alpha)
    return chosen, _raised(source), "add"


def _same_dtype(name: str, x, source, error) -> None:
    if source.sig.dtype is not x.sig.dtype:
        raise error(f"{name}(): self and source expected to have the same dtype, but got (self) "
                    f"{x.sig.dtype} and (source) {source.sig.dtype}")


def _check_source(name: str, x, d: int, index, source, error) -> None:
    """One slice for every place, of the tensor's own shape."""
    have, given = tuple(_raised(x).sig.shape), tuple(_raised(source).sig.shape)
    wanted = (*have[:d], index.sig.numel, *have[d + 1:])
    if given != wanted:
        raise error(f"{name}(): source tensor shape must match self tensor shape, excluding the "
                    f"specified dimension. Got self.shape = {list(x.sig.shape)} source.shape = "
                    f"{list(source.sig.shape)}; with {index.sig.numel} indices along dimension {d} "
                    f"it must be {list(wanted)}")


def _index_copy(name: str, x, dim, index, source):
    d = sh.wrap_dim(dim, x.sig.rank, name)
    if index.sig.rank > 1:
        raise IndexError(f"{name}(): Index should have dimension 1 or 0 (got {index.sig.rank})")
    if source.sig.rank == 0 and index.sig.numel != 1:
        raise IndexError(f"{name}(): When source is scalar, index should have one element (got "
                         f"{index.sig.numel})")
    if source.sig.rank and x.sig.rank and source.sig.rank != x.sig.rank:
        raise IndexError(f"{name}(): When source and destination are not scalars, their "
                         f"dimensionality must match. Source dimensionality ({source.sig.rank}), "
                         f"destination dimensionality ({x.sig.rank})")
    if index.sig.dtype is not dt.int64:
        raise IndexError(f"{name}(): Expected a long tensor for index, but got {index.sig.dtype}")
    _same_dtype(name, x, source, RuntimeError)
    if source.sig.rank or x.sig.rank <= 1:
        if source.sig.rank and index.sig.numel != _raised(source).sig.shape[d]:
            raise IndexError(f"{name}(): Number of indices ({index.sig.numel}) should be equal to "
                             f"source.size(dim): ({_raised(source).sig.shape[d]})")
        _check_source(name, x, d, index, source, RuntimeError)
    chosen, _ = _rows(name, x, dim, index)
    return chosen, _raised(source), None


def _index_fill(name: str, x, dim, index, value):
    if index.sig.dtype is not dt.int64:
        raise IndexError(f"{name}(): Expected dtype int64 for index.")
    if hasattr(value, "sig"):
        if value.sig.rank:
            raise RuntimeError(f"{name}(): only supports a 0-dimensional value tensor, but got "
                               f"tensor with {value.sig.rank} dimension(s).")
        value = engine.cast(value, x.sig.dtype)
    else:
        if isinstance(value, complex) and x.sig.dtype.kind != "c":
            raise RuntimeError(f"{name}(): Converting complex Scalar to non-complex type is not "
                               "supported")
        check_element(value, x.sig.dtype)
        value = engine.full((), value, x.sig.dtype, x.sig.device)
    n = _raised(x).sig.shape[sh.wrap_dim(dim, x.sig.rank, name)]
    chosen, _ = _rows(name, x, dim, index, low=-n)
    return chosen, value, None


def _filled_mask(x, chosen):
    """Where a selection looks."""
    none = engine.full(_raised(x).sig.shape, False, dt.bool_, x.sig.device)
    return engine.put(none, chosen, engine.full((), True, dt.bool_, x.sig.device), None, "mask")


@composite
def index_fill(x, dim, index, value):
    """A copy with one value along a dimension at the places a vector names."""
    chosen, value, _ = _index_fill("index_fill", x, dim, index, value)
    if value.node is None:
        out = engine.put(_raised(x), chosen, value, None, "IndexFillBackward0")
    else:  # a place named twice is filled once
        out = masked_fill(_raised(x), _filled_mask(x, chosen), value)
    return out if x.sig.rank else reshape(out, ())


@composite(function_form=False)
def index_fill_(x, dim, index, value):
    """Write one value along a dimension at the places a vector names."""
    chosen, value, _ = _index_fill("index_fill_", x, dim, index, value)
    if value.node is None:
        engine.put_(_raised(x), chosen, value, None, "index_fill_", "IndexFillBackward0")
    else:
        _raised(x).masked_fill_(_filled_mask(x, chosen), value)
    return x


# -- any elements ---------------------------------------------------------------------------------


@composite
def take(x, index):
    """Elements of the flattened tensor, where an index says."""
    if index.sig.dtype is not dt.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {index.sig.dtype}")
    if x.sig.numel == 0 and index.sig.numel:
        raise IndexError("take(): tried to take from an empty tensor")
    flat = reshape(x, (x.sig.numel,))
    return engine.taken(flat, _anywhere("take", flat, index), "TakeBackward0")


def _anywhere(name: str, flat, index):
    n = flat.sig.numel
    engine.check_bounds(index, -n, n, lambda i: IndexError(
        f"{name}(): out of range: tried to access index {i} on a tensor of {n} elements."))
    return engine.index_selection(flat, [index])


@composite
def put(x, index, source, accumulate=False):
    """A copy with elements of the flattened tensor replaced, or added to."""
    return engine.overwritten(put_, x, index, source, accumulate)


@composite(function_form=False)
def put_(x, index, source, accumulate=False):
    """In-place form of `put`."""
    if index.sig.dtype is not dt.int64:
        raise RuntimeError(f"put_(): Expected a long tensor for index, but got {index.sig.dtype}")
    if source.sig.dtype is not x.sig.dtype:
        raise RuntimeError(f"put_(): self and source expected to have the same dtype, but got self."
                           f"dtype = {x.sig.dtype} and source.dtype = {source.sig.dtype}")
    if index.sig.numel != source.sig.numel:
        raise RuntimeError("put_(): Expected source and index to have the same number of "
                           f"elements, but got source.numel() = {source.sig.numel}, index.numel() "
                           f"= {index.sig.numel}")
    engine.demand_apart(source, x)
    if x.sig.numel == 0 and index.sig.numel:
        raise IndexError("put_(): tried to put elements into an empty tensor")
    places = engine.index_selection
    combine = "add" if accumulate else None
    flat = reshape(x, (x.sig.numel,))
    index, source = reshape(index, (-1,)), reshape(source, (-1,))
    if flat.mem is not x.mem:  # the elements do not lie in a row
        chosen = _anywhere("put_", flat, index)
        return x.copy_(reshape(engine.put(flat, chosen, source, combine, "PutBackward0"),
                               tuple(x.sig.shape)))
    _anywhere("put_", flat, index)
    engine.put_(flat, places(flat, [index]), source, combine, "put_", "PutBackward0")
    return x


@composite
def index_put(x, indices, values, accumulate=False):
    """A copy with the elements that index tensors select replaced, or added to."""
    chosen, values = _put_args(x, indices, values)
    return engine.put(x, chosen, values, "add" if accumulate else None, "IndexPutBackward0")


@composite
def index_put_(x, indices, values, accumulate=False):
    """In-place form of `index_put`."""
    chosen, fitting = _put_args(x, indices, values)
    combine = "add" if accumulate else None
    engine.put_(x, chosen, fitting, combine, "index_put_", "IndexPutBackward0")
    engine.remember_placing(x, chosen, indices, values, fitting, combine)
    return x


def _put_args(x, indices, values):
    if values.sig.dtype is not x.sig.dtype:
        raise RuntimeError("Index put requires the source and destination dtypes match, got "
                           f"{x.sig.dtype} for the destination and {values.sig.dtype} for the "
                           "source.")
    chosen = engine.index_selection(x, engine.index_tensors(x, indices))
    return chosen, engine.fitting(values, chosen.loops)


# -- masks ----------------------------------------------------------------------------------------


def _check_fill(operands, attributes) -> None:
    x, mask, value = operands
    if mask.dtype is not dt.bool_:
        raise RuntimeError(f"masked_fill only supports boolean masks, but got dtype {mask.dtype}")
    if hasattr(value, "rank"):
        if value.rank:
            raise RuntimeError("masked_fill only supports a 0-dimensional value tensor, but got "
                               f"tensor with {value.rank} dimension(s).")
        if value.dtype.kind == "c" != x.dtype.kind:
            raise RuntimeError(f"value cannot be converted to type {x.dtype.name} without overflow")
    else:
        check_element(value, x.dtype)


@pointwise(SAME, promote=(0,), check=_check_fill, backward={"ttt": "MaskedFillBackward1"})
def masked_fill(x, mask, value):
    """x, but `value` where a mask holds."""
    return e.where(mask, e.cast(value, x.dtype), x)


@composite(backward="MaskedSelectBackward0")
def masked_select(x, mask):
    """The elements where a mask holds, in a row."""
    if mask.sig.dtype is not dt.bool_:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {mask.sig.dtype}")
    shape = sh.broadcast("masked_select", tuple(x.sig.shape), tuple(mask.sig.shape))
    x, mask = expand(x, shape), expand(mask, shape)
    return reshape(x, (-1,))[reshape(mask, (-1,))]


@composite
def masked_scatter(x, mask, source):
    """A copy with the elements where a mask holds replaced by those of source, in order."""
    shape = sh.broadcast("masked_scatter", tuple(x.sig.shape), tuple(mask.sig.shape))
    return engine.overwritten(masked_scatter_, expand(x, shape), mask, source)


@composite(function_form=False)
def masked_scatter_(x, mask, source):
    """In-place form of `masked_scatter`."""
    if source.sig.dtype is not x.sig.dtype:
        raise RuntimeError(f"masked_scatter_: expected self and source to have same dtypes but got "
                           f"{x.sig.dtype} and {source.sig.dtype}")
    if mask.sig.dtype is not dt.bool_:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype "
                           f"{mask.sig.dtype}")
    mask = expand(mask, tuple(x.sig.shape))
    whole = x
    if not x.sig.rank:
        x, mask = unsqueeze(x, 0), unsqueeze(mask, 0)
    chosen = engine.index_selection(x, [mask, *[None] * (x.sig.rank - 1)])
    count = chosen.loops[0]
    if count > source.sig.numel:
        raise RuntimeError("masked_scatter: expected number of elements in source "
                           f"({source.sig.numel}) to be at least the number of ones in mask "
                           f"({count})")
    values = engine.narrow(reshape(source, (-1,)), 0, 0, count)
    engine.put_(x, chosen, values, None, "masked_scatter_", "MaskedScatterBackward0")
    return whole


# -- both forms of what only prepares a selection and values --------------------------------------


def _both(name: str, prepare, label: str, declared: bool = True):
    """Both forms of a deed, from one preparation; declared as `name` and `name_`."""
    def form(x, *args, **kwargs):
        chosen, value, combine = prepare(name, x, *args, **kwargs)
        out = engine.put(_raised(x), chosen, value, combine, label)
        return out if x.sig.rank else reshape(out, ())

    def form_(x, *args, **kwargs):
        chosen, value, combine = prepare(f"{name}_", x, *args, **kwargs)
        engine.put_(_raised(x), chosen, value, combine, f"{name}_", label)
        return x

    if not declared:
        return form, form_
    form.__doc__ = f"A copy of the tensor after `{name}_`."
    form_.__doc__ = _DOCS[name]
    form.__name__, form_.__name__ = name, f"{name}_"
    return composite(form), composite(function_form=False)(form_)


_DOCS = {
    "scatter_add": "Add elements along a dimension, where an index says.",
    "index_add":   "Add slices along a dimension at the places a vector names.",
    "index_copy":  "Write slices along a dimension at the places a vector names.",
}

scatter_add, scatter_add_ = _both("scatter_add", _scatter_add, "ScatterAddBackward0")
index_add, index_add_ = _both("index_add", _index_add, "IndexAddBackward0")
index_copy, index_copy_ = _both("index_copy", _index_copy, "IndexCopyBackward0")


# -- places ---------------------------------------------------------------------------------------


@composite
def nonzero(x, *, as_tuple=False):
    """The places of elements that are not zero: one row each, or one vector per dimension."""
    places = engine.nonzero(_raised(x) if as_tuple else x)
    return places.unbind(1) if as_tuple else places


@composite
def nonzero_static(input, *, size, fill_value=-1):
    """The first `size` places of elements that are not zero; rows of `fill_value` if fewer."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = engine.nonzero(input)
    count = min(size, found.sig.shape[0])
    out = engine.full((size, input.sig.rank), fill_value, dt.int64)
    engine.copy_into(engine.narrow(out, 0, 0, count), engine.narrow(found, 0, 0, count))
    return out


@composite
def argwhere(x):
    """The places of elements that are not zero, one row each."""
    return engine.nonzero(x)


@composite(method=False)
def unravel_index(indices, shape):
    """Flat places in a tensor of a shape, as one tensor of coordinates per dimension."""
    if not hasattr(indices, "sig") or indices.sig.dtype.kind not in "iu":
        raise ValueError("expected 'indices' to be integer dtype")
    shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"'shape' cannot have negative values, but got {shape}")
    indices, found, step = engine.cast(indices, dt.int64), [], 1
    for n in reversed(shape):
        found.append(engine.remainder(engine.floor_divide(indices, step), n))
        step *= n
    return tuple(reversed(found))


