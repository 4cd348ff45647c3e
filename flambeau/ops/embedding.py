"""Embeddings: rows of a table by number, alone or in bags."""

from __future__ import annotations

from ..core import dtype as dt
from ..core.lazily import np
from .declare import T, composite, engine, registry
from .index import selected_rows
from .refusal import spoken

_WHOLE = (dt.int64, dt.int32)


def _require_whole(name: str, argument: str, indices) -> None:
    if indices.dtype not in _WHOLE:
        raise RuntimeError(f"{name}: Expected tensor for argument '{argument}' to have one of the "
                           f"following scalar types: Long, Int; but got {spoken(indices.dtype)} "
                           "instead")


def _out_of_range(detail: str) -> IndexError:
    return IndexError(f"index out of range in self: {detail}")


def _flat(indices):
    return engine.reshape(indices, (-1,))


@composite(method=False)
def embedding(weight: T, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """The rows of a table that indices name."""
    _require_whole("embedding", "indices", indices)
    if weight.dim() != 2:
        raise RuntimeError(f"'weight' must be 2-D, got {weight.dim()}-D")
    rows = selected_rows("embedding", weight, 0, _flat(indices), _out_of_range)
    return engine.reshape(rows, (*indices.shape, weight.shape[1]))


@embedding.gradient
def embedding(g, weight_meta, indices, padding_idx, scale_grad_by_freq, sparse):
    flat, width = _flat(indices), weight_meta.shape[1]
    g = engine.reshape(g, (-1, width))
    if sparse:
        return _sparse_gradient(g, weight_meta, flat, padding_idx, scale_grad_by_freq)
    if scale_grad_by_freq:
        counts = registry["bincount"](flat, None, weight_meta.shape[0])
        often = registry["index_select"](counts, 0, flat)
        g = g / engine.reshape(engine.cast(often, g.dtype), (-1, 1))
    if padding_idx is not None and padding_idx >= 0:
        g = registry["where"](engine.reshape(flat == padding_idx, (-1, 1)), 0.0, g)
    table = engine.full(weight_meta.shape, 0, weight_meta.dtype)
    if engine.recording():
        return table.index_add(0, flat, g)
    return table.index_add_(0, flat, g)


def _sparse_gradient(g, weight_meta, flat, padding_idx, scale_grad_by_freq):
    """The rows that were looked up, as a tensor in coordinates."""
    if scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse "
                           "gradients")
    if padding_idx is not None and padding_idx >= 0:
        used = engine.tensor(np.flatnonzero(engine.to_array(flat) != padding_idx))
        flat, g = (registry["index_select"](x, 0, used) for x in (flat, g))
    return engine.sparse_rows(weight_meta.shape, flat, g)


@composite(method=False)
def embedding_renorm_(input, indices, max_norm, norm_type):
    """Shrink, in place, the rows that indices name to a norm of at most max_norm."""
    used = engine.tensor(np.unique(engine.to_array(_flat(indices))))
    if used.numel():
        engine.without_grad(_shrink, input, used, max_norm, norm_type)
    return input


def _shrink(weight, used, max_norm: float, norm_type: float) -> None:
    rows = registry["index_select"](weight, 0, used)
    norms = registry["linalg.vector_norm"](rows, norm_type, 1, True)
    scale = registry["where"](norms > max_norm, max_norm / (norms + 1e-7), 1.0)
    weight.index_copy_(0, used, rows * engine.cast(scale, rows.dtype))


def _row_number(name: str, index, weight):
    """A padding index counted from the front, or -1 if there is none."""
    if index is None:
        return -1
    n = weight.shape[0]
    if not -n <= index < n:
        raise AssertionError(f"{name}: Padding_idx must be within num_embeddings, got {index} for "
                             f"{n} rows")
    return index + n if index < 0 else index


@composite(name="embedding", where="nn.functional")
def functional_embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0,
                         scale_grad_by_freq=False, sparse=False):
    """The rows of a table that indices name."""
    padding = _row_number("embedding", padding_idx, weight)
    if max_norm is not None:
        embedding_renorm_(weight, input, max_norm, norm_type)
    return embedding(weight, input, padding, scale_grad_by_freq, sparse)


# -- bags -----------------------------------------------------------------------------------------


def _bag_numbers(count: int, offsets, include_last_offset: bool):
    """For each index the number of its bag, and how many bags there are."""
    starts = engine.to_array(offsets).astype(np.int64)
    if include_last_offset:
        if not starts.size:
            raise RuntimeError("embedding_bag: include_last_offset: number of offsets should be at "
                               "least 1")
        starts = starts[:-1]
    if starts.size and starts[0] != 0:
        raise RuntimeError("embedding_bag: offsets[0] has to be 0, i.e., the first sequence in the "
                           f"mini-batch has to start from position 0. However, got {starts[0]}")
    if starts.size and starts[-1] > count:
        raise RuntimeError("embedding_bag: offsets[-1] can not be greater than input's length "
                           f"({count}), but got offsets[-1] of {starts[-1]}")
    sizes = np.diff(np.append(starts, count))
    return np.repeat(np.arange(starts.size), sizes) if starts.size else np.empty(
        0, np.int64), starts.size


