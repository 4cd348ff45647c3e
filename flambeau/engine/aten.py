"""Ops of torch.ops.aten that have no public name, or another meaning under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.engine.tensor import Tensor


def _to_copy(x: Any, *, dtype: Any = None, **rest: Any) -> Tensor:
    return x.to(dtype) if dtype not in (None, x.dtype) else x.clone()


def _index(x: Any, indices: Any) -> Tensor:
    if not isinstance(indices, list):
        return x[indices]
    return x[tuple(slice(None) if i is None else i for i in indices)]


def _index_put(x: Any, key: Any, values: Any, accumulate: bool = False) -> Tensor:
    """An assignment, or an index_put_ where all indices are tensors."""
    if isinstance(values, Tensor) and isinstance(key, list | tuple) and key and all(
            isinstance(k, Tensor) for k in key):
        return x.index_put_(tuple(key), values, accumulate)
    x[key] = values
    return x


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    return x[(slice(None),) * dim + (slice(start, end, step),)]


def _alias(x: Any) -> Tensor:
    return x.view(x.shape)


APART: dict[str, Callable] = {
    "_to_copy": _to_copy,
    "_local_scalar_dense": lambda x: x.item(),
    "_softmax": lambda x, dim, half_to_float: x.softmax(dim),
    "_log_softmax": lambda x, dim, half_to_float: x.log_softmax(dim),
    "_sparse_addmm": lambda x, mat1, mat2, **scales: x.addmm(mat1, mat2, **scales),
    "_unsafe_view": lambda x, size: x.reshape(size),
    "_pin_memory": lambda x, device=None: x.pin_memory(),
    "alias": _alias,
    "index": _index,
    "index_put_": _index_put,
    "lift_fresh": lambda x: x,
    "slice": _slice,
}
