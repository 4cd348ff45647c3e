"""What a Tensor is besides its ops: properties, conversions, Python's own protocols."""

from __future__ import annotations

import weakref
from operator import attrgetter
from typing import Any

from ..core import dtype as dt
from ..core import formats as fm
from ..core import printing
from ..core import shape as sh
from ..core.device import META
from ..core.lazily import np
from ..ops.declare import registry
from . import backward as bw
from . import convert, copying, inplace
from .caller import warn_caller
from .eager import engine
from .interception import PLAIN, intercepted, lazily_traced, plainly, settle, tracers
from .modes import gradient_watchers, modes
from .node import Edge, Handle, named
from .storage import adopt
from .tensor import LEAF, Tensor, base_of, keep_room, make, offset_of, room_of
from .writing import changed


class Printing:
    """Options of printing, as set_printoptions leaves them."""

    options = printing.PROFILES["default"]


# -- properties ----------------------------------------------------------------------------------


def _grad(x: Tensor):
    try:
        return x._grad
    except AttributeError:
        if x.node is not None and x.node is not LEAF and not x.__dict__.get("_retains"):
            warn_caller(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). If you indeed want "
                "the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the "
                "non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you "
                "access the leaf Tensor instead.")
        return None


def _set_grad(x: Tensor, value) -> None:
    if value is not None:
        if not isinstance(value, Tensor):
            raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type "
                            f"{type(value).__name__}")
        if value is x:
            raise RuntimeError("can't assign Variable as its own grad")
        if tuple(value.sig.shape) != tuple(x.sig.shape):
            raise RuntimeError(f"assigned grad has data of a different size: "
                               f"{tuple(value.sig.shape)} for a tensor of {tuple(x.sig.shape)}")
        if value.sig.dtype is not x.sig.dtype:
            raise RuntimeError(f"attempting to assign a gradient with dtype '{value.sig.dtype}' to "
                               f"a tensor with grad_dtype '{x.sig.dtype}'.")
    for tell in gradient_watchers:
        tell((x,))
    x._grad = value


def _grad_fn(x: Tensor):
    return named(_node_of(x))


def _node_of(x: Tensor):
    settle("grad_fn")
    node = x.node
    if node is None or node is LEAF:
        return None
    return node.node if type(node) is Edge else node


def _data(x: Tensor) -> Tensor:
    if lazily_traced() or type(x) not in PLAIN:
        return x.detach()
    if x.node is None or x.node is LEAF or x.sig.device is META:
        return inplace.detached(x)
    # Of a result: what is written there is no change that a way back is told of, as in PyTorch.
    return make(x.sig, adopt(x.mem.address, room_of(x), x.mem), x.ptr)


