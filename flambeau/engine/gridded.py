"""Fronts of `grid_sample` and of its ways back: one native call for all points.

Half types, gradients that are recorded, and errors are left to the fronts that the
ops have anyway.
"""

from __future__ import annotations

from math import prod

from ..core import dtype as dt
from ..core.device import CPU
from ..devices.cpu import sampling
from ..ops.declare import Op, registry
from .convolve import plain_values
from .eager import new_table
from .formula import bind, record
from .fresh import empty
from .interception import PLAIN, tracers
from .modes import modes
from .tensor import Signature, Tensor, signature

#: places are counted in 32 bits, and in float32 exactly up to here
_LARGEST = 1 << 24


class _Plan:
    """What is run for known signatures, there and back."""

    __slots__ = ("how", "numbers", "out")

    def __init__(self, x: Signature, grid: Signature, *how):
        n, channels, *sizes = x.shape
        places = tuple(grid.shape[1:-1])
        self.how = (x.dtype.name, len(sizes), *how)
        self.out = signature(x.dtype, (n, channels, *places))
        points = prod(places)
        depth, height, width = (1, *sizes)[-3:]
        self.numbers = (n, channels, depth, height, width, points,
                        max(self.out.numel, n * points))

    def run(self, way: str, out: Tensor, x: Tensor, grid: Tensor, g: int = 0) -> Tensor:
        if out.sig.numel:
            x = x if x.sig.contiguous else plain_values(x, x.sig.dtype)
            grid = grid if grid.sig.contiguous else plain_values(grid, grid.sig.dtype)
            sampling.sampled(way, *self.how)(out.ptr, x.ptr, grid.ptr, g, *self.numbers)
        return out


def _planned(x: Signature, grid: Signature, mode: int, padding: int, align: bool) -> _Plan | None:
    """How a grid is read, or None where there is no machine code for it."""
    plain = (x.tag is None and grid.tag is None and x.device is CPU and grid.device is CPU
             and x.dtype is grid.dtype)
    rank = x.rank - 2
    if (not plain or x.dtype not in (dt.float32, dt.float64) or rank not in (2, 3)
            or grid.rank != x.rank):
        return None
    if grid.shape[0] != x.shape[0] or grid.shape[-1] != rank or not (
            0 < prod(x.shape[2:]) <= _LARGEST):
        return None
    if mode not in _MODES[rank] or padding not in range(len(sampling.PADDINGS)):
        return None
    return _Plan(x, grid, mode, padding, align)


#: numbers of the modes by how many dimensions are read
_MODES = {2: (0, 1, 2), 3: (0, 1)}

_plans = new_table()


def _plan_of(x, grid, *how) -> _Plan | None:
    if tracers or type(x) not in PLAIN or type(grid) not in PLAIN:
        return None
    key = (x.sig, grid.sig, how)
    try:
        return _plans[key]
    except KeyError:
        plan = _plans[key] = _planned(*key[:2], *how)
        return plan


def _recorded(*tensors) -> bool:
    if modes.grad:
        for t in tensors:
            if t.node is not None:
                return True
    return False


def _sampler(op: Op, otherwise):
    """grid_sampler_2d and grid_sampler_3d, whose modes are numbers."""
    rank = int(op.name[-2])

    def front(*args, **kwargs) -> Tensor:
        bound = bind(op, args, kwargs)
        x, grid = bound["input"], bound["grid"]
        plan = _plan_of(x, grid, int(bound["interpolation_mode"]), int(bound["padding_mode"]),
                        bool(bound["align_corners"]))
        if plan is None or x.sig.rank != rank + 2:
            return otherwise(*args, **kwargs)
        out = plan.run("read", empty(plan.out), x, grid)
        if _recorded(x, grid):
            record(op, bound, out)
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


_NUMBERS = ({"bilinear": 0, "nearest": 1, "bicubic": 2},
            {"zeros": 0, "border": 1, "reflection": 2})


def _by_name(op: Op, otherwise):
    """grid_sample, whose modes have names."""
    def front(input, grid, mode="bilinear", padding_mode="zeros",
              align_corners=None) -> Tensor:
        way, padding = _NUMBERS[0].get(mode), _NUMBERS[1].get(padding_mode)
        align = bool(align_corners)
        plan = _plan_of(input, grid, way, padding, align)
        if plan is None:
            return otherwise(input, grid, mode, padding_mode, align_corners)
        out = plan.run("read", empty(plan.out), input, grid)
        if _recorded(input, grid):
            record(registry[f"grid_sampler_{input.sig.rank - 2}d"],
                   {"input": input, "grid": grid, "interpolation_mode": way,
                    "padding_mode": padding, "align_corners": align}, out)
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _way_back(op: Op, otherwise):
    """What goes back to the input or to the grid, where that is not recorded itself."""
    way, to = {"grid_sampler_input_gradient": ("spread", "input"),
               "grid_sampler_grid_gradient": ("move", "grid")}[op.name]

    def front(g, input, grid, *how) -> Tensor:
        plan = _plan_of(input, grid, *how)
        if plan is None or _recorded(g, input, grid) or type(g) not in PLAIN or (
                g.sig.tag is not None or g.sig.shape != plan.out.shape
                or g.sig.dtype is not plan.out.dtype or (way == "move" and how[0] == 1)):
            return otherwise(g, input, grid, *how)
        if not g.sig.contiguous:
            g = g.contiguous()
        back = input if to == "input" else grid
        out = empty(signature(back.sig.dtype, tuple(back.sig.shape)))
        return plan.run(way, out, input, grid, g.ptr)

    front.__name__, front.__doc__ = op.name, op.doc
    return front


FRONTS = {"grid_sampler_2d": _sampler, "grid_sampler_3d": _sampler, "grid_sample": _by_name,
          "grid_sampler_input_gradient": _way_back, "grid_sampler_grid_gradient": _way_back}
