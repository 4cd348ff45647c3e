"""Plans for reductions: kept loops outside, folds inside, one kernel."""

from __future__ import annotations

import inspect
from functools import lru_cache

from ..core import dtype as dt
from ..core import expr as ex
from ..core import shape as sh
from ..core.device import META
from ..core.kernel import Fold, Kernel, Store
from ..devices.cpu.compile import compile_kernel
from ..ops.declare import Reduction
from .layout import operands_of, reduction_walk
from .tensor import Signature, signature


def dims_of(op: Reduction, dim, rank: int) -> tuple[int, ...]:
    """The dimensions to reduce, in order; None or () means all."""
    if dim is None:
        return tuple(range(rank))
    if isinstance(dim, int):
        return (sh.wrap_dim(dim, rank, op.name),) if rank else (sh.wrap_dim(dim, rank, op.name),)[:0]
    dims = tuple(sorted(sh.wrap_dims(dim, rank, op.name)))
    if not dims:
        return tuple(range(rank))
    return dims if rank else ()


def reduced_shape(shape, dims, keepdim: bool) -> tuple[int, ...]:
    return tuple(1 if d in dims else n for d, n in enumerate(shape) if keepdim or d not in dims)


@lru_cache(maxsize=4096)
def _stages(op: Reduction, source: dt.dtype, operating: dt.dtype, axis: int):
    """Fold and stores of an op over elements of a dtype; operands are the results, then x."""
    compute = operating.compute
    start = op.start(compute) if callable(op.start) else op.start
    several = isinstance(start, tuple)
    starts = tuple(s if isinstance(s, ex.Expr) else ex.const(s, compute)
                   for s in (start if several else (start,)))
    n = len(starts)
    states = [ex.make("state", (), k, s.dtype) for k, s in enumerate(starts)]
    others = [ex.make("state", (), n + k, s.dtype) for k, s in enumerate(starts)]
    count = _result_count(op)
    x = ex.cast(ex.input(count, source.compute), compute)
    if op.indexed:
        stepped = op.body(tuple(states), x, ex.index(axis))
    else:
        stepped = op.body(tuple(states) if several else states[0], x)
    merge = op.merge or (lambda a, b: op.body(a, b))
    merged = merge(tuple(states), tuple(others)) if several else merge(states[0], others[0])
    fold = Fold(starts, _tuple(stepped), _tuple(merged))
    fold = Fold(starts, *(tuple(ex.cast(e, s.dtype) for e, s in zip(part, starts, strict=True))
                          for part in (fold.step, fold.merge)))
    values = [ex.make("fold", (), k, s.dtype) for k, s in enumerate(starts)]
    finished = values[0] if not several else tuple(values)
    params: tuple = ()
    if op.finish is not None:
        wants_count = len(inspect.signature(op.finish).parameters) > 1
        params = (compute if compute.kind == "f" else dt.float64,) if wants_count else ()
        finished = op.finish(finished, *(ex.param(k, p) for k, p in enumerate(params)))
    return fold, _tuple(finished), params


def _tuple(value) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _result_count(op: Reduction) -> int:
    return len(op.results) if op.results else 1


def result_dtypes(op: Reduction, operating: dt.dtype) -> list[dt.dtype]:
    if op.results:
        return [dt.RULES[rule](operating) for rule in op.results.values()]
    return [dt.RULES[op.rule](operating)]


def plan(op: Reduction, x: Signature, dim, keepdim: bool, wanted: dt.dtype | None):
    """(signatures of results, machine code, last argument, count or None, walk)."""
    dims = dims_of(op, dim, x.rank)
    if not op.empty and any(x.shape[d] == 0 for d in dims):
        _refuse_empty(op, x, dim)
    source = wanted or x.dtype
    operating = dt.operating(op.rule, source)
    shape = reduced_shape(x.shape, dims, keepdim)
    dtypes = [wanted] if wanted is not None and not op.results and op.rule in (
        dt.SUM, dt.FLOAT, dt.SAME) else result_dtypes(op, operating)
    sigs = [signature(d, shape, None, x.device) for d in dtypes]
    if x.device is META or sigs[0].numel == 0:
        return sigs, None, 0, None, None
    full = reduced_shape(x.shape, dims, True)
    spread = [tuple(0 if d in dims else s for d, s in enumerate(sh.contiguous_strides(full)))
              for _ in sigs]
    walk = reduction_walk(x.shape, dims, [*spread, x.strides],
                          [*(s.dtype.itemsize for s in sigs), x.dtype.itemsize], op.indexed)
    if op.indexed and walk.reduced != 1:
        return None
    lanes = _lanes(walk)
    fold, finished, params = _stages(op, x.dtype, operating, walk.kept)
    stores = tuple(Store(k, ex.cast(value, s.dtype.compute)) for k, (value, s) in enumerate(
        zip(finished, sigs, strict=True)))
    kernel = Kernel(operands_of(walk, [*(s.dtype for s in sigs), x.dtype], len(sigs)), params,
                    walk.kept, walk.reduced, lanes, (("fold", fold), ("row", stores)))
    count = 1
    for d in dims:
        count *= x.shape[d]
    return sigs, compile_kernel(kernel), walk.last, float(count) if params else None, walk


def _lanes(walk) -> str:
    """Along the innermost reduced loop if its memory is contiguous, else across the kept one."""
    source = walk.strides[-1]
    if source[-1] == 1 or source[walk.kept - 1] != 1 or walk.sizes[walk.kept - 1] < 4:
        return "reduced"
    return "kept"


def _refuse_empty(op: Reduction, x: Signature, dim):
    if dim is None:
        raise RuntimeError(f"{op.name}(): Expected reduction dim to be specified for input.numel() "
                           "== 0. Specify the reduction dim with the 'dim' argument.")
    raise IndexError(f"{op.name}(): Expected reduction dim {dim} to have non-zero size, but the input "
                     f"has shape {tuple(x.shape)}.")
