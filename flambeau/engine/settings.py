"""What a process has chosen, and questions about values: defaults, printing, threads."""

from __future__ import annotations

import os
import warnings

from ..core import device as places
from ..core import dtype as dt
from ..core import printing
from ..core import shape as sh
from ..devices.cpu import threads
from . import convert, legacy, options, protocol
from .interception import Named, intercepted
from .modes import modes
from .tensor import Size, Tensor

# -- questions -----------------------------------------------------------------------------------


def is_tensor(obj) -> bool:
    """Whether this is a tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input) -> bool:
    """Whether the elements are floating point numbers."""
    return _sig("is_floating_point", input).dtype.kind == "f"


def is_complex(input) -> bool:
    """Whether the elements are complex numbers."""
    return _sig("is_complex", input).dtype.kind == "c"


def is_signed(input) -> bool:
    """Whether the elements can be negative."""
    return _sig("is_signed", input).dtype.is_signed


def is_conj(input) -> bool:
    """Whether conjugation is still to be done; here it is always done at once."""
    _sig("is_conj", input)
    return False


def is_neg(input) -> bool:
    """Whether negation is still to be done; here it is always done at once."""
    _sig("is_neg", input)
    return False


def is_inference(input) -> bool:
    """Whether the tensor was made inside inference_mode."""
    _sig("is_inference", input)
    return input.is_inference()


def is_same_size(input, other) -> bool:
    """Whether two tensors have the same shape."""
    return _sig("is_same_size", input).shape == _sig("is_same_size", other).shape


def is_nonzero(input) -> bool:
    """Whether the only element is not zero."""
    sig = _sig("is_nonzero", input)
    if sig.numel != 1:
        kind = "no values" if sig.numel == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {kind} is ambiguous")
    return bool(input.item())


def numel(input) -> int:
    """How many elements there are."""
    return _sig("numel", input).numel


def _sig(name: str, x):
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not "
                        f"{type(x).__name__}")
    return x.sig


def typename(obj) -> str:
    """The name of a tensor's type, or of any object's."""
    if isinstance(obj, Tensor):
        return legacy.legacy_names[obj.sig.dtype]
    kind = obj if isinstance(obj, type) else type(obj)
    module = "" if kind.__module__ in ("builtins", None) else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def result_type(tensor1, tensor2) -> dt.dtype:
    """The dtype that an arithmetic op on these operands gives."""
    groups: tuple[list, list, list] = ([], [], [])
    for value in (tensor1, tensor2):
        if isinstance(value, Tensor):
            groups[0 if value.sig.rank else 1].append(value.sig.dtype)
        else:
            groups[2].append(dt.of_scalar(value))
    return dt.result_type(*groups)


def promote_types(type1, type2) -> dt.dtype:
    """The smallest dtype both convert to."""
    return dt.promote(options.as_dtype("promote_types", type1),
                      options.as_dtype("promote_types", type2))


def can_cast(from_, to) -> bool:
    """Whether a result of one dtype may be written into a tensor of another."""
    return dt.can_cast(options.as_dtype("can_cast", from_), options.as_dtype("can_cast", to))


def broadcast_shapes(*shapes) -> Size:
    """The shape that tensors of these shapes broadcast to."""
    plain = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    for shape in plain:
        if any(n < 0 for n in shape):
            raise RuntimeError(f"Trying to create tensor with negative dimension ({min(shape)}): "
                               f"({min(shape)})")
    return Size(sh.broadcast("broadcast_shapes", *plain))


# -- defaults ------------------------------------------------------------------------------------


def get_default_dtype() -> dt.dtype:
    """The dtype of new floating point tensors."""
    return dt.default_float()


def set_default_dtype(d) -> None:
    """Choose the dtype of new floating point tensors."""
    dt.set_default_float(options.as_dtype("set_default_dtype", d))


def set_default_tensor_type(t) -> None:
    """Choose the dtype of new floating point tensors by its legacy constructor."""
    name = t.removeprefix("torch.") if isinstance(t, str) else t.__name__
    if name not in legacy.LEGACY:
        raise TypeError(f"invalid type object: {t!r} is not a tensor type")
    dt.set_default_float(legacy.LEGACY[name])


def get_default_device() -> places.device:
    """The device of new tensors."""
    return places.default()


def set_default_device(device) -> None:
    """Choose the device of new tensors; None means the CPU."""
    if device is not None:
        places.resolve(device)
    places.set_default(device)


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None,
                     sci_mode=None) -> None:
    """Choose how tensors are printed."""
    protocol.Printing.options = printing.changed_options(
        protocol.Printing.options, precision, threshold, edgeitems, linewidth, profile, sci_mode)


# -- threads and determinism ---------------------------------------------------------------------


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class Settings:
    """The choices of this process."""

    interop_threads = _cores()
    deterministic = False
    warn_only = False
    matmul_precision = "highest"
    warn_always = False


def get_num_threads() -> int:
    """How many threads compute one op."""
    return threads.get_num_threads()


def set_num_threads(num: int) -> None:
    """Choose how many threads compute one op."""
    threads.set_num_threads(_positive("set_num_threads", num))


def get_num_interop_threads() -> int:
    """How many threads may run ops side by side."""
    return Settings.interop_threads


def set_num_interop_threads(num: int) -> None:
    """Choose how many threads may run ops side by side."""
    Settings.interop_threads = _positive("set_num_interop_threads", num)


def _positive(name: str, num) -> int:
    if not isinstance(num, int) or isinstance(num, bool):
        raise TypeError(f"{name} expects an int, but got {type(num).__name__}")
    if num <= 0:
        raise RuntimeError(f"{name} expects a positive integer, got {num}")
    return num


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for the same results on every run; the kernels here always give them."""
    Settings.deterministic, Settings.warn_only = bool(mode), bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether deterministic algorithms were asked for."""
    return Settings.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether only a warning was asked for."""
    return Settings.warn_only


