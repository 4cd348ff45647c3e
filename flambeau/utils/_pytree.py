"""Nested containers as a list of leaves and a description of the rest: torch.utils._pytree's names.

>>> leaves, spec = tree_flatten({"a": [1, 2], "b": (3,)})
>>> leaves
[1, 2, 3]
>>> tree_unflatten([x * 10 for x in leaves], spec)
{'a': [10, 20], 'b': (30,)}
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from typing import Any, NamedTuple

from flambeau.return_types import all_return_types

PyTree = Any
Context = Any


class NodeDef(NamedTuple):
    """How a container is taken apart and put together."""

    flatten_fn: Any    # value -> (children, context)
    unflatten_fn: Any  # (children, context) -> value
    flatten_with_keys_fn: Any = None  # value -> ((key, child) pairs, context)


def _of_mapping(make):
    return NodeDef(lambda d: (list(d.values()), list(d)),
                   lambda children, keys: make(zip(keys, children, strict=True)))


def _dict_flatten(d) -> tuple[list, Context]:
    return list(d.values()), list(d)


def _dict_unflatten(values, context: Context) -> dict:
    return dict(zip(context, values, strict=False))


def _of_default(d):
    return list(d.values()), (d.default_factory, list(d))


#: type -> how it is taken apart; others are leaves
SUPPORTED_NODES: dict[Any, NodeDef] = {
    list:        NodeDef(lambda x: (x, None), lambda children, _: list(children)),
    tuple:       NodeDef(lambda x: (list(x), None), lambda children, _: tuple(children)),
    dict:        _of_mapping(dict),
    OrderedDict: _of_mapping(OrderedDict),
    defaultdict: NodeDef(_of_default, lambda children, context: defaultdict(
        context[0], zip(context[1], children, strict=True))),
    deque:       NodeDef(lambda x: (list(x), x.maxlen), lambda children, most: deque(
        children, maxlen=most)),
    namedtuple:  NodeDef(lambda x: (list(x), type(x)), lambda children, kind: kind(*children)),
}  # fmt: skip
SUPPORTED_NODES.update(dict.fromkeys(all_return_types, NodeDef(
    lambda x: (list(x), type(x)), lambda children, kind: kind(children))))


def register_pytree_node(cls, flatten_fn, unflatten_fn, *, flatten_with_keys_fn=None,
                         **_serialization) -> None:
    """Let instances of a class be taken apart too."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node


class TreeSpec:
    """What is left of a tree without its leaves."""

    def __init__(self, type, context, children_specs):
        self.type, self.context, self.children_specs = type, context, list(children_specs)
        self.num_leaves = 1 if type is None else sum(c.num_leaves for c in self.children_specs)
        self.num_children = len(self.children_specs)

    @property
    def num_nodes(self) -> int:
        return 1 + sum(c.num_nodes for c in self.children_specs)

    def is_leaf(self) -> bool:
        return self.type is None

    def unflatten(self, leaves) -> PyTree:
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree) -> list:
        """The parts of a tree that stand where this one has leaves."""
        if self.is_leaf():
            return [tree]
        kind = _kind(tree)
        if kind is not self.type:
            raise ValueError(f"Node type mismatch; expected {self.type}, but got {type(tree)}.")
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        if len(children) != self.num_children or context != self.context:
            raise ValueError(f"Node mismatch; expected {self.num_children} children and "
                             f"{self.context!r}, but got {len(children)} and {context!r}.")
        return [leaf for spec, child in zip(self.children_specs, children, strict=True)
                for leaf in spec.flatten_up_to(child)]

    def __eq__(self, other):
        return isinstance(other, TreeSpec) and (self.type, self.context, self.children_specs) == (
            other.type, other.context, other.children_specs)

    def __hash__(self):
        return hash((self.type, self.num_leaves, self.num_children))

    def __repr__(self) -> str:
        if self.is_leaf():
            return "*"
        return f"TreeSpec({self.type.__name__}, {self.context!r}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """The description of one leaf."""

    def __init__(self):
        super().__init__(None, None, [])


def _kind(tree):
    """The type a tree is taken apart as, or None for a leaf."""
    kind = type(tree)
    if kind in SUPPORTED_NODES:
        return kind
    return namedtuple if isinstance(tree, tuple) and hasattr(kind, "_fields") else None


def _get_node_type(tree) -> type:
    """The type a tree would be taken apart as, a leaf or not."""
    return _kind(tree) or type(tree)


def tree_is_leaf(tree, is_leaf=None) -> bool:
    """Whether there is nothing to take apart."""
    return (is_leaf is not None and is_leaf(tree)) or _kind(tree) is None


def tree_flatten(tree, is_leaf=None) -> tuple[list, TreeSpec]:
    """(leaves, description)"""
    leaves: list = []
    return leaves, _flatten(tree, leaves, is_leaf)


_LEAF = LeafSpec()


def _flatten(tree, leaves: list, is_leaf) -> TreeSpec:
    kind = None if is_leaf is not None and is_leaf(tree) else _kind(tree)
    if kind is None:
        leaves.append(tree)
        return _LEAF
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(c, leaves, is_leaf) for c in children])


def tree_unflatten(leaves, treespec: TreeSpec) -> PyTree:
    """A tree of this description with these leaves."""
    leaves = list(leaves)
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten: Expected `treespec` to be instance of TreeSpec but got "
                        f"{type(treespec)}.")
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: `leaves` has length {len(leaves)} but the spec refers "
                         f"to a pytree that holds {treespec.num_leaves} items")
    return _unflatten(iter(leaves), treespec)


def _unflatten(leaves, spec: TreeSpec):
    if spec.is_leaf():
        return next(leaves)
    children = [_unflatten(leaves, child) for child in spec.children_specs]
    return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


def tree_iter(tree, is_leaf=None):
    """The leaves, one after another."""
    yield from tree_flatten(tree, is_leaf)[0]


def tree_leaves(tree, is_leaf=None) -> list:
    leaves: list = []
    _gather(tree, leaves, is_leaf)
    return leaves


def _gather(tree, leaves: list, is_leaf) -> None:
    """The leaves alone; of what a tree is besides, nothing is made."""
    kind = None if is_leaf is not None and is_leaf(tree) else _kind(tree)
    if kind is None:
        leaves.append(tree)
        return
    for child in SUPPORTED_NODES[kind].flatten_fn(tree)[0]:
        _gather(child, leaves, is_leaf)


def tree_structure(tree, is_leaf=None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None) -> PyTree:
    """A tree of func(leaf, *leaves at the same place of the other trees)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return tree_unflatten([func(*each) for each in zip(leaves, *others, strict=True)], spec)


