"""A node of a graph: one call, input, attribute or result, and who uses it."""

from __future__ import annotations

import builtins
import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import flambeau
from flambeau import Tensor, nn
from flambeau.fx._naming import qualified_name, type_repr
from flambeau.fx.immutable_collections import immutable_dict, immutable_list

__all__ = ["Argument", "BaseArgumentTypes", "Node", "Target", "base_types", "has_side_effect",
           "map_aggregate", "map_arg"]

Target = Callable[..., Any] | str
BaseArgumentTypes = Any
Argument = Any

#: what an argument may be, besides a node and containers of them
base_types = (str, int, float, bool, complex, type(None), type(...), range, Tensor,
              flambeau.dtype, flambeau.device, flambeau.memory_format, flambeau.layout)
#: what a node may do -> whether its target is a name
OPS = {"placeholder": True, "get_attr": True, "call_module": True, "call_method": True,
       "call_function": False, "output": True}

_assert: Callable[..., Any] = vars(flambeau)["_assert"]

#: functions that are called for what they do, not for what they return; drawing moves a generator
SIDE_EFFECTS: set[Callable] = {
    _assert, operator.setitem, flambeau.set_grad_enabled, flambeau.bernoulli,
    flambeau.multinomial, flambeau.normal, flambeau.poisson, flambeau.rand, flambeau.rand_like,
    flambeau.randint, flambeau.randint_like, flambeau.randn, flambeau.randn_like,
    flambeau.randperm}


class ArgsKwargsPair(NamedTuple):
    """Arguments by place and by name."""

    args: tuple
    kwargs: dict[str, Any]


