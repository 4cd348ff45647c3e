"""New tensors of one value, or of none that is known: zeros, ones, empty, full, eye."""

from __future__ import annotations

import contextlib
from operator import index

from ..core import device as places
from ..core import dtype as dt
from ..core import formats as fm
from ..core.device import CPU, META, resolve
from ..ops.refusal import check_fits
from . import pointwise as pw
from .eager import engine
from .fresh import empty as raw_empty
from .interception import Named, same_every_time, tracers
from .modes import modes
from .options import finish, given_size, number, one_size, out_dtype, place_in, sizes
from .storage import allocate, grow, takers
from .tensor import Size, Tensor, forget_plans, make, signature
from .tensor import new as fresh

#: (sizes as given, dtype, device) -> signature, for calls without other options
_known: dict = {}
forget_plans.append(_known.clear)


def _plain(name: str, value):
    """zeros, ones and empty: calls met before take one lookup, one block and one kernel."""

    def create(*size, out=None, dtype=None, layout=None, device=None, pin_memory=False,
               requires_grad=False, memory_format=None, **named):
        try:
            sig = _known[size, dtype or dt._Default.value, device]
        except (KeyError, TypeError):
            sig = None
        if (sig is None or not _all_ints(size) or requires_grad or out is not None or named
                or layout is not None or pin_memory or memory_format is not None or modes.inference
                or places._Default.value is not CPU):
            return general(size, out, dtype, layout, device, pin_memory, requires_grad,
                           memory_format, named)
        if tracers:
            x = in_call(sig, value)
            if x is not None:
                return x
        try:
            mem = sig.pop()
        except IndexError:
            mem = grow(sig.nbytes)
        if takers:
            takers[-1](mem, sig.nbytes)
        x = fresh(Tensor)
        x.sig, x.mem, x.ptr, x.node = sig, mem, mem.address, None
        if value is None:
            return x if not tracers else same_every_time(x)
        return same_every_time(filled(x, value))

    def general(size, out, dtype, layout, device, pin_memory, requires_grad, memory_format, named):
        if memory_format is not None and value is not None:
            raise TypeError(f"{name}() got an unexpected keyword argument 'memory_format'")
        shape = sizes(name, given_size(name, size, named))
        strides = None if memory_format is None else fm.strides_of(shape, memory_format)
        sig = signature(out_dtype(name, dtype, out), shape, strides, resolve(device))
        if out is not None:
            return _into(name, out, sig, value, dtype)
        if strides is None and sig.device is CPU:
            remember(size, sig, device)
        x = new_of(sig, value, layout, pin_memory, requires_grad)
        return same_every_time(finish(name, x, layout, pin_memory, requires_grad))

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"A tensor of {name}, of the given size." if value is not None else (
        "A tensor whose elements are not set.")
    return create


def met_before(size: tuple, dtype, device):
    """The signature of sizes met before, if the call has no other options; else None."""
    try:
        sig = _known[size, dtype or dt._Default.value, device]
    except (KeyError, TypeError):
        return None
    plain = _all_ints(size) and not modes.inference and places._Default.value is CPU
    return sig if plain else None


def _all_ints(size: tuple) -> bool:
    """Whether sizes that were looked up are what was remembered: 2.0 is found where 2 is."""
    if type(size[0]) is not int and len(size) == 1:
        size = size[0]
        if not isinstance(size, (tuple, list)):  # numpy's integer
            return False
    for n in size:  # noqa: SIM110  (a generator costs as much as the rest of the call)
        if type(n) is not int:
            return False
    return True


def _into(name: str, out: Tensor, sig, value, dtype) -> Tensor:
    """`out=` of zeros, ones and empty."""
    if value is not None:
        return place_in(name, out, filled(raw_empty(sig), value), dtype)
    if out.sig.shape != sig.shape:
        engine.resize(out, sig.shape)
    return out


def remember(size: tuple, sig, device) -> None:
    """Note the signature that sizes without other options mean; none at all may mean a keyword."""
    if not size:
        return
    if len(_known) > 10_000:
        _known.clear()
    with contextlib.suppress(TypeError):  # a list of sizes cannot be looked up
        _known[size, sig.dtype, device] = sig


def _of_one_value(shape, dtype, value) -> Tensor:
    x = raw_empty(signature(dtype, shape))
    return x if value is None else filled(x, value)


_ONE_VALUE = Named("of_one_value", _of_one_value)


