"""What functions that make tensors are told: sizes, dtypes, layouts, `out=`, numbers."""

from __future__ import annotations

from operator import index

from ..core import dtype as dt
from ..core import formats as fm
from ..core.lazily import np
from .modes import INFERENCE, modes
from .tensor import LEAF, Tensor
from .written_out import write_out

#: Python's own types, which torch takes for dtypes
PYTHON_TYPES = {float: dt.float64, int: dt.int64, bool: dt.bool_, complex: dt.complex128}
#: how a strided tensor becomes one of another layout; sparse layouts add themselves
layouts = {fm.strided: lambda x: x}


def as_dtype(name: str, given) -> dt.dtype:
    """A dtype, or the Python type that stands for one."""
    if isinstance(given, dt.dtype):
        return given
    found = PYTHON_TYPES.get(given) if isinstance(given, type) else None
    if found is None:
        raise TypeError(f"{name}(): argument 'dtype' must be torch.dtype, not "
                        f"{type(given).__name__}")
    return found


def sizes(name: str, given) -> tuple[int, ...]:
    """A shape from integers given one by one or as one sequence."""
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = given[0]
    for n in given:
        if type(n) is not int:
            given = [one_size(name, k, each) for k, each in enumerate(given)]
            break
    shape = tuple(given)
    if shape and min(shape) < 0:
        raise RuntimeError(f"{name}: Trying to create tensor with negative dimension {min(shape)}: "
                           f"{list(shape)}")
    return shape


def one_size(name: str, place: int, n) -> int:
    try:
        if isinstance(n, bool):
            raise TypeError
        return index(n)
    except TypeError:
        raise TypeError(f"{name}(): argument 'size' (position {place + 1}) must be tuple of ints, "
                        f"not {type(n).__name__}") from None


def finish(name: str, x: Tensor, layout=None, pin_memory=False, requires_grad=False) -> Tensor:
    """The options that most calls leave alone."""
    if pin_memory:
        raise RuntimeError(f"{name}: pin_memory=True requires a CUDA or other accelerator backend; "
                           "no pinned memory allocator is available on this system.")
    if layout is not None and layout is not fm.strided:
        x = to_layout(name, x, layout)
    if requires_grad:
        if x.sig.dtype.kind not in "fc":
            raise RuntimeError("Only Tensors of floating point and complex dtype can require "
                               "gradients")
        x.node = LEAF
    if modes.inference:
        x.mem.version = INFERENCE
    return x


def to_layout(name: str, x: Tensor, layout) -> Tensor:
    if not isinstance(layout, fm.layout):
        raise TypeError(f"{name}(): argument 'layout' must be torch.layout, not "
                        f"{type(layout).__name__}")
    if layout not in layouts:
        raise RuntimeError(f"{name}: layout {layout} is not available for new tensors")
    return layouts[layout](x)


def place_in(name: str, out: Tensor, x: Tensor, dtype) -> Tensor:
    """What was made, written into `out=`."""
    if dtype is not None and as_dtype(name, dtype) is not out.sig.dtype:
        raise RuntimeError(f"{name}: dtype {dtype} does not match dtype of out parameter "
                           f"({out.sig.dtype})")
    return write_out(name, x, (), out)


def out_dtype(name: str, dtype, out, otherwise=None):
    """The dtype to compute in: the one asked for, that of `out`, or a default."""
    if dtype is not None:
        return as_dtype(name, dtype)
    return out.sig.dtype if out is not None else otherwise or dt.default_float()


def given_size(name: str, size: tuple, named: dict) -> tuple:
    """Sizes as positional arguments or as `size=`."""
    if "size" in named:
        size = (named.pop("size"),)
    elif not size:
        raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
    elif len(size) > 1 and isinstance(size[0], (tuple, list)):
        raise TypeError(f"{name}() takes 1 positional argument but {len(size)} were given")
    if named:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")
    return size


def number(value):
    """A Python number from a number, a numpy scalar or a tensor of one element."""
    if type(value) in (int, float, bool, complex):
        return value
    if isinstance(value, (Tensor, np.generic, np.ndarray)):
        return value.item()
    return value
