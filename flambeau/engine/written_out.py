"""`out=`: results that are written into tensors that exist."""

from __future__ import annotations

from ..core import dtype as dt
from ..core.device import META
from ..ops.declare import Pointwise
from ..ops.refusal import spoken
from .caller import warn_caller
from .copying import COPY, copy_into, copy_plainly
from .eager import engine
from .fresh import empty
from .interception import PLAIN, lazily_traced, plainly, tracers
from .modes import modes
from .tensor import Tensor, signature
from .writing import changed, demand_apart


def into_out(op: Pointwise, args, attributes, out: Tensor) -> Tensor:
    """Compute an op into `out`, resized if it has another shape."""
    if _is_plain((*args, *attributes.values()), out):
        result = op.run(*args, **attributes)
        if _copied(result, out):
            return out
    else:
        result = engine.without_grad(op.run, *args, **attributes)
    if op.rule == dt.COMPLEX and isinstance(out, Tensor) and out.sig.dtype is not result.sig.dtype:
        raise RuntimeError(f"{op.name}: Expected object of scalar type {spoken(result.sig.dtype)} "
                           f"but got scalar type {spoken(out.sig.dtype)} for argument 'out'")
    return write_out(op.name, result, args, out)


def run_into(name: str, run, args, kwargs: dict, out):
    """The results of `run(*args, **kwargs)`, written to what is given as `out=`."""
    if not _is_plain((*args, *kwargs.values()), out, name in APART_OUT):
        return write_out(name, engine.without_grad(run, *args, **kwargs), args, out)
    result = run(*args, **kwargs)
    return out if _copied(result, out) else write_out(name, result, args, out)


def _is_plain(given: tuple, out, apart: bool = False) -> bool:
    """Whether nothing is recorded, nobody is to be asked, and `out` lies apart from the tensors
    that are given, or is one of them where that may be."""
    if tracers or type(out) is not Tensor or Tensor not in PLAIN:
        return False
    for a in given:
        kind = type(a)
        if kind is list or kind is tuple:
            if not _is_plain(tuple(a), out, apart):
                return False
        elif isinstance(a, Tensor) and (
                kind not in PLAIN or (modes.grad and a.node is not None)
                or (a.mem is out.mem and (apart or a.ptr != out.ptr or a.sig is not out.sig))):
            return False
    return out.node is None or not modes.grad


def _copied(result, out: Tensor) -> bool:
    """Whether a result of just this signature was copied."""
    done = type(result) is Tensor and result.sig is out.sig and copy_plainly(out, result)
    if done:
        changed(out)
    return done


def write_out(name: str, result, args, out):
    """Copy a result into the tensor or tensors given as `out=`."""
    if isinstance(out, (tuple, list)):
        for r, o in zip(result, out, strict=True):
            write_out(name, r, args, o)
        return type(result)(out) if type(result) is tuple else engine.like_named(result, out)
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if modes.grad and (out.node is not None or any(
            isinstance(a, Tensor) and a.node is not None for a in args)):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic "
                           "differentiation, but one of the arguments requires grad.")
    traced = lazily_traced()
    if traced and (name in APART_OUT or out.sig.shape != result.sig.shape):
        return plainly(write_out, name, result, args, out)
    _check_out(name, result.sig.dtype, args, out)
    if not traced:
        for a in args:
            demand_apart(a, out)
    if traced and (found := tracers[-1](COPY, (out, result), {})) is not None:
        return found[0]
    if out.sig.shape != result.sig.shape:
        engine.resize(out, result.sig.shape)
    if out.sig.device is not META:
        copy_into(out, result)
    changed(out)
    return out


#: ops that write only into tensors of exactly their result's dtype
EXACT_OUT = frozenset((
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "cummax", "cummin", "gather",
    "index_select", "kthvalue", "log_softmax", "masked_select", "matmul", "max", "median", "min",
    "mode", "nanmedian", "softmax", "sort", "take", "topk"))
#: ops whose `out` may not share memory with what they read
APART_OUT = frozenset((
    "cat", "gather", "index_select", "kthvalue", "masked_select", "stack", "take"))
#: what torch says of another dtype, where it says it in other words
_OUT_WORDS = dict.fromkeys(("amax", "amin"), "Expected the dtype for input and out to match, but "
                           "got {0} for input's dtype and {3} for out's dtype.")


def _check_out(name: str, found: dt.dtype, args, out: Tensor) -> None:
    given = out.sig.dtype
    if name in EXACT_OUT and given is not found:
        words = _OUT_WORDS.get(name, "Expected out tensor to have dtype {1}, but got {2} instead")
        raise RuntimeError(f"{name}: " + words.format(spoken(found), dt.short_name(found),
                                                      dt.short_name(given), spoken(given)))
    if not dt.can_cast(found, given):
        raise RuntimeError(f"{name}: result type {found.name} can't be cast to the desired output "
                           f"type {given.name}")
    if any(s == 0 and n > 1 for s, n in zip(out.sig.strides, out.sig.shape, strict=True)):
        raise RuntimeError(f"{name}: unsupported operation: more than one element of the "
                           "written-to tensor refers to a single memory location. Please clone() "
                           "the tensor before performing the operation.")
    read = [t for a in args for t in (a if isinstance(a, (list, tuple)) else (a,))]
    if name in APART_OUT and any(isinstance(t, Tensor) and t.mem is out.mem for t in read):
        raise RuntimeError(f"{name}: unsupported operation: some elements of the input tensor and "
                           "the written-to tensor refer to a single memory location. Please "
                           "clone() the tensor before performing the operation.")


def resized(x: Tensor, shape) -> None:
    """Give an `out` another shape in place; memory grows if it must."""
    if x.sig.numel:
        warn_caller("An output with one or more elements was resized since it had shape "
                    f"{list(x.sig.shape)}, which does not match the required output shape "
                    f"{list(shape)}. This behavior is deprecated, and in a future PyTorch release "
                    "outputs will not be resized unless they have zero elements. You can "
                    "explicitly reuse an out tensor t by resizing it, inplace, to zero elements "
                    "with t.resize_(0).")
    sig = signature(x.sig.dtype, tuple(shape), None, x.sig.device)
    room = x.mem.nbytes - (x.ptr - x.mem.address)
    if sig.nbytes > room and sig.device is not META:
        fresh = empty(sig)
        x.mem, x.ptr = fresh.mem, fresh.ptr
    x.sig = sig