def _largest_rows(weight, flat: np.ndarray, bags: np.ndarray, n: int):
    """For each bag and column the number of the row with the largest element, and which bags
    have one."""
    table = engine.to_array(weight.detach())[flat]
    chosen = np.zeros((n, table.shape[1]), np.int64)
    filled = np.zeros(n, bool)
    for bag in range(n):
        members = np.flatnonzero(bags == bag)
        if members.size:
            filled[bag] = True
            chosen[bag] = flat[members[table[members].argmax(0)]]
    return chosen, filled


def _largest(weight, flat, bags: np.ndarray, n: int, padding: int):
    numbers = engine.to_array(flat)
    keep = numbers != padding
    chosen, filled = _largest_rows(weight, numbers[keep], bags[keep], n)
    rows = registry["gather"](weight, 0, engine.tensor(chosen))
    return registry["where"](engine.tensor(filled[:, None]), rows, 0.0), chosen


def _bagged(weight, flat, bags: np.ndarray, n: int, mode: str, padding: int, each_weight, by_freq,
            sparse: bool):
    """Sums or means of the rows in each bag."""
    rows = embedding(weight, flat, padding if sparse else -1, by_freq, sparse)
    keep = flat != padding
    if each_weight is not None:
        rows = rows * engine.reshape(each_weight, (-1, 1))
    if padding >= 0:
        rows = registry["where"](engine.reshape(keep, (-1, 1)), rows, 0.0)
    out = engine.full((n, weight.shape[1]), 0, weight.dtype)
    out = out.index_add(0, engine.tensor(bags), rows)
    if mode == "mean":
        sizes = np.bincount(bags[engine.to_array(keep)], minlength=n).clip(1)
        out = out / engine.tensor(sizes[:, None], weight.dtype)
    return out


_MODES = {"sum": 0, "mean": 1, "max": 2}
#: modes in which bags of one size are a reduction of the rows
_ALIKE = frozenset(("sum", "mean"))


def _check_bags(input, offsets, per_sample_weights, mode: str, by_freq: bool, sparse: bool):
    """Flat indices, offsets and weights of a call, or ValueError."""
    if mode not in _MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(f"embedding_bag: If per_sample_weights "
                         f"({tuple(per_sample_weights.shape)}) is not None, then it must have the "
                         f"same shape as the input ({tuple(input.shape)})")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is "
                             "a mini-batch of fixed length sequences. However, found offsets of "
                             f"type {type(offsets)}")
        n, size = input.shape
        offsets = engine.tensor(np.arange(n) * size)
        input = _flat(input)
        if per_sample_weights is not None:
            per_sample_weights = engine.reshape(per_sample_weights, (-1,))
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.dim() != 1:
            raise ValueError("offsets has to be a 1D Tensor")
    else:
        raise ValueError("input has to be 1D or 2D Tensor, but got Tensor of dimension "
                         f"{input.dim()}")
    if mode == "max" and by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. "
                                  f"per_sample_weights is only supported for mode='sum' (got "
                                  f"mode='{mode}'). Please open a feature request on GitHub.")
    return input, offsets, per_sample_weights


@composite(name="embedding_bag", where="nn.functional", backward="EmbeddingBagBackward0")
def functional_embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2,
                             scale_grad_by_freq=False, mode="mean", sparse=False,
                             per_sample_weights=None, include_last_offset=False, padding_idx=None):
    """Sums, means or largest elements of the rows of a table in each bag of indices."""
    if weight.dtype in _WHOLE and input.dtype.kind == "f":
        input, weight = weight, input
    if mode in _ALIKE and input.dim() == 2 and input.numel() and not (
            scale_grad_by_freq or sparse or include_last_offset) and (
            offsets is max_norm is per_sample_weights is padding_idx is None):
        _require_whole("embedding_bag", "indices", input)
        return getattr(functional_embedding(input, weight), mode)(1)
    flat, offsets, each_weight = _check_bags(input, offsets, per_sample_weights, mode,
                                             scale_grad_by_freq, sparse)
    _require_whole("embedding_bag", "indices", flat)
    padding = _row_number("embedding_bag", padding_idx, weight)
    if max_norm is not None:
        embedding_renorm_(weight, flat, max_norm, norm_type)
    bags, n = _bag_numbers(flat.numel(), offsets, include_last_offset)
    if mode == "max":
        return _largest(weight, flat, bags, n, padding)[0]
    return _bagged(weight, flat, bags, n, mode, padding, each_weight, scale_grad_by_freq,
                   sparse)


@composite(method=False)
def embedding_bag(weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=None):
    """The same, with the bag of each index, the sizes of bags, and the rows of largest elements."""
    name = next(k for k, v in _MODES.items() if v == mode)
    out = functional_embedding_bag(indices, weight, offsets, None, 2, scale_grad_by_freq, name,
                                   sparse, per_sample_weights, include_last_offset, padding_idx)
    bags, n = _bag_numbers(indices.numel(), offsets, include_last_offset)
    numbers, padding = engine.to_array(indices), _row_number("embedding_bag", padding_idx, weight)
    keep = numbers != padding
    sizes = np.bincount(bags[keep], minlength=n)
    chosen = np.zeros(0, np.int64)
    if name == "max":
        chosen = _largest_rows(weight, numbers[keep], bags[keep], n)[0]
    return out, engine.tensor(bags), engine.tensor(sizes), engine.tensor(chosen)
