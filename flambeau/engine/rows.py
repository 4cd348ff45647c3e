"""Runs row programs: plans by signature, one kernel each; nothing is recorded for gradients."""

from __future__ import annotations

from functools import lru_cache

from ..core import dtype as dt
from ..core import expr as ex
from ..core import shape as sh
from ..core.device import META
from ..core.kernel import Kernel, Operand, Store
from ..core.rows import Program, Result, Rows, each, once
from ..core.rows import kept as kept_once
from ..devices.cpu.compile import compile_kernel
from ..devices.cpu.remember import keep
from ..devices.parallel import in_blocks
from .eager import engine, new_table
from .formula import FormulaBack
from .fresh import empty
from .layout import SHORT, reduction_walk
from .modes import modes
from .node import attach, kept_values
from .reduce import MANY
from .tensor import LEAF, Signature, Tensor, make, signature

plans = new_table()  # by program, dimensions, signatures and numbers


def run(program: Program, *tensors, dims: tuple[int, ...], **numbers):
    """The result of a row program over the dimensions `dims`, or the tuple of its results."""
    key: list = [program, dims]
    pointers, floats = [], []
    for t in tensors:
        if t is None:
            key.append(None)
        else:
            key.append(t.sig)
            pointers.append(t.ptr)
    for v in numbers.values():
        if type(v) is float:
            floats.append(v)
            key.append(float)
        else:
            key.append(v)
    found = tuple(key)
    plan = plans.get(found)
    if plan is None:
        sigs = found[2:2 + len(tensors)]
        plan = keep(plans, found, _plan(program, sigs, dims, numbers))
    results, code, last, count, _ = plan
    if len(results) == 1:
        out = empty(results[0])
        if code is not None:
            code(out.ptr, *pointers[1:], pointers[0], count, *floats, last)
        return out
    outs, places = [], []
    for sig in results:
        out = empty(sig)
        outs.append(out)
        places.append(out.ptr)
    if code is not None:
        code(*places, *pointers[1:], pointers[0], count, *floats, last)
    return tuple(outs)


Program.__call__ = run  # type: ignore[assignment,method-assign]


@lru_cache(maxsize=4096)
def _recorded(program: Program, dtypes, numbers, axis: int, outs: int, wide: bool):
    """Results, stages and parameters; operand numbers count results first, first tensor last."""
    compute = next((d for d in dtypes if d is not None and d.kind == "f"), dt.float32).compute
    present = [i for i, d in enumerate(dtypes) if d is not None]
    numbering = dict(zip([*present[1:], present[0]], range(outs, outs + len(present)), strict=True))
    elements = [None if d is None else _element(numbering[i], d, compute)
                for i, d in enumerate(dtypes)]
    params, values = [compute], {}
    for name, given in numbers:
        if given is float:
            values[name] = ex.param(len(params), compute)
            params.append(compute)
        else:
            values[name] = given[0]
    rows = Rows(axis, ex.param(0, compute), wide, dtypes[0] is compute)
    found = program.body(rows, *elements, **values)
    return (found,) if isinstance(found, Result) else tuple(found), rows.stages, tuple(params)


def _element(operand: int, d: dt.dtype, compute: dt.dtype) -> ex.Expr:
    leaf = ex.input(operand, d.compute)
    return ex.cast(leaf, compute) if d.kind == "f" else leaf


@lru_cache(maxsize=4096)
def _code(program: Program, dtypes, numbers, wide: bool, steps, kept: int, reduced: int,
          lanes: str, blocks: bool):
    """The machine code for all shapes that are walked like this."""
    results = _results(program, dtypes, numbers, wide)
    found, stages, params = _recorded(program, dtypes, numbers, kept, len(results), wide)
    stores = {stage: tuple(Store(k, ex.cast(r.value, results[k][1].compute))
                           for k, r in enumerate(found) if (r.kind == each) == (stage == "map"))
              for stage in ("row", "map")}
    stages = (*stages, *((stage, stored) for stage, stored in stores.items() if stored))
    first, *others = [d for d in dtypes if d is not None]
    operands = tuple(Operand(d, step, k < len(results)) for k, (d, step) in enumerate(
        zip([*(d for _, d in results), *others, first], steps, strict=True)))
    return compile_kernel(Kernel(operands, params, kept, reduced, lanes, stages, blocks=blocks))


@lru_cache(maxsize=4096)
def _results(program: Program, dtypes, numbers, wide: bool) -> tuple:
    """(kind, dtype) of every result."""
    found, *_ = _recorded(program, dtypes, numbers, 0, 0, wide)
    return tuple([(r.kind, r.dtype or dtypes[0]) for r in found])