def _set_data(x: Tensor, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    if lazily_traced():
        plainly(_set_data, x, value)
        return
    x.sig, x.mem, x.ptr = value.sig, value.mem, value.ptr
    keep_room(x, value)


def version_of(x: Tensor) -> int:
    """How often the bytes under a tensor were changed."""
    settle("_version")
    if x.mem.version < 0:
        raise RuntimeError("Inference tensors do not track version counter.")
    return x.mem.version


PROPERTIES: dict[str, tuple[Any, Any]] = {
    "_cdata":        (id, None),  # tells whether two names are of one tensor
    "shape":         (attrgetter("sig.shape"), None),
    "dtype":         (attrgetter("sig.dtype"), None),
    "device":        (attrgetter("sig.device"), None),
    "ndim":          (attrgetter("sig.rank"), None),
    "itemsize":      (attrgetter("sig.dtype.itemsize"), None),
    "nbytes":        (attrgetter("sig.nbytes"), None),
    "requires_grad": (lambda x: x.node is not None, lambda x, v: inplace.set_requires_grad(x, v)),
    "grad":          (_grad, _set_grad),
    "grad_fn":       (_grad_fn, None),
    "is_leaf":       (lambda x: x.node is None or x.node is LEAF, None),
    "data":          (_data, _set_data),
    "_base":         (base_of, None),
    "_version":      (version_of, None),
    "retains_grad":  (lambda x: x.__dict__.get("_retains", False), None),
    "output_nr":     (lambda x: x.node.number if type(x.node) is Edge else 0, None),
    "is_cpu":        (lambda x: x.sig.device.type == "cpu", None),
    "is_cuda":       (lambda x: False, None),
    "is_meta":       (lambda x: x.sig.device is META, None),
    "is_sparse":     (lambda x: False, None),
    "is_quantized":  (lambda x: False, None),
    "is_mps":        (lambda x: False, None),
    "is_nested":     (lambda x: False, None),
    "is_sparse_csr": (lambda x: False, None),
    "is_xpu":        (lambda x: False, None),
    "is_xla":        (lambda x: False, None),
    "is_ipu":        (lambda x: False, None),
    "is_maia":       (lambda x: False, None),
    "is_mkldnn":     (lambda x: False, None),
    "is_vulkan":     (lambda x: False, None),
    "is_mtia":       (lambda x: False, None),
    "layout":        (lambda x: fm.strided, None),
    "grad_dtype":    (lambda x: x.sig.dtype, None),
    "name":          (lambda x: None, None),
}


# -- methods -------------------------------------------------------------------------------------


def size(x: Tensor, dim=None):
    """The shape, or the size of one dimension."""
    if type(dim) is int:
        try:
            return _element(x.sig.shape, dim)
        except IndexError:
            _dim(x, dim)
    return x.sig.shape if dim is None else x.sig.shape[_dim(x, dim)]


#: an element of a shape, whose own way to give one looks out for slices
_element = tuple.__getitem__


def stride(x: Tensor, dim=None):
    """Steps between neighbours, in elements."""
    return x.sig.strides if dim is None else x.sig.strides[_dim(x, dim)]


def _dim(x: Tensor, dim: int) -> int:
    if not x.sig.rank:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return sh.wrap_dim(dim, x.sig.rank)


class _Backward:
    """Going back, as traces see it: a call like that of an op."""

    name = "backward"

    @staticmethod
    def run(x: Tensor, gradient, retain: bool) -> None:
        if not bw.go_back(x, gradient, retain):
            bw.backward(x, None if gradient is None else [gradient], retain)


BACKWARD = _Backward()


def backward(x: Tensor, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Accumulate the gradient of this tensor into the leaves it was computed from."""
    if tracers and x.sig.tag is not None and inputs is None and not create_graph and (
            tracers[-1].backward(BACKWARD, x, gradient, bool(retain_graph))):
        return
    if inputs is None and not create_graph and not tracers and (
            bw.go_back(x, gradient, bool(retain_graph))):
        return
    bw.backward(x, None if gradient is None else [gradient], retain_graph, create_graph, inputs)


def copy_(x: Tensor, source, non_blocking: bool = False) -> Tensor:
    """Copy the elements of a tensor, or of what it can be broadcast from, into this one."""
    if copying.copy_plainly(x, source):
        changed(x)
        return x
    if tracers and tracers[-1].lazy:
        found = tracers[-1](copying.COPY, (x, source), {})
    else:
        found = None if tracers else intercepted(copying.COPY, (x, source), {})
    return copying.copy_(x, source, non_blocking) if found is None else found[0]


def detach_(x: Tensor) -> Tensor:
    if lazily_traced():
        return plainly(detach_, x)
    x.node = None
    return x


def requires_grad_(x: Tensor, requires_grad: bool = True) -> Tensor:
    inplace.set_requires_grad(x, requires_grad)
    return x


def retain_grad(x: Tensor) -> None:
    """Keep the gradient of a tensor that is not a leaf."""
    settle("retain_grad")
    if x.node is None:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if x.node is LEAF or x.__dict__.get("_retains"):
        return
    x.__dict__["_retains"] = True
    number = x.node.number if type(x.node) is Edge else 0
    _node_of(x).more("retain")[number] = weakref.ref(x)


def register_hook(x: Tensor, hook):
    """Call hook(grad) when this tensor's gradient is known; what it returns replaces it."""
    settle("register_hook")
    if x.node is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if x.node is LEAF:
        return Handle(x.__dict__.setdefault("_hooks", {}), hook)
    number = x.node.number if type(x.node) is Edge else 0
    return Handle(_node_of(x).more("result_hooks").setdefault(number, {}), hook)


def register_post_accumulate_grad_hook(x: Tensor, hook):
    """Call hook(tensor) after a leaf's gradient was accumulated."""
    settle("register_post_accumulate_grad_hook")
    if x.node is not LEAF:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return Handle(x.__dict__.setdefault("_accumulated", {}), hook)


def numpy(x: Tensor, *, force: bool = False) -> np.ndarray:
    """The elements as an array that shares memory."""
    if force:
        x = x.detach()
    elif x.node is not None:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use "
                           "tensor.detach().numpy() instead.")
    if x.sig.dtype is dt.bfloat16:
        raise TypeError("Got unsupported ScalarType BFloat16")
    if x.sig.device is META:
        raise TypeError("can't convert meta device type tensor to numpy.")
    return convert.raw_array(x)


def to_array_protocol(x: Tensor, dtype=None, copy=None):
    """What numpy asks for; the memory is shared unless another dtype is wanted."""
    found = numpy(x)
    if dtype is not None and found.dtype != dtype:
        if copy is False:
            raise ValueError(f"__array__: a copy is needed to give {x.sig.dtype} as {dtype}")
        return found.astype(dtype)
    return found.copy() if copy else found


def from_array_protocol(x: Tensor, array, context=None, return_scalar=False):
    """What numpy computed of this tensor, as a tensor again."""
    return convert.copied(array.astype(np.uint8) if array.dtype == bool else array)


def length(x: Tensor) -> int:
    if not x.sig.rank:
        raise TypeError("len() of a 0-d tensor")
    return x.sig.shape[0]


def iterate(x: Tensor):
    if not x.sig.rank:
        raise TypeError("iteration over a 0-d tensor")
    return iter(engine.unbind(x))


def truth(x: Tensor) -> bool:
    if x.sig.numel == 0:
        raise RuntimeError("Boolean value of Tensor with no values is ambiguous; its shape is "
                           f"{tuple(x.sig.shape)}")
    if x.sig.numel > 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous; its "
                           f"shape is {tuple(x.sig.shape)}: use .any() or .all()")
    return bool(convert.item(x))


