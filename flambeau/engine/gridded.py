"""Fronts of `grid_sample` of images: one native call for all points.

Volumes, cubic interpolation, half types, other layouts and errors are left to the fronts that the
ops have anyway.
"""

from __future__ import annotations

from math import prod

from ..core import dtype as dt
from ..core.device import CPU
from ..devices.cpu import sampling
from ..ops.declare import Op
from .eager import new_table
from .formula import bind, record
from .fresh import empty
from .interception import PLAIN, tracers
from .modes import modes
from .tensor import Signature, Tensor, signature

#: places are counted in 32 bits, and in float32 exactly up to here
_LARGEST = 1 << 24


def _planned(x: Signature, grid: Signature, mode: int, padding: int, align: bool):
    """(signature of the result, machine code, its last arguments); None where there is none."""
    plain = (x.tag is None and grid.tag is None and x.device is CPU and grid.device is CPU
             and x.contiguous and grid.contiguous and x.dtype is grid.dtype)
    if not plain or x.dtype not in (dt.float32, dt.float64) or x.rank != 4 or grid.rank != 4:
        return None
    n, channels, height, width = x.shape
    if grid.shape[0] != n or grid.shape[-1] != 2 or mode >= len(sampling.MODES) or not (
            0 < height * width <= _LARGEST):
        return None
    out = signature(x.dtype, (n, channels, *grid.shape[1:3]))
    points = prod(grid.shape[1:3])
    run = sampling.sampled(x.dtype.name, mode, padding, align)
    return out, run, (n, channels, height, width, points, max(out.numel, n * points))


_plans = new_table()


def _sampled(x, grid, *how) -> Tensor | None:
    """The result, unrecorded, or None."""
    if tracers or type(x) not in PLAIN or type(grid) not in PLAIN:
        return None
    key = (x.sig, grid.sig, how)
    try:
        plan = _plans[key]
    except KeyError:
        plan = _plans[key] = _planned(*key[:2], *how)
    if plan is None:
        return None
    sig, run, numbers = plan
    out = empty(sig)
    if sig.numel:
        run(out.ptr, x.ptr, grid.ptr, *numbers)
    return out


def _sampler(op: Op, otherwise):
    """grid_sampler_2d, whose modes are numbers."""
    def front(*args, **kwargs) -> Tensor:
        bound = bind(op, args, kwargs)
        x, grid = bound["input"], bound["grid"]
        out = _sampled(x, grid, int(bound["interpolation_mode"]), int(bound["padding_mode"]),
                       bool(bound["align_corners"]))
        if out is None:
            return otherwise(*args, **kwargs)
        if modes.grad and (x.node is not None or grid.node is not None):
            record(op, bound, out)
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


_NUMBERS = ({"bilinear": 0, "nearest": 1}, {"zeros": 0, "border": 1, "reflection": 2})


def _by_name(op: Op, otherwise):
    """grid_sample, where nothing is recorded."""
    def front(input, grid, mode="bilinear", padding_mode="zeros",
              align_corners=None) -> Tensor:
        if not (modes.grad and (getattr(input, "node", 1) is not None
                                or getattr(grid, "node", 1) is not None)):
            way, padding = _NUMBERS[0].get(mode), _NUMBERS[1].get(padding_mode)
            if way is not None and padding is not None:
                out = _sampled(input, grid, way, padding, bool(align_corners))
                if out is not None:
                    return out
        return otherwise(input, grid, mode, padding_mode, align_corners)

    front.__name__, front.__doc__ = op.name, op.doc
    return front


FRONTS = {"grid_sampler_2d": _sampler, "grid_sample": _by_name}
