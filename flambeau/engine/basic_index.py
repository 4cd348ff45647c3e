"""The view that integers, slices, None and Ellipsis ask for in x[...], planned once."""

from __future__ import annotations

from ..devices.cpu.remember import keep
from ..ops.declare import View
from ..ops.shape import bounds
from .eager import engine, new_table
from .views import take, view_plan

_plans = new_table()  # (signature, index made hashable) -> plan
#: the plan that is known of one, else None. (A method of an imported name would be looked up anew,
#: and bound, in every call.)
known_view = _plans.get


def _walk(x, key):
    """Shape, strides and offset of what a tuple of integers, slices, None and Ellipsis asks for."""
    taken = len(key) - key.count(None) - key.count(Ellipsis)
    if taken > x.rank:
        raise too_many(x)
    shape, strides, offset, d = [], [], 0, 0
    sizes, steps = tuple(x.shape), x.strides
    for k in key:
        if k is None:
            shape.append(1)
            strides.append(sizes[d] * steps[d] if d < x.rank else 1)
        elif k is Ellipsis:
            skipped = x.rank - taken
            shape.extend(sizes[d:d + skipped])
            strides.extend(steps[d:d + skipped])
            d, taken = d + skipped, x.rank
        elif type(k) is int:
            n = sizes[d]
            if not -n <= k < n:
                raise IndexError(f"index {k} is out of bounds for dimension {d} with size {n}; the "
                                 f"tensor has shape {tuple(x.shape)}")
            offset += k % n * steps[d]
            d += 1
        else:
            start, count = bounds(k[1], k[2], k[3], sizes[d])
            shape.append(count)
            strides.append(steps[d] * k[3])
            offset += start * steps[d] if count else 0
            d += 1
    return (*shape, *sizes[d:]), (*strides, *steps[d:]), offset


def too_many(x) -> IndexError:
    if not x.rank:
        return IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python to "
                          "convert a 0-dim tensor to a number")
    return IndexError(f"too many indices for tensor of dimension {x.rank}")


_NAMES = {int: "SelectBackward0", tuple: "SliceBackward0", type(None): "UnsqueezeBackward0",
          type(Ellipsis): "AliasBackward0"}


class _Basic(View):
    """The view of basic indexing; its grad_fn is called after the last thing done."""

    def __init__(self):
        super().__init__(_walk, "basic_index", method=False, function_form=False,
                         backward=lambda bound: _NAMES[type(bound["key"][-1])]
                         if bound["key"] else "AliasBackward0")
        self.engine = engine


basic = _Basic()


def run_basic(x, key):
    """The view that a key asks for."""
    plan = known_view((x.sig, key))
    if plan is None:
        plan = keep(_plans, (x.sig, key), view_plan(basic, x.sig, {"key": key}))
    return take(x, plan)


basic.run = run_basic

#: in a key, what stands for `:`, and the key of that alone
FULL = ("slice", None, None, 1)
WHOLE = (FULL,)
_PLAIN = frozenset((int, type(None), type(Ellipsis)))


def plain_key(index):
    """The key of an index of plain integers, slices, None and one Ellipsis; else None."""
    kind = type(index)
    if kind is slice:
        items = (index,)
    elif kind is tuple:
        items = index
    elif index is None or index is Ellipsis:
        return (index,)
    else:
        return None
    key, dots = [], 0
    for item in items:
        kind = type(item)
        if kind is slice:
            start, stop, step = item.start, item.stop, item.step
            if step is None:
                step = 1
            if (start is None or type(start) is int) and (stop is None or type(stop) is int) and (
                    type(step) is int and step > 0):
                key.append(("slice", start, stop, step))
            else:
                return None
        elif kind in _PLAIN:
            dots += item is Ellipsis
            key.append(item)
        else:
            return None
    return tuple(key) if dots < 2 else None
