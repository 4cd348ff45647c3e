"""Reductions: their fronts, and their plans with kept loops outside, folds inside, one kernel."""

from __future__ import annotations

import struct
import sys
from array import array
from functools import lru_cache
from operator import index
from typing import Any

from ..core import dtype as dt
from ..core import expr as ex
from ..core import shape as sh
from ..core.device import META
from ..core.kernel import Fold, Kernel, Operand, Store
from ..core.lazily import Lazily
from ..core.signature import parameters_of
from ..devices.cpu.compile import ADDRESSES, compile_kernel
from ..devices.parallel import in_blocks
from ..ops.declare import Reduction
from .eager import engine, new_table
from .formula import back_of, numbered_back, record
from .fresh import empty
from .interception import intercepted
from .layout import SHORT, operands_of, reduction_walk
from .modes import modes
from .node import fronts
from .tensor import Signature, Tensor, signature

scans: Any = Lazily("flambeau.devices.cpu.scans")


def reduction_front(op: Reduction):
    plans = new_table()
    kin_plans: dict = {}
    several = op.results is not None
    defaults = tuple(op.defaults[name] for name in op.attributes if name in op.defaults)

    def front(input, dim=None, keepdim=False, *, dtype=None, **named):
        numbers = defaults
        if named:
            dim, keepdim, numbers = _respelled(op, dim, keepdim, named)
        if type(dim) not in _DIMENSIONS:
            dim = _whole_dim(op, dim)
        if keepdim.__class__ is not bool:
            keepdim = _truth(op, keepdim)
        try:
            sigs, run, last, count = plans[input.sig, dim, keepdim, dtype][:4]
        except (KeyError, AttributeError, TypeError):
            found = intercepted(op, (input, dim, keepdim), {"dtype": dtype, **named})
            if found is not None:
                return found[0]
            _require_tensor(op, input)
            dim = tuple(dim) if isinstance(dim, (list, tuple)) else dim
            chosen = plan(op, input.sig, dim, keepdim, dtype)
            if chosen is None:  # positions along several dimensions need them in one piece
                return front(engine.contiguous(input), dim, keepdim, dtype=dtype, **named)
            parts = chosen + _native_parts(op, input.sig, dim, keepdim, dtype, chosen)
            plans[input.sig, dim, keepdim, dtype] = parts
            _serves_kin(op, kin_plans, input.sig, dim, keepdim, dtype, parts)
            sigs, run, last, count = chosen[:4]
        outs = [empty(sig) for sig in sigs]
        if run is not None:
            run(*[o.ptr for o in outs], input.ptr, *count, *numbers, last)
        result = outs if several else outs[0]
        if input.node is not None and modes.grad and op.formula is not None and (
                sigs[0].dtype.kind in "fc"):
            bound = {"x": input, "dim": dim, "keepdim": keepdim, "dtype": dtype,
                     **dict(zip(op.attributes, numbers, strict=True))}
            second = op.numbered and dim is not None
            record(op, bound, result, numbered_back(op) if second else None)
        return engine.named(op, result) if several else result

    front.__name__, front.__doc__ = op.name, op.doc
    if several:
        return front
    run, context = fronts.adopt(front, plans, "s", op.name, op.doc, False, kin_plans)
    op.method_form = fronts.method(context, "s", op.name, op.doc) if op.method else None
    return run


def _native_parts(op: Reduction, x: Signature, dim, keepdim, dtype, chosen) -> tuple:
    """What a native front reads: packed words, free list, signatures, a step that keeps nothing.

    The fourth word says whether such a step can be recorded natively: 1 it can, 0 nothing flows
    back, -1 tensors must be kept, which is left to Python.
    """
    sigs, run, last, count, _ = chosen
    address = ADDRESSES.get(run)
    if address is None or op.attributes or len(count) > 1:
        return None, None, None, None, None, None
    packed = array("q", [address, last, len(count), -1, 0, 0, -1])
    if count:
        packed[4] = struct.unpack("q", struct.pack("d", count[0]))[0]
    back = kept = versions = None
    if op.formula is None or sigs[0].dtype.kind not in "fc":
        packed[3] = 0
    elif "x" not in op.wanted and "out" not in op.wanted:
        known = {"g": None, "x_meta": x, "dim": dim, "keepdim": keepdim, "dtype": dtype}
        back = numbered_back(op) if op.numbered and dim is not None else back_of(op)
        kept = tuple([known[name] for name in op.wanted])
        versions, packed[3] = (0,) * len(kept), 1
        packed[6] = op.wanted.index("x_meta") if "x_meta" in op.wanted else -1
    return packed, sigs[0].free, tuple(sigs), back, kept, versions


