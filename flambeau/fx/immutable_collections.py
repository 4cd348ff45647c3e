"""Lists and dicts that cannot be changed: what the arguments of a node are made of.

A node knows who uses it, so arguments change by being assigned, never from inside.
"""

from __future__ import annotations

from typing import Any, NoReturn

from flambeau.utils import _pytree as pytree

__all__ = ["immutable_dict", "immutable_list"]

_ADVICE = """If you are attempting to modify the kwargs or args of a torch.fx.Node object,
instead create a new copy of it and assign the copy to the node:

    new_args = ...  # copy and mutate args
    node.args = new_args"""


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(f"{type(self).__name__!r} object does not support mutation. {_ADVICE}")


class immutable_list(list):
    """A list that stays as it is."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self):
        return type(self), (tuple(self),)


class immutable_dict(dict):
    """A dict that stays as it is."""

    __delitem__ = __ior__ = __setitem__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self):
        return type(self), (dict(self),)


pytree.register_pytree_node(
    immutable_list, lambda x: (list(x), None), lambda children, _: immutable_list(children))
pytree.register_pytree_node(
    immutable_dict, lambda x: (list(x.values()), list(x)),
    lambda children, keys: immutable_dict(zip(keys, children, strict=True)))