def contains(x: Tensor, element) -> bool:
    if isinstance(element, (Tensor, bool, int, float, complex)):
        return bool(registry["any"].run(registry["eq"].run(x, element)))
    raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
                       f"{type(element)}.")


def to_index(x: Tensor) -> int:
    if x.sig.numel != 1 or x.sig.dtype.kind not in "biu":
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(convert.item(x))


def show(x: Tensor, *, tensor_contents=None) -> str:
    """The tensor as torch prints it."""
    node = _node_of(x)
    on_meta = x.sig.device is META
    kind = type(x)
    parameter = kind.__name__ == "Parameter"
    array = None if on_meta else convert.to_array(inplace.detached(x))
    text = printing.tensor_text(
        array, x.sig.dtype.name, options=Printing.options,
        default_dtype_name=dt.default_float().name, shape=tuple(x.sig.shape),
        device="meta" if on_meta else None, requires_grad=x.node is LEAF,
        grad_fn_name=None if node is None else node.name().rpartition("::")[2],
        is_parameter=parameter,
        prefix="tensor(" if kind is Tensor or parameter else f"{kind.__name__}(")
    tangent = x.__dict__.get("_tangent") if x.sig.tag is not None else None  # of forward mode
    return text if tangent is None else f"{text[:-1]}, tangent={show(tangent)})"


def format_one(x: Tensor, spec: str) -> str:
    if x.sig.rank == 0 and x.sig.device is not META:
        return format(convert.item(x), spec) if spec else str(convert.item(x))
    return object.__format__(x, spec) if spec else show(x)


def element_number(kind):
    def convert_to(x: Tensor):
        if x.sig.numel != 1:
            raise ValueError("only one element tensors can be converted to Python scalars; "
                             f"{kind.__name__}() was given one of shape {tuple(x.sig.shape)}")
        found = convert.item(x)
        if type(found) is complex and kind is not complex:
            if found.imag:
                raise RuntimeError(f"value cannot be converted to type {kind.__name__} without "
                                   f"overflow: {found} has an imaginary part")
            found = found.real
        return kind(found)
    return convert_to


def dim_order(x: Tensor, *, ambiguity_check=False) -> tuple[int, ...]:
    """The dimensions from the slowest in memory to the fastest."""
    return tuple(sorted(range(x.sig.rank), key=lambda d: -x.sig.strides[d]))


def reversed_first(x: Tensor):
    """The tensor with its first dimension in reverse."""
    return x if x.sig.rank == 0 else x.flip(0)


def no_deletion(x: Tensor, index):
    raise TypeError("Tensor does not support deleting items")


def positive(x: Tensor) -> Tensor:
    if x.sig.dtype is dt.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return x


METHODS = {
    "dim_order": dim_order, "__reversed__": reversed_first, "__delitem__": no_deletion,
    "__pos__": positive, "const_data_ptr": lambda x: x.ptr, "is_nonzero": truth,
    "size": size, "stride": stride, "dim": lambda x: x.sig.rank, "ndimension": lambda x: x.sig.rank,
    "numel": lambda x: x.sig.numel, "nelement": lambda x: x.sig.numel,
    "element_size": lambda x: x.sig.dtype.itemsize, "data_ptr": lambda x: x.ptr,
    "storage_offset": offset_of,
    "backward": backward, "detach_": detach_, "requires_grad_": requires_grad_,
    "retain_grad": retain_grad, "register_hook": register_hook,
    "register_post_accumulate_grad_hook": register_post_accumulate_grad_hook,
    "item": convert.item, "tolist": convert.tolist, "numpy": numpy,
    "is_floating_point": lambda x: x.sig.dtype.kind == "f",
    "is_complex": lambda x: x.sig.dtype.kind == "c",
    "is_signed": lambda x: x.sig.dtype.is_signed,
    "is_inference": lambda x: x.mem.version < 0,
    "is_conj": lambda x: False, "is_neg": lambda x: False,
    "resolve_conj": lambda x: x, "resolve_neg": lambda x: x,
    "is_pinned": lambda x, device=None: False,
    "get_device": lambda x: -1, "has_names": lambda x: False,
    "__len__": length, "__iter__": iterate, "__bool__": truth, "__contains__": contains,
    "__index__": to_index, "__int__": element_number(int), "__float__": element_number(float),
    "__complex__": element_number(complex), "__array__": to_array_protocol,
    "__array_wrap__": from_array_protocol, "__array_priority__": 1000,
    "__repr__": show, "__str__": show, "__format__": format_one, "__hash__": lambda x: id(x),
}


def install() -> None:
    for name, (read, write) in PROPERTIES.items():
        setattr(Tensor, name, property(read, write))
    for name, method in METHODS.items():
        if callable(method) and getattr(method, "__name__", "") == "<lambda>":
            method.__name__ = name
        setattr(Tensor, name, method)
    copying.install_copy(copy_)


def grad_mode() -> bool:
    return modes.grad
