"""Which front an op of each kind gets, and the fronts of composites."""

from __future__ import annotations

from ..core.device import device
from ..core.dtype import dtype
from ..core.formats import layout, memory_format
from ..core.numbers import plain_call
from ..ops.declare import Composite, Indexed, Library, Op, Pointwise, Reduction, View
from . import (
    added,
    aligned,  # noqa: F401  native routines
    converging,
    convolve,
    cuts,
    deposit,
    distances,
    entropy,
    fetch,
    fourier,
    gridded,
    inplace,
    inverse,
    layer,
    likeness,
    number_first,
    ordered,
    patches,
    placing,
    pooling,
    replays,
    resampling,
    rows,
    systems,
)
from .called import called_front
from .eager import engine, plug_pointwise
from .formula import NUMPY_NAMES, SYNONYMS, back_of, bind, record
from .indexed import indexed_front
from .interception import PLAIN, intercepted, tracers
from .keeping import keeping_front
from .library import library_front
from .modes import modes
from .product import FRONTS
from .reduce import reduction_front
from .rows import row_front
from .tensor import Size, Tensor, make
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
    if op.name in replays.NAMES and isinstance(op, (Composite, Library)):
        op.run = replays.playing(op, op.run)
    if op.name in replays.BACKS and op.formula is not None:
        back = back_of(op)
        back.play = replays.playing_back(op.name, back.gradients)
    for family in (number_first, convolve, pooling, ordered, added, fetch, deposit, entropy, layer,
                   cuts, likeness, inplace, fourier, gridded, inverse, placing, converging,
                   systems, distances):
        if op.name in family.FRONTS:
            op.takes_out = False  # unless the new front says so
            op.run = family.FRONTS[op.name](op, op.run)


# -- composites ----------------------------------------------------------------------------------


#: of torch's functions for networks, those that take `out=`
TAKES_OUT = ("normalize",)
#: functions of a text and tensors: others are told of these one by one, also where a list is given
TAKES_APART = ("einsum",)


def composite_front(op: Composite):
    if op.formula is None:
        body = op.body
        op.takes_out = op.where != "nn.functional" or op.name in TAKES_OUT
        apart = op.name in TAKES_APART

        def front(*args, **kwargs):
            if kwargs and "out" in kwargs and op.takes_out:
                return _into_out(op, args, kwargs)
            if tracers:  # most likely the next call on a known path
                followed = tracers[-1].follow(op, args, kwargs, modes.grad)
                if followed is not None:
                    return followed
            for a in (*args, *kwargs.values()) if kwargs else args:
                kind = type(a)
                if kind is Tensor:
                    if a.sig.tag is None:
                        continue
                elif kind in INERT:
                    continue
                elif isinstance(a, Tensor):
                    if a.sig.tag is None:
                        continue
                elif not _may_answer(a):
                    continue
                elif apart and len(args) == 2 and kind in (list, tuple) and type(args[0]) is str:
                    return front(args[0], *a)
                found = intercepted(op, args, kwargs)
                if found is not None:
                    return found[0]
                break
            try:
                return body(*args, **_renamed(op, kwargs)) if kwargs else body(*args)
            except TypeError:
                found = plain_call(args, kwargs)
                if found is None:
                    raise
                return front(*found[0], **found[1])
            except AttributeError as failure:
                raise _no_tensor(op, args, kwargs, failure) from None

        front.__name__ = front.__qualname__ = op.name
        front.__doc__ = op.doc
        return called_front(op, front) if op.backward_name else front

    body, most = op.body, op.body.__code__.co_argcount
    least = 1 + max(k for k, name in enumerate(op.names) if name not in op.defaults)

    def front_with_formula(*args, **kwargs):
        if tracers or Tensor not in PLAIN or _some_may_answer(args) or (
                kwargs and _some_may_answer(kwargs.values())):
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


def _no_tensor(op: Composite, args: tuple, kwargs: dict, failure: AttributeError) -> Exception:
    """What to say where a body asked an argument for what only tensors have."""
    if isinstance(failure.obj, Tensor):
        return failure
    named = {**dict(zip(op.names, args, strict=False)), **kwargs}
    for position, (name, value) in enumerate(named.items(), 1):
        if value is failure.obj:
            return TypeError(f"{op.said}(): argument '{name}' (position {position}) must be "
                             f"Tensor, not {type(value).__name__}")
        if isinstance(value, (list, tuple)) and any(v is failure.obj for v in value):
            place = next(k for k, v in enumerate(value) if v is failure.obj)
            return TypeError(f"expected Tensor as element {place} in argument {position - 1}, but "
                             f"got {type(failure.obj).__name__}")
    return failure


def _into_out(op: Composite, args: tuple, kwargs: dict):
    """A call with `out=`, which is None where nothing is to be written to."""
    out = kwargs.pop("out")
    run = op.run
    return run(*args, **kwargs) if out is None else engine.written(op, args, kwargs, out)


#: types of arguments that let every call be
INERT = frozenset((int, float, bool, complex, str, bytes, type(None), type(...), slice, range, Size,
                   dtype, device, layout, memory_format))


def _may_answer(value) -> bool:
    """Whether a call may be a trace's, a subclass's or a stand-in's because of an argument."""
    kind = type(value)
    if kind in INERT:
        return False
    if isinstance(value, Tensor):
        return value.sig.tag is not None
    return any(map(_may_answer, value)) if kind is list or kind is tuple else True


def _some_may_answer(values) -> bool:
    """The same of several; sizes and dimensions come as tuples, which are looked into."""
    return not PLAIN.issuperset(map(type, values)) and any(map(_may_answer, values))


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


__all__ = ["patches", "plug", "resampling", "rows"]
