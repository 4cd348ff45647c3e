"""The fronts of reductions, views, library ops and composites.

Each is one frame with one lookup where the arguments can be a key, and otherwise the slow path.
"""

from __future__ import annotations

import contextlib

from ..core import dtype as dt
from ..core.device import CPU, META
from ..core.lazily import np
from ..devices.cpu import routines
from ..ops.declare import Composite, Indexed, Library, Op, Pointwise, Reduction, View
from . import (
    added,
    convolve,
    cuts,
    deposit,
    entropy,
    fetch,
    fourier,
    inplace,
    layer,
    likeness,
    number_first,
    ordered,
    patches,
    pooling,
    resampling,
    rows,
)
from .called import called_front
from .eager import engine, intercepted, new_table, plug_pointwise, same_place, tracers
from .formula import (
    NUMPY_NAMES,
    SYNONYMS,
    bind,
    flat,
    record,
    tensors_of,
    wants_gradient,
)
from .indexed import indexed_front
from .keeping import keeping_front
from .modes import modes
from .product import FRONTS
from .reduce import reduction_front
from .rows import row_front
from .storage import adopt, grow
from .tensor import Signature, Tensor, empty, make, signature
from .views import view_front


def plug(op: Op) -> None:
    """Give an op of any kind its front."""
    op.engine = engine
    if isinstance(op, Pointwise):
        plug_pointwise(op)
    elif isinstance(op, Reduction):
        op.run = reduction_front(op)
    elif isinstance(op, View):
        op.run = view_front(op)
    elif isinstance(op, Indexed):
        op.run = indexed_front(op)
    elif isinstance(op, Library):
        op.run = FRONTS.get(op.name, library_front)(op)
    elif isinstance(op, Composite):
        op.run = (keeping_front if op.keeps else composite_front)(op)
    for family in (number_first, convolve, pooling, ordered, added, fetch, deposit, entropy, layer,
                   cuts, likeness, inplace, fourier):
        if op.name in family.FRONTS:
            op.run = family.FRONTS[op.name](op, op.run)


# -- library -------------------------------------------------------------------------------------


def library_front(op: Op):
    known = new_table()  # of arguments that native code was asked for: signature of the result

    def front(*args, **kwargs):
        if op.name in routines.NATIVE and not kwargs and not tracers:
            done = _asked_again(op, known, args)
            if done is not None:
                return done
        found = intercepted(op, args, kwargs)
        if found is not None:
            return found[0]
        bound = bind(op, args, kwargs)
        tensors = tensors_of(op, bound)
        for name, t in zip(op.tensor_names, tensors, strict=True):
            check_tensor(op, name, t)
        same_place(op, flat(tensors))
        outs = library_call(op, bound)
        if op.formula is not None and wants_gradient(tensors):
            record(op, bound, outs)
        if op.name in routines.NATIVE and not kwargs and isinstance(outs, Tensor):
            _remember(known, args, outs.sig)
        return engine.named(op, outs) if isinstance(outs, (tuple, list)) else outs

    return front


def _remember(known: dict, args: tuple, result: Signature) -> None:
    """Arguments of a call that has gone well are not looked at as closely when they come again."""
    sigs = [a.sig for a in args if isinstance(a, Tensor)]
    if all([s.tag is None and s.device is CPU for s in sigs]):
        with contextlib.suppress(TypeError):  # of what cannot be a key
            known[tuple(map(signature_of, args))] = result


def _asked_again(op: Op, known: dict, args: tuple):
    """What native code makes of arguments that were met before; None of others."""
    try:
        sig = known.get(tuple([a.sig if isinstance(a, Tensor) else a for a in args]))
    except TypeError:
        return None
    if sig is None or len(args) != len(op.names):
        return None
    bound = dict(zip(op.names, args, strict=True))
    out = routines.NATIVE[op.name](sig, bound)
    if out is not None and op.formula is not None and wants_gradient(args):
        record(op, bound, out)
    return out


def check_tensor(op: Op, name: str, value) -> None:
    optional = op.body.__annotations__.get(name) == "T | None" or (
        name in op.defaults and op.defaults[name] is None)
    ok = isinstance(value, (Tensor, list, tuple)) or (value is None and optional)
    if not ok:
        position = op.names.index(name) + 1
        raise TypeError(f"{op.said}(): argument '{name}' (position {position}) must be Tensor, not "
                        f"{type(value).__name__}")


def library_call(op: Op, bound: dict):
    """Check shapes by the op's rule, then let the device compute."""
    ruled = op.body(**{k: signature_of(v) for k, v in bound.items()})
    first = next((t for t in flat(tensors_of(op, bound)) if isinstance(t, Tensor)), None)
    several = isinstance(ruled, list)
    dtype = dt.RULES[op.rule](first.sig.dtype) if first is not None else dt.default_float()
    on_meta = first is not None and first.sig.device is META
    if on_meta:
        if ruled is None:
            raise RuntimeError(f"{op.said}: the shape of the result depends on values that a meta "
                               "tensor does not have")
        sigs = [_ruled_signature(r, dtype, META) for r in (ruled if several else [ruled])]
        outs = [empty(s) for s in sigs]
        return outs if several else outs[0]
    native = routines.NATIVE.get(op.name)
    if native is not None and not several and ruled is not None:
        sig = _ruled_signature(ruled, dtype, None if first is None else first.sig.device)
        done = native(sig, bound)
        if done is not None:
            return done
    routine = routines.ROUTINES[op.name]
    arrays = {k: array_of(v) for k, v in bound.items()}
    result = routine(**arrays)
    if isinstance(result, (tuple, list)):
        each: list = [_ruled_signature(r, dtype, None).dtype for r in ruled] if several else (
            [None] * len(result))
        return [from_array(r, w) for r, w in zip(result, each, strict=True)]
    wanted = None if ruled is None else _ruled_signature(ruled, dtype, None).dtype
    return from_array(result, wanted)


