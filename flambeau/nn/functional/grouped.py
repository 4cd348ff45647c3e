"""Products of matrices in groups, as layers of experts need them."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor

__all__ = ["grouped_mm"]

_DTYPES = (flambeau.float32, flambeau.bfloat16, flambeau.float16)


def grouped_mm(mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None,
               bias: Tensor | None = None, out_dtype: Any = None) -> Tensor:
    """Products of groups: `offs` says where each ends along the dimension that is shared out.

    Rows of a matrix with matrices of their own; matrices of their own with columns; rows with
    rows, summed within each group; or, without `offs`, matrices in pairs.

    >>> import flambeau as torch
    >>> rows, experts = torch.ones(3, 2), torch.tensor([[[1.0], [1.0]], [[5.0], [5.0]]])
    >>> grouped_mm(rows, experts, offs=torch.tensor([2, 3], dtype=torch.int32)).flatten()
    tensor([ 2.,  2., 10.])
    """
    _check(mat_a, mat_b, offs, bias, out_dtype)
    if offs is None:
        return mat_a @ mat_b
    ends = offs.tolist()
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    if mat_a.dim() == 2 and mat_b.dim() == 2:
        inner = zip(_groups(mat_a, sizes, 1), _groups(mat_b, sizes, 0), strict=True)
        return flambeau.stack([a @ b for a, b in inner])
    if mat_a.dim() == 2:
        pairs, along = zip(_groups(mat_a, sizes, 0), mat_b.unbind(), strict=True), 0
    else:
        pairs, along = zip(mat_a.unbind(), _groups(mat_b, sizes, 1), strict=True), 1
    parts = [a @ b for (a, b), size in zip(pairs, sizes, strict=True) if size]
    length = (mat_a if along == 0 else mat_b).size(along)
    if not parts or sum(sizes) < length:  # what no group has
        shape = [mat_a.size(-2), mat_b.size(-1)]
        shape[along] = length - sum(sizes)
        parts.append(mat_a.new_zeros(shape))
    return flambeau.cat(parts, along) if len(parts) > 1 else parts[0]


def _groups(x: Tensor, sizes: list[int], dim: int) -> tuple[Tensor, ...]:
    rest = x.size(dim) - sum(sizes)
    return x.split([*sizes, rest], dim)[:-1] if rest else x.split(sizes, dim)


def _check(a: Tensor, b: Tensor, offs: Tensor | None, bias: Any, out_dtype: Any) -> None:
    for name, x in (("mat_a", a), ("mat_b", b)):
        if x.dtype not in _DTYPES:
            raise RuntimeError(f"grouped_mm: Expected {name} to be Float32, BFloat16 or Float16 "
                               f"matrix, got {x.dtype}")
        if x.dim() not in (2, 3):
            raise RuntimeError(f"grouped_mm: {name} has to be 2 or 3d, got {x.dim()}d")
    if a.size(-1) != b.size(-2):
        raise RuntimeError("grouped_mm: contraction dimension of mat_a and mat_b must match, got "
                           f"{a.size(-1)} and {b.size(-2)}")
    if (offs is not None) != (a.dim() == 2 or b.dim() == 2):
        raise RuntimeError("grouped_mm: Have to provide offsets if there is a 2d matrix, or no "
                           "offset if both matrices are 3d")
    if offs is not None and offs.dtype is not flambeau.int32:
        raise RuntimeError(f"grouped_mm: Offsets have to be int32, got {offs.dtype}")
    counts = {x.size(0) for x in (a, b) if x.dim() == 3} | (
        set() if offs is None else {offs.size(0)})
    if len(counts) > 1:
        raise RuntimeError(f"grouped_mm: matrix batch sizes have to match, got {sorted(counts)}")
    if bias is not None:
        raise RuntimeError("grouped_mm: Bias not supported yet")
    if out_dtype not in (None, a.dtype):
        raise RuntimeError("grouped_mm: Grouped gemm output dtype must match `mat_a` dtype")
