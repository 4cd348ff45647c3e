"""Legacy constructors: torch.Tensor(2, 3), torch.LongTensor([1, 2]), and the types they are."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import formats as fm
from ..core.device import CPU, resolve
from ..core.lazily import np
from . import convert, inplace
from .fresh import empty as raw_empty
from .options import sizes
from .tensor import Size, Tensor, signature


def legacy(cls, dtype: dt.dtype, args: tuple, device=None) -> Tensor:
    """torch.Tensor(2, 3), torch.LongTensor([1, 2]), torch.Tensor(other)."""
    if device is not None and resolve(device) is not CPU:
        raise RuntimeError("legacy constructor expects device type: cpu but device type: "
                           f"{resolve(device)} was passed")
    if not args:
        return raw_empty(signature(dtype, (0,)))
    first = args[0]
    if len(args) == 1 and not isinstance(first, (int, Size, np.integer)):
        return _legacy_data(cls, dtype, first)
    try:
        return raw_empty(signature(dtype, sizes("new", args)))
    except TypeError:
        kinds = ", ".join(type(a).__name__ for a in args)
        raise TypeError(f"new() received an invalid combination of arguments - got ({kinds}), but "
                        "expected sizes, a sequence of numbers or a tensor") from None


def _legacy_data(cls, dtype, data) -> Tensor:
    if isinstance(data, Tensor):
        if cls is not None and data.sig.dtype is not dtype:
            raise TypeError(f"expected a tensor of dtype {dtype} (got {data.sig.dtype})")
        return inplace.detached(data)
    if isinstance(data, (float, complex, str)) or data is None:
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
    return convert.from_data(data, dtype)


class tensortype(type):
    """The type of torch.FloatTensor and its kin: constructors that know instances by dtype."""

    __module__ = "torch"
    dtype: dt.dtype

    def __call__(cls, *args, device=None):
        return legacy(cls, cls.dtype, args, device)

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, Tensor) and instance.sig.dtype is cls.dtype


#: legacy constructor -> dtype
LEGACY = {
    "FloatTensor": dt.float32, "DoubleTensor": dt.float64, "HalfTensor": dt.float16,
    "BFloat16Tensor": dt.bfloat16, "ByteTensor": dt.uint8, "CharTensor": dt.int8,
    "ShortTensor": dt.int16, "IntTensor": dt.int32, "LongTensor": dt.int64,
    "BoolTensor": dt.bool_, "ComplexFloatTensor": dt.complex64,
    "ComplexDoubleTensor": dt.complex128,
}
legacy_types = {name: tensortype(name, (), {
    "__module__": "torch", "__slots__": (), "dtype": dtype, "layout": fm.strided,
    "is_cuda": False, "__doc__": f"Constructor of {dtype} tensors."})
    for name, dtype in LEGACY.items()}
legacy_names = {dtype: f"torch.{name}" for name, dtype in LEGACY.items()} | {
    dtype: f"torch.{dt.spoken(dtype)}Tensor" for dtype in dt.ALL if dtype not in LEGACY.values()}


def new(self, *args, device=None):
    """A legacy constructor of this tensor's dtype."""
    return legacy(type(self), self.sig.dtype, args, device)


def install() -> None:
    Tensor.new = new
