"""Memory formats and layouts: how the dimensions of a tensor lie in memory, as torch names them."""

from __future__ import annotations

from . import shape as sh


class _Named:
    """A singleton that prints as torch prints it."""

    __slots__ = ("name",)

    _known: dict[str, _Named] = {}

    def __init__(self, name: str):
        self.name = name
        self._known[name] = self

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self):
        return (named, (self.name,))


class memory_format(_Named):
    """The order in which a dense tensor's dimensions lie in memory."""

    __slots__ = ()
    __module__ = "torch"


class layout(_Named):
    """How elements are stored: strided, or by their indices."""

    __slots__ = ()
    __module__ = "torch"


def named(name: str) -> _Named:
    return _Named._known[name]


contiguous_format = memory_format("contiguous_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
preserve_format = memory_format("preserve_format")
MEMORY_FORMATS = (contiguous_format, channels_last, channels_last_3d, preserve_format)

strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")
LAYOUTS = (strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged)

#: layouts of compressed rows or columns, of elements or of blocks
COMPRESSED = (sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)
BY_ROWS, BLOCKED = (sparse_csr, sparse_bsr), (sparse_bsr, sparse_bsc)


def spoken(given: layout) -> str:
    """What torch's messages call a layout."""
    if given is sparse_coo:
        return "Sparse"
    return "".join(part.capitalize() for part in given.name.split("_"))


#: format -> (rank it is for, dimensions from slowest to fastest)
ORDERS = {
    channels_last:    (4, (0, 2, 3, 1)),
    channels_last_3d: (5, (0, 2, 3, 4, 1)),
}  # fmt: skip


def strides_in_order(shape, order) -> tuple[int, ...]:
    """Dense strides with the dimensions from slowest to fastest in this order."""
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


def strides_of(shape, wanted: memory_format, strides=None) -> tuple[int, ...]:
    """Strides of a tensor of this shape in a format; `strides` are those to preserve."""
    if wanted in ORDERS:
        rank, order = ORDERS[wanted]
        if len(shape) != rank:
            raise RuntimeError(f"required rank {rank} tensor to use {wanted.name} format")
        return strides_in_order(shape, order)
    if wanted is preserve_format:
        if strides is None:
            raise RuntimeError("unsupported memory format Preserve")
        if sh.is_dense(shape, strides):
            return tuple(strides)
        return sh.result_strides(tuple(shape), [(tuple(shape), tuple(strides))])
    return sh.contiguous_strides(tuple(shape))


def lies_in(shape, strides, wanted: memory_format) -> bool:
    """Whether a tensor lies in memory in this format."""
    if wanted not in ORDERS:
        return sh.is_contiguous(shape, strides)
    rank, order = ORDERS[wanted]
    if len(shape) != rank:
        return False
    return sh.is_contiguous(tuple(shape[d] for d in order), tuple(strides[d] for d in order))