def _serves_kin(op: Reduction, kin_plans: dict, x: Signature, dim, keepdim, dtype, parts) -> None:
    """Keep the plan of a whole contiguous tensor for every shape of its kind."""
    walk, packed = parts[4], parts[5]
    if packed is not None and walk.whole and x.kin is not None and (
            dim is None and keepdim is False and dtype is None):
        packed[5] = MANY - 1 if op.wide else sys.maxsize
        if x.numel <= packed[5]:
            kin_plans[x.kin] = parts


def _respelled(op: Reduction, dim, keepdim: bool, named: dict):
    """numpy's names for dim and keepdim, and an op's own attributes in their order."""
    named = dict(named)
    dim, keepdim = named.pop("axis", dim), named.pop("keepdims", keepdim)
    numbers = tuple(float(named.pop(name, op.defaults.get(name))) for name in op.attributes)
    if named:
        raise TypeError(f"{op.said}() got an unexpected keyword argument '{next(iter(named))}'")
    return dim, keepdim, numbers


_DIMENSIONS = frozenset((int, tuple, list, type(None)))


def _whole_dim(op: Reduction, dim):
    """A dimension given as numpy's integer, or as a tensor of one; sequences as they are."""
    if not hasattr(dim, "__index__"):
        if isinstance(dim, str):
            raise TypeError(f"{op.said}(): argument 'dim' must be tuple of ints, not str")
        return dim
    try:
        if isinstance(dim, bool):  # most likely meant for keepdim
            raise TypeError
        return index(dim)
    except TypeError:
        raise TypeError(f"{op.said}(): argument 'dim' must be tuple of ints, not "
                        f"{type(dim).__name__}") from None


def _truth(op: Reduction, keepdim) -> bool:
    """keepdim, which may be numpy's boolean or a traced value; a number is likely a dimension."""
    if isinstance(keepdim, (int, float, str, type(None))):
        raise TypeError(f"{op.said}(): argument 'keepdim' must be bool, not "
                        f"{type(keepdim).__name__}")
    return keepdim


def _require_tensor(op: Reduction, x) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{op.said}(): argument 'input' (position 1) must be Tensor, not "
                        f"{type(x).__name__}")


def dims_of(op: Reduction, dim, rank: int) -> tuple[int, ...]:
    """The dimensions to reduce, in order; None or () means all."""
    if dim is None:
        return tuple(range(rank))
    if isinstance(dim, int):
        return (sh.wrap_dim(dim, rank, op.said),)[:rank]
    dims = tuple(sorted(sh.wrap_dims(dim, rank, op.said)))
    if not dims and not op.bare:
        return tuple(range(rank))
    return dims if rank else ()


def reduced_shape(shape, dims, keepdim: bool) -> tuple[int, ...]:
    return tuple([1 if d in dims else n for d, n in enumerate(shape) if keepdim or d not in dims])


#: from this many float32 on, a `wide` op folds in float64
MANY = 1 << 14
_WIDER = {dt.float32: dt.float64, dt.complex64: dt.complex128}


@lru_cache(maxsize=4096)
def _stages(op: Reduction, source: dt.dtype, compute: dt.dtype, axis: int, narrow: bool,
            widened: bool = False):
    """Stages before the stores, the finished values, and the kernel's parameters by name.

    With `widened` the fold is in a wider dtype than was asked for.
    """
    chain = (op,) if op.after is None else (op.after, op)
    names = ["count"] if any("count" in _finish_wants(o) for o in chain) else []
    names += op.attributes
    number = compute.to_real() if compute.kind in "fc" else dt.float64
    given = {name: ex.param(k, number) for k, name in enumerate(names)}
    x = ex.cast(ex.input(_result_count(op), source.compute), compute)
    stages, finished, states = [], None, 0
    for step in chain:
        at = ex.cast(ex.index(axis), dt.int32) if narrow else ex.index(axis)
        fold, finished, made = _fold(step, x, at, states, given, finished)
        if widened and compute.kind == "f" and _adds(fold, x):
            fold = Fold(fold.start, fold.step, fold.merge, element=x.args[0])
        stages.append(("fold", fold))
        states += made
        if op.after is step:
            given[step.name] = finished
    return tuple(stages), _tuple(finished), (number,) * len(names), "count" in names


