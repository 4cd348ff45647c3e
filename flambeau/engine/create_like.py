"""New tensors like another one: zeros_like(x) and its kin, and x.new_zeros(...) and its kin."""

from __future__ import annotations

from ..core import formats as fm
from ..core.device import CPU, is_here, resolve
from ..ops.refusal import check_fits
from . import convert
from .create import FLOATING, empty_strided, full, moved, new_of
from .interception import in_words, same_every_time, tracers
from .modes import modes
from .options import as_dtype, finish, given_size, number, sizes
from .tensor import Tensor, signature


def like_signature(name: str, x, dtype, device, memory_format):
    """The signature of a new tensor like x, except for what is told."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not "
                        f"{type(x).__name__}")
    sig = x.sig
    kind = sig.dtype if dtype is None else as_dtype(name, dtype)
    if memory_format is None and sig.contiguous and (
            device is None or (sig.device is CPU and is_here(device))):
        return sig if sig.tag is None and kind is sig.dtype else signature(
            kind, sig.shape, None, sig.device)
    where = sig.device if device is None else resolve(device)
    strides = fm.strides_of(sig.shape, memory_format or fm.preserve_format, sig.strides)
    return signature(kind, sig.shape, strides, where)


def _like(name: str, value):
    """zeros_like, ones_like and empty_like."""

    def create(input, *, dtype=None, layout=None, device=None, pin_memory=False,
               requires_grad=False, memory_format=None):
        if type(input) is not Tensor:
            found = in_words(name, create, (input,), {
                "dtype": dtype, "layout": layout, "device": device, "memory_format": memory_format,
                "requires_grad": requires_grad})
            if found is not None:
                return found[0]
        sig = like_signature(name, input, dtype, device, memory_format)
        x = new_of(sig, value, layout, pin_memory, requires_grad)
        if layout is None and not pin_memory and not requires_grad and not modes.inference:
            return x if not tracers else same_every_time(x)
        return same_every_time(finish(name, x, layout, pin_memory, requires_grad))

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"A new tensor like `input`: same shape, dtype, device and order ({name})."
    return create


zeros_like = _like("zeros_like", 0)
ones_like = _like("ones_like", 1)
empty_like = _like("empty_like", None)


def full_like(input, fill_value, *, dtype=None, layout=None, device=None, pin_memory=False,
              requires_grad=False, memory_format=None):
    """A new tensor of one value, like `input` otherwise."""
    if not isinstance(input, Tensor):
        found = in_words("full_like", full_like, (input, fill_value), {
            "dtype": dtype, "layout": layout, "device": device, "memory_format": memory_format,
            "requires_grad": requires_grad})
        if found is not None:
            return found[0]
    sig = like_signature("full_like", input, dtype, device, memory_format)
    value = number(fill_value)
    if type(value) is not float or sig.dtype not in FLOATING or not abs(value) < 3e38:
        check_fits(value, sig.dtype)
    x = new_of(sig, value, layout, pin_memory, requires_grad)
    if layout is None and not (pin_memory or requires_grad or modes.inference):
        return x if not tracers else same_every_time(x)
    return same_every_time(finish("full_like", x, layout, pin_memory, requires_grad))


def _new(name: str, value):
    """new_zeros, new_ones and new_empty."""

    def create(self, *size, dtype=None, device=None, requires_grad=False, layout=None,
               pin_memory=False, **named):
        shape = sizes(name, given_size(name, size, named))
        kind = self.sig.dtype if dtype is None else as_dtype(name, dtype)
        where = self.sig.device if device is None else resolve(device)
        x = new_of(signature(kind, shape, None, where), value, layout, pin_memory, requires_grad)
        return same_every_time(finish(name, x, layout, pin_memory, requires_grad))

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"{name}: a new tensor of this tensor's dtype and device."
    return create


def new_full(self, size, fill_value, *, dtype=None, device=None, requires_grad=False, layout=None,
             pin_memory=False):
    """A new tensor of one value, of this tensor's dtype and device."""
    return full(size, fill_value, dtype=dtype or self.sig.dtype, device=device or self.sig.device,
                requires_grad=requires_grad, layout=layout, pin_memory=pin_memory)


def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False, layout=None,
               pin_memory=False):
    """A new tensor holding a copy of data, of this tensor's dtype and device."""
    kind = self.sig.dtype if dtype is None else as_dtype("new_tensor", dtype)
    where = self.sig.device if device is None else resolve(device)
    x = moved(convert.from_data(data, kind, where), where)
    return finish("new_tensor", x, layout, pin_memory, requires_grad)


def new_empty_strided(self, size, stride, *, dtype=None, layout=None, device=None,
                      pin_memory=False, requires_grad=False):
    """A new tensor of these strides, of this tensor's dtype and device."""
    return empty_strided(size, stride, dtype=dtype or self.sig.dtype, layout=layout,
                         device=device or self.sig.device, pin_memory=pin_memory,
                         requires_grad=requires_grad)


METHODS = {
    "new_zeros": _new("new_zeros", 0), "new_ones": _new("new_ones", 1),
    "new_empty": _new("new_empty", None), "new_full": new_full, "new_tensor": new_tensor,
    "new_empty_strided": new_empty_strided,
}


def install() -> None:
    for name, method in METHODS.items():
        setattr(Tensor, name, method)
