"""A tensor in another dtype, on another device, in another order of memory: `to` and its kin."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import formats as fm
from ..core.device import CPU, resolve
from ..core.device import device as Device
from . import create, legacy, options
from .eager import engine
from .tensor import Tensor

_USAGE = "to() received an invalid combination of arguments"


def _read(args: tuple, named: dict):
    """(device, dtype, copy, memory format) however `to` was called; None where nothing was said."""
    where = named.pop("device", None)
    kind = named.pop("dtype", None)
    other = named.pop("other", None)
    given = list(args)
    if given:
        first = given.pop(0)
        if isinstance(first, Tensor):
            other = first
        elif isinstance(first, (dt.dtype, type)):
            kind = first
        else:
            where = first
            if given and (given[0] is None or isinstance(given[0], (dt.dtype, type))):
                kind = given.pop(0)
    if other is not None:
        where, kind = other.sig.device, other.sig.dtype
    rest = dict(zip(("non_blocking", "copy"), given, strict=False))
    rest.update(named)
    form = rest.pop("memory_format", None)
    copy = rest.pop("copy", False)
    rest.pop("non_blocking", None)
    if rest or len(given) > 2:
        raise TypeError(f"{_USAGE} - unknown: {', '.join(map(repr, rest)) or given}")
    if where is not None and not isinstance(where, (str, int, Device)):
        raise TypeError(f"{_USAGE} - got {type(where).__name__}, but expected a device, a dtype or "
                        "a tensor")
    if isinstance(where, int):
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return where, kind, copy, form


def to(self, *args, **kwargs):
    """This tensor with another dtype or device; itself if it has them already."""
    if len(args) == 1 and not kwargs:
        first = args[0]
        if first.__class__ is dt.dtype:
            return engine.cast(self, first)
        if self.sig.device is CPU and (first is CPU or (first.__class__ is str and first == "cpu")):
            return self
        if type(first) is Tensor is type(self) and first.sig.device is self.sig.device:
            return engine.cast(self, first.sig.dtype)
    elif self.sig.device is CPU:
        found = _here(self, args, kwargs)
        if found is not None:
            return found
    where, kind, copy, form = _read(args, kwargs)
    kind = self.sig.dtype if kind is None else options.as_dtype("to", kind)
    return moved(self, kind, where, copy, form)


def _here(self: Tensor, args: tuple, kwargs: dict) -> Tensor | None:
    """x.to(device="cpu", dtype=...), x.to("cpu", dtype): None for anything else."""
    where, kind = None, None
    if len(args) == 2 and not kwargs:
        where, kind = args
    elif not args and kwargs and kwargs.keys() <= {"device", "dtype"}:
        where, kind = kwargs.get("device"), kwargs.get("dtype")
    if where is not None and where is not CPU and not (where.__class__ is str and where == "cpu"):
        return None
    if kind is None:
        return self if where is not None else None
    return engine.cast(self, kind) if kind.__class__ is dt.dtype else None


def in_order(x: Tensor, form) -> Tensor:
    """The elements in a format's order; subclasses are asked, and stay what they are."""
    if type(x) is Tensor:
        return engine.contiguous(x, form)
    return x.contiguous(memory_format=form)


def moved(x: Tensor, kind: dt.dtype, where=None, copy: bool = False, form=None) -> Tensor:
    out = x
    if where is not None and resolve(where) is not x.sig.device:
        out = create.moved(out, resolve(where))
    if kind is not out.sig.dtype:
        out = engine.cast(out, kind)
    if form is not None and form is not fm.preserve_format:
        out = in_order(out, form)
    if copy and out is x:
        out = engine.clone(x)
    return out


def _caster(name: str, target: dt.dtype):
    def convert(self, *, memory_format=fm.preserve_format):
        if self.sig.dtype is target and memory_format is fm.preserve_format:
            return self
        return moved(self, target, None, False, memory_format)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"This tensor as {target}."
    return convert


#: method -> dtype
CASTS = {
    "float": dt.float32, "double": dt.float64, "half": dt.float16, "bfloat16": dt.bfloat16,
    "int": dt.int32, "long": dt.int64, "short": dt.int16, "char": dt.int8, "byte": dt.uint8,
    "bool": dt.bool_, "cfloat": dt.complex64, "cdouble": dt.complex128,
}


def cpu(self, memory_format=fm.preserve_format):
    """This tensor on the CPU."""
    if self.sig.device is CPU and memory_format is fm.preserve_format:
        return self
    return moved(self, self.sig.dtype, "cpu", False, memory_format)


def _elsewhere(name: str):
    def move(self, device=None, non_blocking=False, memory_format=fm.preserve_format):
        where = name if device is None else device
        return moved(self, self.sig.dtype, f"{name}:{where}" if isinstance(where, int) else where)

    move.__name__ = move.__qualname__ = name
    move.__doc__ = f"This tensor on a {name} device, if there is one."
    return move


def type_as(self, other):
    """This tensor with the dtype and device of another."""
    return moved(self, other.sig.dtype, other.sig.device)


def type_(self, dtype=None, non_blocking=False):
    """The name of this tensor's type, or the tensor converted to a type."""
    if dtype is None:
        return legacy.legacy_names[self.sig.dtype]
    if isinstance(dtype, str):
        name = dtype.removeprefix("torch.")
        if name not in legacy.LEGACY and name != "Tensor":
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = legacy.LEGACY.get(name, dt.default_float())
    elif isinstance(dtype, legacy.tensortype):
        dtype = dtype.dtype
    return moved(self, options.as_dtype("type", dtype))


type_.__name__ = type_.__qualname__ = "type"


def clone(self, *, memory_format=fm.preserve_format):
    """A copy with its own memory; gradients flow through it."""
    if memory_format is fm.preserve_format or memory_format is None:
        return engine.clone(self)
    if fm.lies_in(self.sig.shape, self.sig.strides, memory_format):
        return engine.clone(self)
    return in_order(self, memory_format)


def is_contiguous(self, memory_format=fm.contiguous_format) -> bool:
    """Whether the elements lie in memory in this order, without gaps."""
    if memory_format is fm.contiguous_format:
        return self.sig.contiguous
    return fm.lies_in(self.sig.shape, self.sig.strides, memory_format)


METHODS = {
    "to": to, "type": type_, "type_as": type_as, "cpu": cpu, "cuda": _elsewhere("cuda"),
    "xpu": _elsewhere("xpu"), "mps": _elsewhere("mps"), "clone": clone,
    "is_contiguous": is_contiguous,
    **{name: _caster(name, target) for name, target in CASTS.items()},
}


def install() -> None:
    for name, method in METHODS.items():
        setattr(Tensor, name, method)