def _fold(op: Reduction, x: ex.Expr, at: ex.Expr, done: int, given: dict, before):
    """One op's fold, its finished value or values, and how many states it has."""
    start = op.start(x.dtype) if callable(op.start) else op.start
    several = isinstance(start, tuple)
    starts = tuple(s if isinstance(s, ex.Expr) else ex.const(s, x.dtype) for s in _tuple(start))
    if op.indexed and at.dtype is dt.int32:
        starts = (*starts[:-1], ex.const(min(starts[-1].attr, 2**31 - 1), at.dtype))
    n = len(starts)
    states = tuple(ex.make("state", (), k, s.dtype) for k, s in enumerate(starts))
    others = tuple(ex.make("state", (), n + k, s.dtype) for k, s in enumerate(starts))
    values = tuple(ex.make("fold", (), done + k, s.dtype) for k, s in enumerate(starts))

    def shaped(group):
        return group if several else group[0]

    extra = [at] if op.indexed else [] if before is None else [before]
    stepped = op.body(shaped(states), x, *extra, **{k: given[k] for k in op.attributes})
    merged = (op.merge or op.body)(shaped(states), shaped(others))
    step, merge = (tuple(ex.cast(e, s.dtype) for e, s in zip(_tuple(part), starts, strict=True))
                   for part in (stepped, merged))
    finished = shaped(values)
    if op.finish is not None:
        finished = op.finish(finished, *(given[name] for name in _finish_wants(op)))
    return Fold(starts, step, merge), finished, n


def _adds(fold: Fold, x: ex.Expr) -> bool:
    """Whether a fold is nothing but the sum of x."""
    one, other = (ex.make("state", (), k, x.dtype) for k in (0, 1))
    return fold.step[0] is one + x and fold.merge[0] is one + other


def _finish_wants(op: Reduction) -> list[str]:
    return [] if op.finish is None else parameters_of(op.finish)[0][1:]


def _tuple(value) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _result_count(op: Reduction) -> int:
    return len(op.results) if op.results else 1


def result_dtypes(op: Reduction, operating: dt.dtype, wanted: dt.dtype | None) -> list[dt.dtype]:
    if op.results:
        return [dt.RULES[rule](operating) for rule in op.results.values()]
    if op.result is not None:
        return [op.result(operating)]
    return [wanted if wanted is not None else dt.RULES[op.rule](operating)]


def plan(op: Reduction, x: Signature, dim, keepdim: bool, wanted: dt.dtype | None):
    """(signatures of results, machine code, last argument, (count,) or (), walk)."""
    if wanted is not None and not op.typed:
        raise TypeError(f"{op.said}() got an unexpected keyword argument 'dtype'")
    if op.accepts is not None:
        op.accepts(wanted or x.dtype, wanted is not None)
    dims = dims_of(op, dim, x.rank)
    if not op.empty and not x.numel and any(x.shape[d] == 0 for d in dims):
        _refuse_empty(op, x, dim)
    operating = dt.operating(op.rule, wanted or x.dtype)
    if op.running:
        return _running_plan(op, x, dim, dims, operating, wanted)
    sizes = tuple(x.shape)
    shape = reduced_shape(sizes, dims, keepdim)
    sigs = [signature(d, shape, None, x.device) for d in result_dtypes(op, operating, wanted)]
    if x.device is META or sigs[0].numel == 0:
        return sigs, None, 0, (), None
    spread = _kept_strides(sizes, dims)
    walk = reduction_walk(sizes, dims, [*[spread] * len(sigs), x.strides],
                          [*[s.dtype.itemsize for s in sigs], x.dtype.itemsize], op.indexed, SHORT)
    if op.indexed and walk.reduced != 1:
        return None
    count = x.numel // sigs[0].numel
    compute = operating.compute
    if op.wide and count >= MANY:
        compute = _WIDER.get(compute, compute)
    whole = walk.whole
    run, counts = _code(op, x.dtype, compute, tuple([s.dtype for s in sigs]), walk.steps, walk.kept,
                        walk.reduced, walk.lanes, op.indexed and count < 2**31, whole,
                        compute is not operating.compute,
                        whole or in_blocks(sigs[0].numel, x.numel))
    last = count if whole else walk.last
    return sigs, run, last, (float(count),) if counts else (), walk


