"""make_tensor: random elements of any dtype, within bounds."""

from __future__ import annotations

import flambeau

#: kinds of dtype -> (least, most) that are drawn unless told
_BOUNDS = {flambeau.uint8: (0, 10), flambeau.uint16: (0, 10), flambeau.uint32: (0, 10),
           flambeau.uint64: (0, 10), flambeau.bool: (0, 2)}


def make_tensor(*shape, dtype, device="cpu", low=None, high=None, requires_grad=False,
                noncontiguous=False, exclude_zero=False, memory_format=None):
    """Uniform elements in [low, high): by default [-9, 9] for floats, [-9, 10) for integers."""
    size = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    real = dtype.is_floating_point or dtype.is_complex
    least, most = _BOUNDS.get(dtype, (-9, 9 if real else 10))
    low, high = least if low is None else low, most if high is None else high
    if low > high or (low == high and not real):
        raise ValueError(f"make_tensor: `low` must be below `high`, got {low} and {high}")
    if requires_grad and not real:
        raise ValueError(f"make_tensor: `requires_grad` needs a floating or complex dtype, not "
                         f"{dtype}")
    if noncontiguous and memory_format is not None:
        raise ValueError("make_tensor: `noncontiguous` and `memory_format` exclude each other")
    drawn = (*size[:-1], 2 * size[-1]) if noncontiguous and size else size
    if real:
        x = flambeau.empty(drawn, dtype=dtype, device=device)
        part = flambeau.view_as_real(x) if dtype.is_complex else x
        part.copy_(flambeau.empty(part.shape).uniform_(low, high))
    else:
        x = flambeau.randint(int(low), int(high), drawn).to(dtype).to(device)
    x = x[..., ::2] if noncontiguous and size else x
    if exclude_zero:
        smallest = flambeau.finfo(dtype).tiny if real else 1
        x = flambeau.where(x == 0, flambeau.full_like(x, smallest), x)
    if memory_format is not None:
        x = x.to(memory_format=memory_format)
    return x.requires_grad_(requires_grad) if requires_grad else x
