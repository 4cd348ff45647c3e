"""Guards in words: what has to be as it was for a call to go a known way, and what is not."""

from __future__ import annotations

from types import CellType

from ..core import device as places
from ..engine.interception import module_changes
from ..engine.modes import modes
from ..engine.node import Hooked
from ..engine.tensor import Tensor
from .casting import casting
from .names import changed_name
from .phantom import HAS_NODE, IS_LEAF, state_of
from .sources import Player

_STATES = {IS_LEAF: ", which wants a gradient", HAS_NODE: ", which has been computed"}
#: so many names are told of
_FEW = 6


def guards_of(script) -> list[str]:
    """What a script is played as long as."""
    given = [_tensor(*known) for known in script.leaves if _is_tensor(known)]
    others = [repr(known)[:40] for known in script.leaves if not _is_tensor(known)]
    cells = [] if script.first is None else script.first.replay.cells
    names = [name for owner, name, *_ in (*script.scalars, *script.bound)
             if isinstance(name, str) and type(owner) is not CellType]
    grad = "on" if script.grad else "off"
    found = [f"gradients are {grad}, autocast, the default dtype and device as they were, and no "
             "attribute of a module is set"]
    if given:
        found.append(f"it is given {', '.join(given)}")
    if others:
        found.append(f"other arguments are {', '.join(others)}")
    if script.guarded:
        found.append(f"{len(script.guarded)} tensors that are always the same keep their shape, "
                     "strides, dtype and place in the graph")
    if names:
        more = f" and {len(names) - _FEW} others" if len(names) > _FEW else ""
        found.append(f"{', '.join(dict.fromkeys(names[:_FEW]))}{more} stand for what they did")
    if cells:
        found.append(f"{len(cells)} variables around it do too")
    if not script.presence.idle or script.presence.left:
        found.append("the same leaves have gradients")
    return found


def failed_guard(scripts, args, kwargs) -> str:
    """What is not as it was: of several scripts, for the one for which most is."""
    return max((_failed(script, args, kwargs) for script in scripts), key=lambda row: row[0])[1]


def _failed(script, args, kwargs) -> tuple[int, str]:
    """The first thing that is not as it was, and how many others are looked at before it."""
    if modes.grad is not script.grad:
        return 0, f"gradients are {'on' if modes.grad else 'off'}"
    if module_changes[0] != script.changes:
        return 1, "an attribute of a module was set"
    if casting() != script.casting:
        return 2, "autocast, or the default dtype, is another"
    if places.default() is not script.device:
        return 3, "the default device is another"
    leaves = script.arguments_like(args, kwargs)
    if leaves is None:
        return 4, "arguments are built in another way"
    for number, (v, known) in enumerate(zip(leaves, script.leaves, strict=True), 1):
        before = _tensor(*known) if _is_tensor(known) else repr(known)
        now = _tensor(v.sig, state_of(v)) if isinstance(v, Tensor) else repr(v)
        if now != before or isinstance(v, Tensor) is not _is_tensor(known):
            return 5, f"argument {number} is {now[:60]}, and was {before[:60]}"
    for x, sig, node in script.guarded:
        if x.sig is not sig or x.node is not node:
            now, before = _tensor(x.sig, state_of(x)), _tensor(sig, 0)
            return 6, f"a tensor that is always the same is {now} now, and was {before}"
    return 7, _late(script, leaves)


def _late(script, leaves) -> str:
    """What is looked at once arguments and tensors are as they were."""
    cells = [] if script.first is None else script.first.replay.cells
    name = changed_name(script.scalars, [
        *script.bound, *((cell, "cell_contents", value) for cell, value in cells)])
    if name is not None:
        return f"{name} stands for something else"
    if any(leaves[k] is not leaves[n] for k, n in script.again):
        return "two arguments that were the same tensor are not"
    if Hooked.leaves and script.goes_back:
        return "a leaf has hooks"
    held = () if script.presence.idle else script.presence.find(leaves)
    if held is None:
        return "a leaf has a gradient that had none, or has none any more"
    if script.overlaps.sources and not script.overlaps.hold(Player(leaves, held)):
        return "tensors share memory in another way"
    return "a leaf has lost its gradient, or somebody holds the one it has"


def difference(step, key: tuple) -> str:
    """What tells a call, by its key, from those that were made there before."""
    others = [k for k in step.branches or (step.key,) if k]
    known = next((k for k in others if k[0] is key[0]), others[0] if others else ())
    if not (known and key and hasattr(key[0], "name") and hasattr(known[0], "name")):
        return f"{_call(key)}, where {_call(known)} came before"
    name = key[0].name
    if key[0] is not known[0]:
        return f"{name}, where {known[0].name} came before"
    if key[1] is not known[1]:
        return f"{name} with gradients {'on' if key[1] else 'off'}"
    for number, (now, before) in enumerate(zip(key[2:], known[2:], strict=False), 1):
        if now != before:
            return f"{name}: argument {number} is {_part(now)}, and was {_part(before)}"
    return f"{name}, with a number that is part of the code, or more arguments"


def _call(key) -> str:
    """A call that is no op's."""
    if key and hasattr(key[0], "name"):
        return key[0].name
    return key[0] if key and isinstance(key[0], str) else "the way back"


def _part(part) -> str:
    """What an argument is known by."""
    if type(part) is int:
        return "computed in the segment" if part >= 0 else "a tensor met before"
    if part is float:
        return "a number"
    if type(part) is tuple and len(part) > 1 and hasattr(part[0], "shape"):
        return _tensor(*part[:2])
    if type(part) is tuple and len(part) == 2 and isinstance(part[0], type):
        return repr(part[1])[:60]
    return "another collection" if type(part) is tuple else repr(part)[:60]


def _is_tensor(known) -> bool:
    """Whether what a script remembers of an argument is (signature, state)."""
    return type(known) is tuple and len(known) == 2 and hasattr(known[0], "strides")


def _tensor(sig, state: int) -> str:
    strides = "" if sig.contiguous else f" with strides {tuple(sig.strides)}"
    return f"{sig.dtype.name}{list(sig.shape)}{strides}{_STATES.get(state, '')}"
