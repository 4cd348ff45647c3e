"""What stands between brackets, item by item: a basic view, and tensors for its dimensions."""

from __future__ import annotations

from ..core import dtype as dt
from ..core.device import META
from ..core.lazily import np
from .basic_index import FULL, too_many
from .convert import from_data, from_lists
from .eager import engine
from .tensor import Tensor

#: stands for dimensions that a mask covers besides its first
MISSING = object()


def _items(index) -> tuple:
    if type(index) is tuple:
        return index
    if isinstance(index, tuple):
        return tuple(index)
    if isinstance(index, list) and len(index) < 32 and any(
            isinstance(i, (Tensor, list, tuple, slice, np.ndarray)) or i is None or i is Ellipsis
            for i in index):
        return tuple(index)
    return (index,)


def _whole(value):
    """A bound of a slice."""
    if value is None or type(value) is int:
        return value
    try:
        return value.__index__()
    except AttributeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method"
                        ) from None


def parsed(x: Tensor, index):
    """(key of the basic view, None or one tensor or None for each of that view's dimensions).

    A mask of several dimensions keeps them all in the view; its tensor then stands at the first of
    them, followed by as many marks.
    """
    key: list = []
    tensors: list = []
    simple = True
    for item in _items(index):
        kind = type(item)
        if kind is int:
            key.append(item)
        elif kind is slice:
            step = _whole(item.step)
            step = 1 if step is None else step
            if step <= 0:
                raise ValueError("slice step cannot be zero" if step == 0 else
                                 "step must be greater than zero")
            key.append(("slice", _whole(item.start), _whole(item.stop), step))
            tensors.append(None)
        elif item is None:
            key.append(None)
            tensors.append(None)
        elif item is Ellipsis:
            if Ellipsis not in key:  # a second one stands for nothing
                key.append(Ellipsis)
                tensors.append(Ellipsis)
        else:
            simple = _one_more(x, item, key, tensors) and simple
    return tuple(key), None if simple else _placed(x, tuple(key), tensors)


def _one_more(x: Tensor, item, key: list, tensors: list) -> bool:
    """Add what is no plain integer, slice, None or Ellipsis; says whether it was an integer."""
    if isinstance(item, (bool, np.bool_)):
        key.append(None)
        tensors.append(engine.full((1,) if item else (0,), 0, dt.int64))
        return False
    if isinstance(item, (np.ndarray, list, tuple, range)):
        item = _tensor_of(item)
    if not isinstance(item, Tensor):
        if hasattr(item, "__index__"):
            key.append(item.__index__())
            return True
        if isinstance(item, str):
            raise TypeError("new(): invalid data type 'str'")
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte "
                         f"Variables are valid indices (got {type(item).__name__})")
    dtype = item.sig.dtype
    if dtype in (dt.bool_, dt.uint8):
        if item.sig.rank == 0:
            return _one_more(x, bool(engine.item(item)), key, tensors)
        key += [FULL] * item.sig.rank
        tensors += [item] + [MISSING] * (item.sig.rank - 1)
        return False
    if dtype.kind not in "i" or dtype in (dt.int8, dt.int16):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors, not "
                         f"{dtype}")
    if item.sig.rank == 0 and item.sig.device is not META:
        key.append(int(engine.item(item)))
        return True
    key.append(FULL)
    tensors.append(item)
    return False


def _tensor_of(item) -> Tensor:
    found = from_lists(item, None) if type(item) is list or type(item) is tuple else None
    if found is None:
        found = from_data(item)
    if found.sig.numel == 0 and not isinstance(item, np.ndarray):
        found = engine.cast(found, dt.int64)
    return found


def _placed(x: Tensor, key: tuple, tensors: list) -> list:
    """One entry for each dimension of the basic view, Ellipsis filled in."""
    taken = sum(1 for k in key if k is not None and k is not Ellipsis)
    if taken > x.sig.rank:
        raise too_many(x.sig)
    rest = [None] * (x.sig.rank - taken)
    if Ellipsis not in key:
        return tensors + rest
    at = next(i for i, t in enumerate(tensors) if t is Ellipsis)
    return tensors[:at] + rest + tensors[at + 1:]


def index_tensors(x: Tensor, indices) -> list:
    """The tensors of a call of index_put, one or None per dimension."""
    _, tensors = parsed(x, tuple(slice(None) if i is None else i if not (
        isinstance(i, Tensor) and i.sig.rank == 0) else engine.reshape(i, (1,)) for i in indices))
    return [None] * x.sig.rank if tensors is None else tensors


engine.index_tensors = index_tensors