def in_call(sig, value):
    """The tensor as a value of a compiled call, if it is in one; else None.

    What is added to it there may have gradients: so it has to be in the graph that is compiled.
    """
    if sig.dtype.kind not in "fc" or not (modes.grad and sig.contiguous and sig.device is CPU) or (
            modes.inference or not sig.numel):
        return None
    found = tracers[-1].factory(_ONE_VALUE, (sig.shape, sig.dtype, value), {})
    return None if found is None else found[0]


def new_of(sig, value, layout=None, pin_memory=False, requires_grad=False):
    """A new tensor of one value, or of none that is known."""
    if tracers and not (requires_grad or pin_memory) and layout in (None, fm.strided):
        x = in_call(sig, value)
        if x is not None:
            return x
    return raw_empty(sig) if value is None else filled(raw_empty(sig), value)


_fillers: dict = {}  # (kin, type of number) -> machine code that fills contiguous memory
forget_plans.append(_fillers.clear)


def filled(x: Tensor, value) -> Tensor:
    """Every element of a dense new tensor set to a number."""
    sig = x.sig
    try:
        run = _fillers[sig.kin, type(value)]
    except KeyError:
        run = None
    if run is None:
        return _first_fill(x, value)
    if sig.numel:
        run(x.ptr, value, sig.numel)
    return x


def _first_fill(x: Tensor, value) -> Tensor:
    sig, kind = x.sig, type(value)
    if sig.device is META or not sig.numel:
        return x
    engine.fill(x, value)
    if sig.kin is not None and kind in (int, float, bool):
        plan = engine.constant.kin_plans.get(("into", sig.kin, kind, ()))
        if plan is not None:
            _fillers[sig.kin, kind] = plan[2]
    return x


zeros = _plain("zeros", 0)
ones = _plain("ones", 1)
empty = _plain("empty", None)


def full(size, fill_value, *, out=None, dtype=None, layout=None, device=None, pin_memory=False,
         requires_grad=False):
    """A tensor of one value; without a dtype it has the value's own."""
    if out is None and layout is None and not pin_memory and not modes.inference:
        x = _full_again(size, fill_value, dtype, device, requires_grad)
        if x is not None:
            if requires_grad:
                x = finish("full", x, None, False, True)
            return x if not tracers else same_every_time(x)
    if not isinstance(size, (tuple, list)):
        raise TypeError("full(): argument 'size' (position 1) must be tuple of ints, not "
                        f"{type(size).__name__}")
    own = fill_value.sig.dtype if isinstance(fill_value, Tensor) else None
    value = number(fill_value)
    kind = out_dtype("full", dtype, out, own or dt.of_scalar(value))
    where = resolve(device)
    check_fits(value, kind)
    sig = signature(kind, sizes("full", (size,)), None, where)
    if out is None and where is CPU and type(size) in (tuple, Size):
        remember((size,), sig, device)
    if out is not None:
        return place_in("full", out, filled(raw_empty(sig), value), dtype)
    x = new_of(sig, value, layout, pin_memory, requires_grad)
    return same_every_time(finish("full", x, layout, pin_memory, requires_grad))


FLOATING = frozenset((dt.float32, dt.float64))


def _full_again(size, value, dtype, device, requires_grad):
    """A shape met before, filled with a float: nothing can be wrong with that; else None."""
    if type(value) is not float or type(size) not in (tuple, Size) or abs(value) > 3e38 or (
            places._Default.value is not CPU):
        return None
    try:
        sig = _known[(size,), dtype or dt._Default.value, device]
    except (KeyError, TypeError):
        return None
    if sig.dtype not in FLOATING or not _all_ints((size,)):
        return None
    return new_of(sig, value, requires_grad=requires_grad)


def eye(n, m=None, *, out=None, dtype=None, layout=None, device=None, pin_memory=False,
        requires_grad=False):
    """Ones on the diagonal, zeros elsewhere."""
    try:
        plan = _eyes.get((n, m, dtype or dt._Default.value, device))
    except TypeError:
        plan = None
    if plan is not None and type(n) is int and (m is None or type(m) is int) and not (
            layout or pin_memory or requires_grad or modes.inference or out is not None
            or places._Default.value is not CPU):
        sig, run, last, _ = plan
        x = filled(raw_empty(sig), 0)
        run(x.ptr, 1, last)
        return x if not tracers else same_every_time(x)
    return _first_eye(n, m, out, dtype, layout, device, pin_memory, requires_grad)