def has_side_effect(fn: Callable) -> Callable:
    """Say of a function that calls of it stay although nobody uses their results."""
    SIDE_EFFECTS.add(fn)
    return fn


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """The same nested containers with `fn` of everything in them; lists and dicts are immutable."""
    if isinstance(a, tuple):
        parts = [map_aggregate(each, fn) for each in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return immutable_list(map_aggregate(each, fn) for each in a)
    if isinstance(a, dict):
        return immutable_dict((key, map_aggregate(each, fn)) for key, each in a.items())
    if isinstance(a, slice):
        return slice(*(map_aggregate(each, fn) for each in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """The same nested containers with `fn` of every node in them."""
    return map_aggregate(a, lambda each: fn(each) if isinstance(each, Node) else each)


def nodes_in(a: Any) -> dict[Node, None]:
    """The nodes in nested containers, each once, in order."""
    found: dict[Node, None] = {}
    map_arg(a, lambda node: found.setdefault(node))
    return found


class Node:
    """One step of a graph.

    `op` says what it is, `target` of what: an input or attribute by name, a function, a method or
    a module. `users` are the nodes that have this one among their arguments.

    >>> graph = flambeau.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_function(flambeau.relu, (x,))
    >>> y.format_node()
    '%relu : [num_users=0] = call_function[target=torch.relu](args = (%x,), kwargs = {})'
    >>> x.users
    {relu: None}
    """

    _prev: Node
    _next: Node

    def __init__(self, graph: Any, name: str, op: str, target: Target, args: tuple,
                 kwargs: dict[str, Any], return_type: Any = None) -> None:
        assert op in (*OPS, "root"), f"op {op!r} is not in _legal_ops"
        if op == "call_function" and not callable(target):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                             f"{type_name(target)} but a Callable is expected")
        if OPS.get(op) and not isinstance(target, str):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                             f"{type_name(target)} but a str is expected")
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._args: tuple = ()
        self._kwargs: dict[str, Any] = {}
        self._prev = self._next = self
        self._erased = False
        self._place: tuple[int, ...] = ()
        self._set(args, kwargs)

    # -- where it stands -------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move another node of the graph to where it comes just before this one."""
        assert self.graph is x.graph, "Attempting to move a Node into a different Graph"
        if self is x:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x
        x._place = _between(before, self)

    def append(self, x: Node) -> None:
        """Move another node of the graph to where it comes just after this one."""
        if self is not x:
            self._next.prepend(x)

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def __lt__(self, other: Node) -> bool:
        return self._place < other._place

    def __le__(self, other: Node) -> bool:
        return self._place <= other._place

    def __gt__(self, other: Node) -> bool:
        return self._place > other._place

    def __ge__(self, other: Node) -> bool:
        return self._place >= other._place

    # -- arguments -------------------------------------------------------------------------------

    @property
    def args(self) -> tuple:
        """Arguments by place; assign others to change them."""
        return self._args

    @args.setter
    def args(self, args: tuple) -> None:
        self._set(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments by name; assign others to change them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self._set(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once, in order."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Change one argument by place."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Put an argument before the one in a place."""
        assert 0 <= idx <= len(self.args), \
            "insert_args index must be between 0 and len(self.args)"
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Change one argument by name."""
        self.kwargs = {**self.kwargs, key: arg}

    def _set(self, args: Any, kwargs: Any) -> None:
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._args = map_aggregate(tuple(args), lambda each: each)
        self._kwargs = map_aggregate(dict(kwargs), lambda each: each)
        self._input_nodes = nodes_in((self._args, self._kwargs))
        for node in self._input_nodes:
            node.users.setdefault(self)

    def _detach(self) -> None:
        """Use nothing any more."""
        self._set((), {})

    def replace_all_uses_with(self, replace_with: Node,
                              delete_user_cb: Callable[[Node], bool] = lambda user: True, *,
                              propagate_meta: bool = False) -> list[Node]:
        """Put another node where this one is an argument; the nodes that were changed."""
        if propagate_meta:
            assert not replace_with.meta, (
                "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but "
                "replace_with already has .meta keys")
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Put one node for another among the arguments."""
        args, kwargs = map_arg(
            (self.args, self.kwargs), lambda node: new_input if node is old_input else node)
        self._set(args, kwargs)

    def normalized_arguments(self, root: nn.Module, arg_types: tuple | None = None,
                             kwarg_types: dict | None = None,
                             normalize_to_only_use_kwargs: bool = False) -> ArgsKwargsPair | None:
        """The arguments with defaults filled in, where the signature is known; else None."""
        if self.op == "call_module":
            called: Any = root.get_submodule(str(self.target)).forward
        elif self.op == "call_function":
            called = self.target
        else:
            return None
        try:
            bound = inspect.signature(called).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return None
        if normalize_to_only_use_kwargs:
            bound.apply_defaults()
            return ArgsKwargsPair((), dict(bound.arguments))
        return ArgsKwargsPair(bound.args, bound.kwargs)

    # -- what it is ------------------------------------------------------------------------------

    @property
    def stack_trace(self) -> str | None:
        """Where it was recorded, if the tracer was asked to keep that."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it has to stay although nobody uses it."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in SIDE_EFFECTS
        if self.op == "call_module":
            owner = self.graph.owning_module
            assert owner is not None, "self.graph.owning_module not set for purity check"
            module = owner.get_submodule(str(self.target))
            return bool(getattr(module, "_is_impure", False))
        return False

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)

    def __repr__(self) -> str:
        return self.name

    @staticmethod
    def _pretty_print_target(target: Any) -> str:
        if isinstance(target, str):
            return target
        module = getattr(target, "__module__", None)
        if module in ("builtins", "_operator"):
            return f"{module.lstrip('_')}.{target.__name__}"
        return qualified_name(target)

    def format_node(self, placeholder_names: list[str] | None = None,
                    maybe_return_typename: list[str] | None = None, *,
                    include_tensor_metadata: bool = False) -> str | None:
        """The node as a line of its graph.

        With `placeholder_names`, inputs are added there and have no line; with
        `maybe_return_typename`, the type of the result is.
        """
        if self.op == "placeholder" and placeholder_names is not None:
            kind = f": {type_repr(self.type)}" if self.type else ""
            default = f"(default={self.args[0]})" if self.args else ""
            placeholder_names.append(f"%{self.target}{kind}{default}")
            return None
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_repr(self.type)}"
            return f"return {self.args[0]}"
        head = f"%{self.name} : {_annotation(self)}[num_users={len(self.users)}] = {self.op}"
        target = f"[target={self._pretty_print_target(self.target)}]"
        if self.op == "placeholder":
            return f"{head}{target}" + (f"(default={self.args[0]})" if self.args else "")
        if self.op == "get_attr":
            return head + target
        if include_tensor_metadata and "tensor_meta" in self.meta:
            target += f"[tensor_meta={self.meta['tensor_meta']}]"
        return f"{head}{target}(args = {_shown(self.args)}, kwargs = {_shown(self.kwargs)})"

    def __reduce__(self):
        raise TypeError(f"cannot pickle the node {self.name} without its graph")


def _annotation(node: Node) -> str:
    return f"{type_repr(node.type)} " if node.type else ""


def _shown(arg: Any) -> str:
    """An argument as lines of graphs show it: nodes with a mark, texts bare."""
    if isinstance(arg, list):
        return f"[{', '.join(map(_shown, arg))}]"
    if isinstance(arg, tuple):
        return f"({', '.join(map(_shown, arg))}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{key}: {_shown(value)}' for key, value in arg.items())}}}"
    return f"%{arg}" if isinstance(arg, Node) else str(arg)


def _between(before: Node, after: Node) -> tuple[int, ...]:
    """A place between two: compared as tuples, so that there always is one."""
    low, high = before._place, after._place
    if after.op == "root":
        return (low[0] + 1,) if low else (0,)
    if before.op == "root":
        return (high[0] - 1,)
    step_on, step_back = (*low[:-1], low[-1] + 1), (*high[:-1], high[-1] - 1)
    return next(each for each in (step_on, step_back, (*low, 0)) if low < each < high)


def type_name(value: Any) -> str:
    """The type of something, as messages name it."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == builtins.__name__ else (
        f"{kind.__module__}.{kind.__name__}")


def walk(root: Node, backward: bool = False) -> Iterator[Node]:
    """The nodes of a ring but for its root, those left out that are erased on the way."""
    node = root._prev if backward else root._next
    while node is not root:
        if not node._erased:
            yield node
        node = node._prev if backward else node._next


# names that programs reach for, though they are not public
_get_qualified_name = qualified_name
_type_repr = type_repr
_side_effectful_functions = SIDE_EFFECTS
_legal_ops = dict.fromkeys(OPS)