def tree_map_(func, tree, *rests, is_leaf=None) -> PyTree:
    """The same for what func does; the tree is returned as it was."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(kinds, func, tree=None, is_leaf=None) -> PyTree:
    """tree_map for leaves of some types; others stay."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kinds) else leaf, tree,
                    is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None) -> bool:
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None) -> bool:
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(kinds, pred, tree, is_leaf=None) -> bool:
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, kinds))


def tree_any_only(kinds, pred, tree, is_leaf=None) -> bool:
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, kinds))


# -- where leaves are ------------------------------------------------------------------------------


@dataclass(frozen=True)
class SequenceKey:
    """A place in a list or a tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence):
        return sequence[self.idx]


@dataclass(frozen=True)
class MappingKey:
    """A key of a dictionary."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping):
        return mapping[self.key]


@dataclass(frozen=True)
class GetAttrKey:
    """The name of an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj):
        return getattr(obj, self.name)


KeyEntry = Any
KeyPath = tuple


def _dict_flatten_with_keys(d) -> tuple[list[tuple], Context]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _keyed_children(tree, kind) -> list[tuple]:
    """The children of a container, each with its key."""
    node = SUPPORTED_NODES[kind]
    if node.flatten_with_keys_fn is not None:
        return list(node.flatten_with_keys_fn(tree)[0])
    children, _ = node.flatten_fn(tree)
    if kind in (dict, OrderedDict, defaultdict):
        return _dict_flatten_with_keys(tree)[0]
    if kind is namedtuple:
        keys: list = [GetAttrKey(name) for name in tree._fields]
    elif isinstance(tree, (list, tuple, deque)):
        keys = [SequenceKey(i) for i in range(len(children))]
    else:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {kind}. Please pass a "
                         "flatten_with_keys_fn argument to register_pytree_node.")
    return list(zip(keys, children, strict=True))


def tree_leaves_with_path(tree, is_leaf=None) -> list[tuple[KeyPath, Any]]:
    """Every leaf with the keys that lead to it."""
    if tree_is_leaf(tree, is_leaf):
        return [((), tree)]
    return [((key, *path), leaf) for key, child in _keyed_children(tree, _kind(tree))
            for path, leaf in tree_leaves_with_path(child, is_leaf)]


def tree_flatten_with_path(tree, is_leaf=None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """(every leaf with the keys that lead to it, description)"""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func, tree, *rests, is_leaf=None) -> PyTree:
    """A tree of what `func(keys, leaf, ...)` gives."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return tree_unflatten([func(path, leaf, *more) for (path, leaf), *more
                           in zip(found, *others, strict=True)], spec)


def keystr(kp: KeyPath) -> str:
    """Keys as they are written behind a variable."""
    return "".join(map(str, kp))


def key_get(obj, kp: KeyPath):
    """What keys lead to."""
    for key in kp:
        obj = key.get(obj)
    return obj
