"""Numbers in steps: arange, range, linspace, logspace, bit for bit as torch computes them.

torch walks a floating point sequence in vectors: the first element of a vector is computed from
its index and rounded, the others are counted on from there; what is left over at the end, and
integers, are computed one by one. The second half of linspace is counted from the end.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

from ..core import dtype as dt
from ..core.device import META, is_here, resolve
from ..core.lazily import Lazily, np
from ..devices.cpu import ramps
from . import convert, options
from .fresh import empty
from .interception import same_every_time, tracers
from .modes import modes
from .settings import get_num_threads
from .tensor import Tensor, signature

streams: Any = Lazily("flambeau.devices.cpu.random")

VECTOR_BYTES = 32       # what torch's kernels hold in one register
GRAIN = 32768           # elements each thread takes at least
_REAL = frozenset((int, float))
_FAR = 2**48            # integers whose sums are sure to fit


def vector_bases(n: int, width: int, threads: int) -> np.ndarray:
    """For each index, the index that its value is counted on from."""
    at = np.arange(n)
    for start, stop in _chunks(n, threads):
        whole = (stop - start) // (2 * width) * (2 * width)
        part = at[start:start + whole]
        part -= (part - start) % width
    return at


def _chunks(n: int, threads: int) -> list[tuple[int, int]]:
    """What each of torch's threads computes."""
    if n <= GRAIN or threads == 1:
        return [(0, n)]
    step = -(-n // min(threads, -(-n // GRAIN)))
    return [(start, min(start + step, n)) for start in builtins.range(0, n, step)]


# -- arange --------------------------------------------------------------------------------------


def arange(start, end=None, step=1, *, out=None, dtype=None, layout=None, device=None,
           pin_memory=False, requires_grad=False):
    """Numbers from start up to, not including, end."""
    if not (layout or pin_memory or requires_grad or modes.inference
            or out is not None) and is_here(device):
        if end is None and step == 1 and dtype is None and type(start) is int and (
                0 < start < 2**48):  # by far the commonest call
            x = empty(signature(dt.int64, (start,)))
            ramps.whole()(x.ptr, 0, 1, start)
        elif end is None:
            x = _stepped(0, start, step, dtype)
        else:
            x = _stepped(start, end, step, dtype)
        if x is not None:
            return x if not tracers else same_every_time(x)
    start, end = (0, start) if end is None else (start, end)
    if not type(start) is type(end) is type(step) is int:
        start, end, step = (options.number(v) for v in (start, end, step))
    _check_numbers("arange", start, end, step)
    natural = dt.default_float() if any(isinstance(v, float) for v in (start, end, step)) else (
        dt.int64)
    kind = options.out_dtype("arange", dtype, out, natural)
    if kind.kind in "bc":
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{kind}'")
    n = _count(kind, start, end, step)
    where = resolve(device)
    if where is META:
        x = empty(signature(kind, (n,), None, META))
    else:
        x = convert.owned(arange_values(start, step, n, kind), kind)
    if out is not None:
        return options.place_in("arange", out, x, dtype)
    return same_every_time(options.finish("arange", x, layout, pin_memory, requires_grad))


def _stepped(start, end, step, dtype) -> Tensor | None:
    """Plain numbers of the commonest dtypes, natively; None where there are none, or others."""
    whole = type(start) is type(end) is type(step) is int
    kind = dtype or (dt.int64 if whole else dt._Default.value)
    if not step or not (whole or (
            type(start) in _REAL and type(end) in _REAL and type(step) in _REAL)):
        return None
    if kind is dt.int64:
        n = -((start - end) // step) if whole else 0
        if n <= 0 or not -_FAR < start < _FAR or not -_FAR < end < _FAR:
            return None
        x = empty(signature(kind, (n,)))
        ramps.whole()(x.ptr, start, step, n)
        return x
    if kind is not dt.float32 and kind is not dt.float64:
        return None
    try:
        n = math.ceil((float(end) - float(start)) / float(step))
    except (ValueError, OverflowError):  # not finite
        return None
    if n <= 0:
        return None
    x = empty(signature(kind, (n,)))
    run, width = ramps.counted(kind.name), VECTOR_BYTES // kind.itemsize
    for first, stop in _chunks(n, get_num_threads() if n > GRAIN else 1):
        run(x.ptr, start, step, first, first + (stop - first) // (2 * width) * (2 * width), stop)
    return x


def _check_numbers(name: str, start, end, step) -> None:
    for v in (start, end, step):
        if isinstance(v, complex):
            raise RuntimeError("value cannot be converted to type double without overflow")
        if not isinstance(v, (int, float)):
            raise TypeError(f"{name}(): argument must be Number, not {type(v).__name__}")
    if step == 0:
        raise RuntimeError(f"{name}: step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"{name}: unsupported range: {start} -> {end}")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError(f"{name}: upper bound and lower bound inconsistent with step sign: from "
                           f"{start} to {end} by {step}")


def _count(kind: dt.dtype, start, end, step) -> int:
    if kind is dt.int64:  # other integers are counted before start and step are cut off
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise ValueError("arange: step must be nonzero")
        return max(-((start - end) // step) if step > 0 else -((end - start) // -step), 0)
    return math.ceil((float(end) - float(start)) / float(step))


def arange_values(start, step, n: int, kind: dt.dtype) -> np.ndarray:
    if kind.kind in "iu" or _exact(start, step, n):
        first, by = int(start), int(step)
        values = np.arange(first, first + by * n, by, dtype=np.int64) if by else np.full(n, first)
        return values if kind is dt.int64 else rounded_to(kind, values)
    at = np.arange(n)
    work = np.float32 if kind.itemsize == 2 else np.float64
    start, step = work(start), work(step)
    base = vector_bases(n, VECTOR_BYTES // kind.itemsize, get_num_threads())
    lane_starts = rounded_to(kind, fused(step, base, start)).astype(work)
    return rounded_to(kind, fused(step, at - base, lane_starts))


def _exact(start, step, n: int) -> bool:
    """Whether every number is a whole one that even half types hold, so that nothing is rounded."""
    return start == int(start) and step == int(step) and abs(start) + abs(step) * n < 2**8


def rounded_to(kind: dt.dtype, values: np.ndarray) -> np.ndarray:
    """Values rounded to a dtype; bfloat16 stays in float32."""
    with np.errstate(over="ignore"):
        return streams.round_bfloat16(values) if kind is dt.bfloat16 else values.astype(kind.numpy)


def range(start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None,
          pin_memory=False, requires_grad=False):
    """Numbers from start up to and including end; arange is what torch recommends."""
    start, end = (0, start) if end is None else (start, end)
    start, end, step = (options.number(v) for v in (start, end, step))
    _check_numbers("range", start, end, step)
    kind = options.out_dtype("range", dtype, out)
    n = int((float(end) - float(start)) / float(step)) + 1
    if resolve(device) is META:
        x = empty(signature(kind, (n,), None, META))
    else:
        at = np.arange(n)
        whole = kind.kind in "iu"
        values = int(start) + int(step) * at if whole else float(start) + float(step) * at
        x = convert.copied(values.astype(kind.compute.numpy if kind.foreign else kind.numpy), kind)
    if out is not None:
        return options.place_in("range", out, x, dtype)
    return same_every_time(options.finish("range", x, layout, pin_memory, requires_grad))


# -- linspace ------------------------------------------------------------------------------------


def linspace(start, end, steps, *, out=None, dtype=None, layout=None, device=None,
             pin_memory=False, requires_grad=False):
    """`steps` numbers evenly spaced from start to end, both included."""
    kind = dtype or dt._Default.value
    if type(steps) is int and steps > 1 and (
            type(start) in _REAL and type(end) in _REAL) and (
            (kind is dt.float32 or kind is dt.float64) and out is None) and not (
            layout or pin_memory or requires_grad or modes.inference) and is_here(device):
        x = empty(signature(kind, (steps,)))
        ramps.even(kind.name)(x.ptr, start, end, steps)
        return x if not tracers else same_every_time(x)
    return _spaced("linspace", linspace_values, start, end, steps, out, dtype, layout, device,
                   pin_memory, requires_grad)


def logspace(start, end, steps, base=10.0, *, out=None, dtype=None, layout=None, device=None,
             pin_memory=False, requires_grad=False):
    """base to the power of `steps` numbers evenly spaced from start to end."""

    def values(start, end, steps, kind):
        return logspace_values(start, end, steps, kind, base)

    return _spaced("logspace", values, start, end, steps, out, dtype, layout, device, pin_memory,
                   requires_grad)


def _spaced(name, values, start, end, steps, out, dtype, layout, device, pin_memory,
            requires_grad) -> Tensor:
    for role, bound in (("start", start), ("end", end)):
        if isinstance(bound, Tensor) and bound.sig.rank:
            raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors, but got "
                               f"{role} with {bound.sig.rank} dimension(s).")
    start, end = options.number(start), options.number(end)
    if isinstance(steps, Tensor):
        steps = steps.item()
    if not isinstance(steps, (int, np.integer)) or isinstance(steps, bool):
        given = ", ".join(type(v).__name__ for v in (start, end, steps))
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({given}): "
                        f"argument 'steps' must be int, not {type(steps).__name__}")
    if steps < 0:
        raise RuntimeError(f"{name}: number of steps must be non-negative")
    natural = dt.default_float()
    if isinstance(start, complex) or isinstance(end, complex):
        natural = natural.to_complex()
    kind = options.out_dtype(name, dtype, out, natural)
    if natural.kind == "c" and kind.kind != "c":
        raise RuntimeError(f"torch.{name}(): inferred dtype {natural} can't be safely cast to "
                           f"passed dtype {kind}")
    if kind.kind == "b":
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for 'Bool'")
    if resolve(device) is META:
        x = empty(signature(kind, (steps,), None, META))
    else:
        with np.errstate(all="ignore"):
            x = convert.owned(values(start, end, int(steps), kind), kind)
    if out is not None:
        return options.place_in(name, out, x, dtype)
    return same_every_time(options.finish(name, x, layout, pin_memory, requires_grad))


def linspace_values(start, end, steps: int, kind: dt.dtype) -> np.ndarray:
    if kind in (dt.float16, dt.bfloat16):
        return _half_linspace(start, end, steps, kind)
    carrier = kind.numpy.type
    first, last = carrier(start), carrier(end)
    if steps == 1:
        return np.array([first], carrier)
    work = np.float64 if kind.kind in "iu" else carrier
    step = (work(last) - work(first)) / work(steps - 1) if steps > 1 else work(0)
    at = np.arange(steps)
    low, high = fused(step, at, work(first)), fused(-step, steps - 1 - at, work(last))
    return np.where(at < steps // 2, low, high).astype(carrier)


def fused(a, n: np.ndarray, b) -> np.ndarray:
    """a * n + b for integers n, rounded once."""
    kind = a.dtype.type
    if a.dtype.kind == "c":
        return fused(a.real, n, b.real) + kind(1j) * fused(a.imag, n, b.imag)
    if kind is np.float32:
        return (np.float64(a) * n + np.asarray(b, np.float64)).astype(np.float32)
    product, lost = streams.exact_product(n.astype(np.float64), a)
    total = product + b
    part = total - product
    return total + ((product - (total - part)) + (b - part) + lost)


def _half_linspace(start, end, steps: int, kind) -> np.ndarray:
    """Half types: each operation is rounded to the type itself."""
    def rounded(values):
        return rounded_to(kind, np.asarray(values, np.float32)).astype(np.float32)

    first, last = rounded(start), rounded(end)
    if steps == 1:
        return first.reshape(1)
    step = rounded(rounded(last - first) / np.float32(steps - 1)) if steps > 1 else np.float32(0)
    at = np.arange(steps)
    low = first + rounded(step * rounded(at))
    high = last - rounded(step * rounded(steps - 1 - at))
    return np.where(at < steps // 2, low, high).astype(np.float32)


def logspace_values(start, end, steps: int, kind: dt.dtype, base) -> np.ndarray:
    """The bounds are rounded to the dtype, all else is computed in double precision."""
    wide = np.complex128 if kind.kind == "c" else np.float64
    carrier = np.float32 if kind is dt.bfloat16 else kind.numpy.type
    first, last = (wide(carrier(bound)) for bound in (start, end))
    step = (last - first) / max(steps - 1, 1)
    at = np.arange(steps)
    low, high = fused(step, at, first), fused(-step, steps - 1 - at, last)
    power = np.where((at < steps // 2) | (steps == 1), low, high)
    return np.power(wide(base), power).astype(carrier)
