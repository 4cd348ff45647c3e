"""autocast: a region in which listed ops run in a lower precision, and the rest as it was."""

import functools
import warnings
from collections.abc import Mapping

import flambeau
from flambeau import Tensor
from flambeau.assemble import autocast as _engine

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

#: what each kind of device can be cast to; those that are not here take anything
SUPPORTED = {"cpu": (flambeau.bfloat16, flambeau.float16)}


def is_autocast_available(device_type):
    """Whether autocast knows a kind of device."""
    flambeau.device(device_type)  # an error for what is no device
    return device_type in _engine.DEFAULTS


def autocast_decorator(autocast_instance, func):
    """A function that runs inside an autocast."""

    @functools.wraps(func)
    def decorate_autocast(*args, **kwargs):
        with autocast_instance:
            return func(*args, **kwargs)

    return decorate_autocast


class autocast:
    """A context, or decorator, in which listed ops choose their precision.

    Products and convolutions run in `dtype`, losses and delicate ops in float32.
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(
                f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not is_autocast_available(device_type):
            raise RuntimeError(
                f"User specified an unsupported autocast device_type {device_type!r}")
        self.device = device_type
        self.fast_dtype = flambeau.get_autocast_dtype(device_type) if dtype is None else dtype
        if self.fast_dtype is None:
            raise AssertionError("fast_dtype must not be None")
        self._cache_enabled = (
            flambeau.is_autocast_cache_enabled() if cache_enabled is None else cache_enabled)
        self._enabled = bool(enabled) and self._possible()
        self._before = []

    def _possible(self):
        """Whether this kind of device is there and can compute so; a warning if not."""
        if self.device == "cuda" and not flambeau.cuda.is_available():
            warnings.warn("CUDA is not available or torch_xla is imported. Disabling autocast.",
                          stacklevel=4)
            return False
        supported = SUPPORTED.get(self.device, (self.fast_dtype,))
        if self.fast_dtype not in supported:
            name = self.device.upper()
            warnings.warn(
                f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{name} Autocast only supports dtypes of {', '.join(map(str, supported))} "
                "currently.", stacklevel=4)
            return False
        return True

    def __enter__(self):
        self._before.append((
            flambeau.is_autocast_enabled(self.device), flambeau.get_autocast_dtype(self.device),
            flambeau.is_autocast_cache_enabled()))
        flambeau.set_autocast_enabled(self.device, self._enabled)
        flambeau.set_autocast_dtype(self.device, self.fast_dtype)
        flambeau.autocast_increment_nesting()
        flambeau.set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(self, kind, value, trace):
        if flambeau.autocast_decrement_nesting() == 0:
            flambeau.clear_autocast_cache()
        enabled, dtype, cache_enabled = self._before.pop()
        flambeau.set_autocast_enabled(self.device, enabled)
        flambeau.set_autocast_dtype(self.device, dtype)
        flambeau.set_autocast_cache_enabled(cache_enabled)
        return False

    def __call__(self, func):
        return autocast_decorator(self, func)


# -- custom autograd functions --------------------------------------------------------------------


def _cast(value, device_type, dtype):
    """Floating tensors of a device in another precision, wherever they are in a container."""
    if isinstance(value, Tensor):
        fits = value.is_floating_point() and value.device.type == device_type
        return value.to(dtype) if fits and value.dtype is not flambeau.float64 else value
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype)
                for k, v in value.items()}
    if isinstance(value, list | tuple):
        parts = [_cast(v, device_type, dtype) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """Decorator of a Function's forward: under autocast, run with inputs cast and autocast off.

    Without `cast_inputs`, forward runs in whatever state there is.
    """
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args, **kwargs):
        context = args[0]
        context._dtype = flambeau.get_autocast_dtype(device_type)
        enabled = flambeau.is_autocast_enabled(device_type)
        if cast_inputs is None:
            context._fwd_used_autocast = enabled
            return fwd(*args, **kwargs)
        context._fwd_used_autocast = False
        if not enabled:
            return fwd(*args, **kwargs)
        with autocast(device_type=device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs),
                       **_cast(kwargs, device_type, cast_inputs))

    return decorate_fwd


def custom_bwd(bwd=None, *, device_type):
    """Decorator of a Function's backward: run in the autocast state its forward had."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args, **kwargs):
        context = args[0]
        with autocast(device_type=device_type, enabled=context._fwd_used_autocast,
                      dtype=context._dtype):
            return bwd(*args, **kwargs)

    return decorate_bwd


def _list_functions():
    """Functions that are no ops and stand on the lists."""
    functional = flambeau.nn.functional
    for name in ("fractional_max_pool2d", "fractional_max_pool3d"):
        for form in (name, f"{name}_with_indices"):
            if (function := getattr(functional, form, None)) is not None:
                _engine.add(function, _engine.SINGLE)


_list_functions()
