"""The signature, interned, and the tensor: a signature over a storage, at a place in the graph."""

from __future__ import annotations

from math import prod
from operator import index
from typing import TYPE_CHECKING, Any

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import CPU, device
from .modes import INFERENCE, inferring, infers
from .storage import grow, nowhere, pool_of, takers

_INT = frozenset((int,))
_bare: Any = tuple.__new__
_item: Any = tuple.__getitem__

#: signatures are interned, and forgotten all at once when there are more than this
MAX_SIGNATURES = 50_000


class Size(tuple):
    """The shape of a tensor.

    >>> Size([2, 3]).numel()
    6
    """

    __slots__ = ()
    __module__ = "torch"

    def __new__(cls, sizes=()):
        made = _bare(cls, sizes)
        return made if _INT.issuperset(map(type, made)) else _bare(
            cls, [_one_size(k, n) for k, n in enumerate(made)])

    def numel(self) -> int:
        return prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    __str__ = __repr__

    def __getitem__(self, key):
        found = _item(self, key)
        return _bare(Size, found) if found.__class__ is tuple else found

    def __add__(self, other):
        return Size(tuple(self) + tuple(other))

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self))

    def __mul__(self, count):
        return Size(tuple(self) * count)

    __rmul__ = __mul__

    def __reduce__(self):
        return (size_of, (tuple(self),))


def _one_size(place: int, n) -> int:
    if hasattr(n, "__index__"):
        return index(n)
    raise TypeError(f"torch.Size() takes an iterable of 'int' (item {place} is "
                    f"'{type(n).__name__}')")


def size_of(sizes: tuple) -> Size:
    """A shape again, where it was sent or saved."""
    return Size(sizes)


class Signature:
    """Everything about a tensor that can change what code runs."""

    __slots__ = ("contiguous", "device", "dtype", "free", "kin", "nbytes", "numel", "plain", "pop",
                 "rank", "regular", "shape", "strides", "tag", "traced")

    dtype: dt.dtype
    device: device
    shape: Size
    strides: tuple[int, ...]
    numel: int
    nbytes: int
    rank: int
    contiguous: bool
    regular: bool  # strides are those of row-major order, also where a size is 1
    tag: object  # None, or whose business this tensor is: a trace, a subclass
    pop: Any
    free: Any  # the free list its memory comes from
    plain: Signature   # of the same tensor when nobody traces it
    traced: Signature  # and when somebody does; unset until somebody has
    kin: object  # the same for all shapes one kernel serves: contiguous, or one element repeated

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}{'' if self.contiguous else list(self.strides)}"

    def dim(self) -> int:
        return self.rank

    @property
    def ndim(self) -> int:
        return self.rank

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[sh.wrap_dim(dim, self.rank)]


_interned: dict[tuple, Signature] = {}
_pops: dict[int, Any] = {}  # what takes from a free list, made once for all whom it serves
forget_plans: list = []  # called when signatures are forgotten


def signature(dtype: dt.dtype, shape, strides=None, where: device = CPU, tag=None) -> Signature:
    """The one signature of these properties; strides are row-major unless given."""
    key = (dtype, tuple(shape), strides, where, tag)
    found = _interned.get(key)
    if found is not None:
        return found
    if not _INT.issuperset(map(type, key[1])):  # numpy's integers would stay in it for good
        key = (dtype, tuple(map(index, key[1])), strides, where, tag)
    if strides is not None and not _INT.issuperset(map(type, strides)):
        strides = tuple(map(index, strides))
        key = (dtype, key[1], strides, where, tag)
    actual = sh.contiguous_strides(key[1]) if strides is None else strides
    # A contiguous tensor has one signature however its strides came about.
    if strides is not None and actual == sh.contiguous_strides(key[1]):
        found = signature(dtype, key[1], None, where, tag)
        _interned[key] = found
        return found
    made = Signature()
    made.dtype, made.device, made.tag, made.plain = dtype, where, tag, made
    made.shape, made.strides = _bare(Size, key[1]), actual
    made.rank, made.numel = len(key[1]), prod(key[1])
    made.nbytes = made.numel * dtype.itemsize
    made.regular = strides is None
    made.contiguous = strides is None or sh.is_contiguous(key[1], actual)
    if where is CPU:
        made.free = pool_of(made.nbytes)
        made.pop = _pops.setdefault(id(made.free), made.free.pop)
    else:
        made.free, made.pop = None, nowhere
    made.kin = _kin_of(made)
    if len(_interned) > MAX_SIGNATURES:
        _interned.clear()
        for forget in forget_plans:
            forget()
    _interned[key] = made
    return made