def _plan(program: Program, sigs, dims, numbers: dict):
    """(signatures of results, machine code, last argument, count, walk)."""
    first: Signature = sigs[0]
    shape, count, places = tuple(first.shape), 1, 1
    for d, n in enumerate(shape):
        if d in dims:
            count *= n
        else:
            places *= n
    keyed = tuple([(k, float if type(v) is float else (v,)) for k, v in numbers.items()])
    dtypes = tuple([None if s is None else s.dtype for s in sigs])
    wide = count >= MANY
    outs, operands = [], []
    for kind, dtype in _results(program, dtypes, keyed, wide):
        size, strides = _lying(first, shape, kind, dims)
        out = signature(dtype, size, strides, first.device)
        outs.append(out)
        operands.append((out, kind))
    if first.device is META or not places or not any([s.numel for s in outs]):
        return outs, None, 0, 0.0, None
    present = [(s, kind) for s, kind in zip(sigs, program.tensors.values()) if s is not None]
    operands += [*present[1:], present[0]]
    walk = reduction_walk(shape, dims, [_spread(program, s, kind, shape, dims)
                                        for s, kind in operands],
                          [s.dtype.itemsize for s, _ in operands], short=SHORT)
    code = _code(program, dtypes, keyed, wide, walk.steps, walk.kept, walk.reduced, walk.lanes,
                 in_blocks(places, first.numel))
    return outs, code, walk.last, float(count), walk


def _lying(first: Signature, shape, kind: str, dims):
    """The shape of a result, and its strides where they are not row-major."""
    if kind == each:
        row_major = first.regular or not sh.is_dense(shape, first.strides)
        return shape, None if row_major else first.strides
    if kind == once:
        return [n for d, n in enumerate(shape) if d not in dims], None
    return [1 if d in dims else n for d, n in enumerate(shape)], None


def _spread(program: Program, sig: Signature, kind: str, shape, dims) -> sh.Ints:
    """A tensor's strides over the whole shape: 0 where it repeats."""
    if kind in (each, kept_once) or not sig.rank:
        found = sh.expand_strides(sig.shape, sig.strides, shape)
        return found if kind != kept_once else tuple([
            0 if d in dims else s for d, s in enumerate(found)])
    places = [d for d in range(len(shape)) if d not in dims] if kind == once else dims
    if sig.shape != tuple([shape[d] for d in places]):
        raise RuntimeError(f"{program.name}: a tensor of shape {tuple(sig.shape)} does not lie "
                           f"over the dimensions {tuple(places)} of {tuple(shape)}")
    strides = [0] * len(shape)
    for d, stride in zip(places, sig.strides, strict=True):
        strides[d] = stride
    return tuple(strides)


engine.recording = lambda: modes.grad


# -- ops that are one row program forward and one back -------------------------------------------


def row_front(op, program: Program, slopes: Program, general):
    """The front of an op of one tensor along one dimension: a lookup, a kernel, a step.

    `general` is the op's usual front; it answers whatever has not been met yet, and all that is
    not plain: other dtypes, keywords, subclasses.
    """
    known = new_table()
    back = RowBack(op, slopes)
    op.takes_out = True

    def front(*args, out=None, **kwargs):
        if out is not None:
            return engine.written(op, args, kwargs, out)
        if len(args) != 2 or kwargs or type(args[1]) is not int:
            return general(*args, **kwargs)
        x, dim = args
        plan = known.get((getattr(x, "sig", None), dim))
        if plan is None:
            result = general(x, dim)
            _remember(known, program, x, dim)
            return result
        sig, code, last, count, kept = plan
        out = empty(sig)
        code(out.ptr, x.ptr, count, last)
        node = x.node
        if node is not None and modes.grad:
            attach(out, back, (x if node is LEAF else node,), (make(sig, out.mem, out.ptr), *kept))
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _remember(known: dict, program: Program, x, dim: int) -> None:
    """Keep the plan of a plain call that has gone well."""
    if not isinstance(x, Tensor) or x.sig.tag is not None or x.sig.device is META or (
            x.sig.dtype not in (dt.float32, dt.float64) or not x.sig.numel):
        return
    dims = (sh.wrap_dim(dim, x.sig.rank),) if x.sig.rank else ()
    results, code, last, count, _ = plans[program, dims, x.sig]
    known[x.sig, dim] = results[0], code, last, count, (x.sig, dim, dims)


class RowBack(FormulaBack):
    """Goes back by a row program over the gradient and the result."""

    def __init__(self, op, slopes: Program):
        super().__init__(op)
        self.slopes = slopes

    def pull(self, node, g):
        kept = kept_values(node)
        if len(kept) != 4 or modes.grad:
            return self._by_formula(node, g, kept)
        return [run(self.slopes, g, kept[0], dims=kept[3])]

    def _by_formula(self, node, g, kept):
        out, meta, dim, _ = kept
        known = {"g": g, "out": self._results(node, out), "input_meta": meta, "dim": dim}
        return [self.op.formula(*[known[name] for name in self.op.wanted])]