def _ruled_signature(ruled, dtype, device) -> Signature:
    if isinstance(ruled, tuple) and len(ruled) == 2 and isinstance(ruled[1], dt.dtype):
        ruled, dtype = ruled
    return signature(dtype, tuple(ruled), None, device or signature(dtype, ()).device)


def signature_of(value):
    if isinstance(value, Tensor):
        return value.sig
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
        return [v.sig for v in value]
    return value


def array_of(value):
    """A tensor's elements as numpy sees them; half types widened where numpy lacks them."""
    if isinstance(value, Tensor):
        return engine.to_array(value)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
        return [engine.to_array(v) for v in value]
    return value


def from_array(array, wanted: dt.dtype | None) -> Tensor:
    """A tensor over an array's own memory."""
    array = np.asarray(array)
    if wanted is dt.bfloat16:
        return engine.cast(from_array(array.astype(np.float32, copy=False), dt.float32), wanted)
    if wanted is not None and array.dtype != wanted.numpy:
        array = array.astype(wanted.numpy)
    array = np.require(array, requirements=["C", "W", "A"]) if array.ndim else array.copy()
    sig = signature(dt.from_numpy(array.dtype), array.shape)
    if sig.nbytes < 1 << 16:  # small results go to pooled memory, so that their array may go
        out = empty(sig)
        routines.copy_bytes(out.ptr, array)
        return out
    return make(sig, adopt(array.ctypes.data, array.nbytes, array))


# -- composites ----------------------------------------------------------------------------------


def composite_front(op: Composite):
    if op.formula is None:
        body = op.body

        def front(*args, **kwargs):
            if tracers:  # most likely the next call on a known path
                followed = tracers[-1].follow(op, args, kwargs, modes.grad)
                if followed is not None:
                    return followed
            for a in args:
                kind = type(a)
                if (a.sig.tag is not None if kind is Tensor or isinstance(a, Tensor) else
                        (kind is tuple or kind is list) and _has_tagged(a)):
                    found = intercepted(op, args, kwargs)
                    if found is not None:
                        return found[0]
                    break
            return body(*args, **_renamed(op, kwargs)) if kwargs else body(*args)

        front.__name__ = op.name
        return called_front(op, front) if op.backward_name else front

    body, most = op.body, op.body.__code__.co_argcount
    least = 1 + max(k for k, name in enumerate(op.names) if name not in op.defaults)

    def front_with_formula(*args, **kwargs):
        found = intercepted(op, args, kwargs)
        if found is not None:
            return found[0]
        if not kwargs and least <= len(args) <= most and not any(map(_may_want, args)):
            return body(*args)
        bound = bind(op, args, kwargs)
        outside = dict(bound)
        wanted = False
        for name in op.tensor_names:  # what is done inside is not recorded
            value = bound[name]
            if type(value) is list or type(value) is tuple:
                outside[name] = [_outside(v) for v in value]
                wanted = wanted or any([isinstance(v, Tensor) and v.node is not None
                                        for v in value])
            elif isinstance(value, Tensor) and value.node is not None:
                outside[name] = make(value.sig, value.mem, value.ptr)
                wanted = True
        if not wanted or not modes.grad:
            return op.body(**bound)
        outs = op.body(**outside)
        if isinstance(outs, Tensor) and any([outs is outside[n] for n in op.tensor_names]):
            outs = engine.clone(outs)
        record(op, bound, outs)
        return outs

    if op.rows is None:
        return front_with_formula
    program, slopes = op.rows
    return row_front(op, program, slopes, front_with_formula)


def _has_tagged(value) -> bool:
    """Whether a sequence has a traced tensor in it."""
    return any([isinstance(v, Tensor) and v.sig.tag is not None for v in value])


def _may_want(value) -> bool:
    """Whether an argument may be something that wants a gradient."""
    if isinstance(value, Tensor):
        return value.node is not None
    return type(value) is list or type(value) is tuple


def _outside(value):
    """A tensor as its bytes alone: what is done with it is not recorded."""
    if isinstance(value, Tensor) and value.node is not None:
        return make(value.sig, value.mem, value.ptr)
    return value


def _renamed(op: Op, kwargs: dict) -> dict:
    """torch's and numpy's names of parameters, where a declaration chose others."""
    if not kwargs or all(k in op.names for k in kwargs):
        return kwargs
    return {_own_name(op, k): v for k, v in kwargs.items()}


def _own_name(op: Op, given: str) -> str:
    if given in op.names:
        return given
    if NUMPY_NAMES.get(given) in op.names:
        return NUMPY_NAMES[given]
    return op.names[SYNONYMS[given]] if SYNONYMS.get(given, 99) < len(op.names) else given


__all__ = ["grow", "patches", "plug", "resampling", "rows"]