_kins: dict[tuple, object] = {}


def _kin_of(sig: Signature):
    """What a plain tensor has in common with others of its dtype, whatever the shapes; or None."""
    if sig.device is not CPU or sig.tag is not None or sig.numel == 0 or not (
            sig.contiguous or not any(sig.strides)):
        return None
    return _kins.setdefault((sig.dtype, sig.contiguous, sig.rank == 0), object())


if TYPE_CHECKING:
    class _Assembled(type):
        """Says that methods and properties are put on the class by others."""

        def __getattr__(cls, name: str) -> Any: ...
        def __setattr__(cls, name: str, value: Any) -> None: ...
else:
    _Assembled = type


class Tensor(metaclass=_Assembled):
    """A signature over a storage. Methods are assembled from the registry."""

    __slots__ = ("__dict__", "__weakref__", "_grad", "base", "mem", "node", "ptr", "sig", "views")

    sig: Signature
    ptr: int          # address of the first element
    mem: Any          # the storage, which keeps the bytes alive
    node: Any         # None, LEAF, or the step of the graph that made this tensor
    base: Tensor      # of a view: the tensor it was taken from; else not set
    _grad: Any        # the gradient of a leaf; else not set
    views: list       # weak references to the views taken from this tensor; else not set

    __module__ = "torch"
    _has_memory = True  # not so of what stands for others

    if TYPE_CHECKING:  # properties, methods and operators are assembled from the registry
        def __getattr__(self, name: str) -> Any: ...


class _Leaf:
    """Marks a tensor that wants its gradient kept."""

    def __repr__(self) -> str:
        return "LEAF"


LEAF = _Leaf()
new = object.__new__


def make(sig: Signature, mem, ptr: int | None = None) -> Tensor:
    """A tensor over a storage, from its start unless told where."""
    t = new(Tensor)
    t.sig, t.mem, t.node = sig, mem, None
    t.ptr = mem.address if ptr is None else ptr
    return t


def empty(sig: Signature) -> Tensor:
    """A tensor over fresh memory; sig is dense."""
    try:
        mem = sig.pop()
    except IndexError:
        mem = grow(sig.nbytes)
    if inferring and infers():
        mem.version = INFERENCE
    if takers:
        takers[-1](mem, sig.nbytes)
    t = new(Tensor)  # as `make` does it, without a frame of its own
    t.sig, t.mem, t.node, t.ptr = sig, mem, None, mem.address
    return t


def base_of(x: Tensor) -> Tensor | None:
    """The tensor at the root of a chain of views, or None of one that is no view."""
    base, above = None, getattr(x, "base", None)  # to ask costs less than to catch an error
    while above is not None:
        base, above = above, getattr(above, "base", None)
    return base


def offset_of(x: Tensor) -> int:
    """Elements between the start of the storage and the first element."""
    return (x.ptr - x.mem.address) // x.sig.dtype.itemsize


def room_of(x: Tensor) -> int:
    """Bytes of the storage under a tensor: to the end of the tensor it was made for.

    Storages come in classes of sizes and do not know what was asked of them; a tensor that does
    not reach to the end of its storage, and is no view of one that does, remembers it.
    """
    base = base_of(x)
    root = x if base is None else base
    sig, start = root.sig, root.ptr - root.mem.address
    last = sum((n - 1) * s for n, s in zip(sig.shape, sig.strides, strict=True))
    reached = start + (last + 1) * sig.dtype.itemsize if sig.numel else start
    address, known = root.__dict__.get("_room", (0, 0))
    return max(known, reached) if address == root.mem.address else reached


def keep_room(x: Tensor, source: Tensor) -> None:
    """Let a tensor over the storage of another remember how much there is."""
    if hasattr(source, "base") or "_room" in source.__dict__:
        x.__dict__["_room"] = (source.mem.address, room_of(source))