_eyes: dict = {}  # (rows, columns, dtype, device) -> (signature, code, last argument, its plan)
forget_plans.append(_eyes.clear)


def _first_eye(rows, columns, out, dtype, layout, device, pin_memory, requires_grad) -> Tensor:
    n, m = rows, rows if columns is None else columns
    n, m = one_size("eye", 0, n), one_size("eye", 1, m)
    for name, size in (("n", n), ("m", m)):
        if size < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {size}")
    sig = signature(out_dtype("eye", dtype, out), (n, m), None, resolve(device))
    x = filled(raw_empty(sig), 0)
    if sig.device is not META and sig.numel:
        diagonal = make(signature(sig.dtype, (min(n, m),), (m + 1,)), x.mem, x.ptr)
        plan = pw.plan(engine.constant, (1,), (), diagonal.sig)
        plan[2](diagonal.ptr, 1, plan[3])
        if len(_eyes) < 1000 and type(rows) is int and (
                columns is None or type(columns) is int):
            _eyes[rows, columns, sig.dtype, device] = sig, plan[2], plan[3], plan
    if out is not None:
        return place_in("eye", out, x, dtype)
    return same_every_time(finish("eye", x, layout, pin_memory, requires_grad))


def empty_strided(size, stride, *, dtype=None, layout=None, device=None, requires_grad=False,
                  pin_memory=False):
    """A tensor of these strides whose elements are not set."""
    shape, strides = sizes("empty_strided", (size,)), tuple(index(s) for s in stride)
    if len(shape) != len(strides):
        raise RuntimeError(f"dimensionality of sizes ({len(shape)}) must match dimensionality of "
                           f"strides ({len(strides)})")
    if any(s < 0 for s in strides):
        raise RuntimeError(f"empty_strided: strides must not be negative, got {list(strides)} for "
                           f"sizes {list(shape)}")
    kind = out_dtype("empty_strided", dtype, None)
    x = strided(signature(kind, shape, strides, resolve(device)))
    return same_every_time(finish("empty_strided", x, layout, pin_memory, requires_grad))


def strided(sig) -> Tensor:
    """A tensor over fresh memory as large as its strides reach."""
    if sig.device is META:
        return raw_empty(sig)
    reach = sum((n - 1) * s for n, s in zip(sig.shape, sig.strides, strict=True)) + 1
    return make(sig, allocate((reach if sig.numel else 0) * sig.dtype.itemsize))


def empty_permuted(size, physical_layout, *, dtype=None, layout=None, device=None,
                   requires_grad=False, pin_memory=False):
    """A dense tensor whose dimensions lie in memory in this order."""
    shape, order = sizes("empty_permuted", (size,)), tuple(index(d) for d in physical_layout)
    if len(order) != len(shape):
        raise RuntimeError("Number of dimensions in size does not match the length of the "
                           f"physical_layout; i.e. len(size) = {len(shape)} is not equal to "
                           f"len(physical_layout) = {len(order)}")
    for d in order:
        if not 0 <= d < len(shape):
            raise RuntimeError(f"Dimension out of range (expected to be between 0 and "
                               f"{len(shape) - 1}, but got {d}). NB: negative dims not currently "
                               "supported")
    if len(set(order)) != len(order):
        raise RuntimeError("Duplicate dim not allowed")
    sig = signature(out_dtype("empty_permuted", dtype, None), shape,
                    fm.strides_in_order(shape, order), resolve(device))
    x = finish("empty_permuted", raw_empty(sig), layout, pin_memory, requires_grad)
    return same_every_time(x)


def scalar_tensor(s, *, dtype=None, layout=None, device=None, pin_memory=False,
                  requires_grad=False):
    """A 0-d tensor of one number, floating point unless told."""
    value = number(s)
    own = dt.of_scalar(value) if isinstance(value, complex) else dt.default_float()
    kind = out_dtype("scalar_tensor", dtype, None, own)
    x = filled(raw_empty(signature(kind, (), None, resolve(device))), value)
    return same_every_time(finish("scalar_tensor", x, layout, pin_memory, requires_grad))


def moved(x: Tensor, where) -> Tensor:
    """A tensor on another device: nothing can come back from meta."""
    if x.sig.device is where:
        return x
    if where is META:
        return raw_empty(signature(x.sig.dtype, x.sig.shape, x.sig.strides, META))
    raise NotImplementedError("Cannot copy out of meta tensor; no data!")


engine.moved = moved
engine.eye = eye