#: name of a debug mode -> its number
DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


def set_deterministic_debug_mode(debug_mode) -> None:
    """Deterministic algorithms by a mode: default, warn or error."""
    number = DEBUG_MODES.get(debug_mode, debug_mode)
    if number not in (0, 1, 2):
        raise RuntimeError("invalid value of debug_mode, expected `default`, `warn`, `error`, 0, 1 "
                           f"or 2, but got {debug_mode}")
    use_deterministic_algorithms(number > 0, warn_only=number == 1)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: default, warn, error."""
    return 0 if not Settings.deterministic else 1 if Settings.warn_only else 2


def get_float32_matmul_precision() -> str:
    """How float32 matrices are multiplied."""
    return Settings.matmul_precision


def set_float32_matmul_precision(precision: str) -> None:
    """Allow float32 matrices to be multiplied in less; here they never are."""
    if precision not in ("highest", "high", "medium"):
        warnings.warn(f"{precision} is not one of 'highest', 'high', 'medium'; the setting stays",
                      stacklevel=2)
        return
    Settings.matmul_precision = precision


def set_flush_denormal(mode: bool) -> bool:
    """Ask for denormal numbers to be taken as zero; whether that is done."""
    return not mode


def set_warn_always(b: bool) -> None:
    """Whether warnings that show once are shown always."""
    Settings.warn_always = bool(b)


def is_warn_always_enabled() -> bool:
    """Whether warnings that show once are shown always."""
    return Settings.warn_always


# -- assertions and anomalies ----------------------------------------------------------------------


def _assert(condition, message):
    """assert, as a function."""
    if not isinstance(condition, (bool, Tensor)):
        found = intercepted(Named("_assert", _assert), (condition, message), {})
        if found is not None:
            return found[0]
    if not condition:
        raise AssertionError(message)


def _assert_async(cond, assert_msg: str = "Expected Tensor with single nonzero value, but got "
                  "zero") -> None:
    """Refuses a tensor of one element that is not true."""
    if not cond:
        raise RuntimeError(assert_msg)


class SymInt:
    """A size that is not known yet, in PyTorch. Sizes are numbers here, so none is one."""


class SymFloat:
    """A float that is made of such sizes."""


class SymBool:
    """A condition on such sizes."""


def _shape_as_tensor(x: Tensor) -> Tensor:
    """The shape as a tensor of integers."""
    return convert.from_data(list(x.sig.shape), dt.int64)


def is_anomaly_enabled() -> bool:
    """Whether each step remembers the call that recorded it."""
    return modes.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether gradients are searched for nan."""
    return modes.anomaly_check_nan


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Anomaly detection on or off."""
    modes.anomaly, modes.anomaly_check_nan = mode, check_nan


def sym_int(a) -> int:
    """The integer that a size is, towards zero."""
    return int(a)


def sym_float(a) -> float:
    """A size as a float."""
    return float(a)


def sym_not(a) -> bool:
    """The opposite of a condition on sizes."""
    return not a


def sym_max(a, b):
    """The larger of two sizes; a float if one of them is."""
    return max(float(a), float(b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


def sym_min(a, b):
    """The smaller of two sizes; a float if one of them is."""
    return min(float(a), float(b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


def sym_sum(args) -> int:
    """The sum of many sizes."""
    return sum(args)


def sym_ite(b, t, f):
    """t if the condition holds, else f."""
    return t if b else f


class OutOfMemoryError(RuntimeError):
    """An accelerator has no memory left."""

    __module__ = "torch"