def _kept_strides(shape, dims) -> sh.Ints:
    """How a contiguous result steps through the dimensions it keeps; 0 along the others."""
    strides, step = [0] * len(shape), 1
    for d in range(len(shape) - 1, -1, -1):
        if d not in dims:
            strides[d] = step
            step *= shape[d]
    return tuple(strides)


@lru_cache(maxsize=4096)
def _code(op: Reduction, source: dt.dtype, compute: dt.dtype, results: tuple, steps: tuple,
          kept: int, reduced: int, lanes: str, narrow: bool, whole: bool, widened: bool,
          blocks: bool):
    """Machine code of a reduction for every shape of a layout, and whether it takes the count."""
    stages, finished, params, counts = _stages(op, source, compute, kept, narrow, widened)
    stores = tuple(Store(k, ex.cast(value, d.compute)) for k, (value, d) in enumerate(
        zip(finished, results, strict=True)))
    operands = tuple(Operand(d, step, k < len(results))
                     for k, (d, step) in enumerate(zip((*results, source), steps, strict=True)))
    kernel = Kernel(operands, params, kept, reduced, lanes, (*stages, ("row", stores)), whole,
                    blocks=blocks)
    return compile_kernel(kernel), counts


def _running_plan(op: Reduction, x: Signature, dim, dims, operating: dt.dtype, wanted):
    """The plan of a scan: what `plan` returns, for results of the input's own shape."""
    if not isinstance(dim, int):
        raise TypeError(f"{op.said}(): argument 'dim' must be int, not {type(dim).__name__}")
    sigs = [signature(d, x.shape, None, x.device) for d in result_dtypes(op, operating, wanted)]
    if x.device is META or x.numel == 0:
        return sigs, None, 0, (), None
    walk = reduction_walk(x.shape, dims, [*(s.strides for s in sigs), x.strides],
                          [*(s.dtype.itemsize for s in sigs), x.dtype.itemsize], True)
    found = _rows_of_scan(op, x, dims, sigs)
    if found is not None:
        return sigs, *found, (), walk
    compute = _WIDER.get(operating.compute, operating.compute) if op.wide else operating.compute
    ((_, fold),), _, params, _ = _stages(op, x.dtype, compute, walk.kept, False)
    states = [ex.make("state", (), k, s.dtype) for k, s in enumerate(fold.start)]
    stores = tuple(Store(k, ex.cast(state, s.dtype.compute))
                   for k, (state, s) in enumerate(zip(states, sigs, strict=True)))
    kernel = Kernel(operands_of(walk, [*(s.dtype for s in sigs), x.dtype], len(sigs)), params,
                    walk.kept, walk.reduced, "kept" if walk.lanes == "kept" else "none",
                    (("fold", Fold(fold.start, fold.step, fold.merge, stores)),))
    return sigs, compile_kernel(kernel), walk.last, (), walk


def _rows_of_scan(op: Reduction, x: Signature, dims, sigs):
    """(machine code, last argument) of what has a routine for contiguous rows, or None."""
    sums, extremes = op.name in ("cumsum", "cumprod"), op.name in ("cummax", "cummin")
    if not (sums or extremes) or not x.contiguous or dims != (x.rank - 1,) or (
            x.tag is not None):
        return None
    n = x.shape[-1]
    if n >= 2**31 or x.numel // n >= 2**31:
        return None
    run = (scans.running(op.name, x.dtype.name, sigs[0].dtype.name) if sums else
           scans.running_extremes(op.name, x.dtype.name))
    return None if run is None else (run, (x.numel // n << 32) + n)


def _refuse_empty(op: Reduction, x: Signature, dim):
    name = op.results_name or op.said
    if dim is None:
        kind = IndexError if op.indexed and not op.results else RuntimeError
        raise kind(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                   f"Specify the reduction dim with the 'dim' argument; the input has shape "
                   f"{tuple(x.shape)}.")
    raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size, but the input "
                     f"has shape {tuple(x.shape)}.")
