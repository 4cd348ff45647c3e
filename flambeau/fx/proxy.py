"""Proxies: stand-ins for values, which record what is done with them."""

from __future__ import annotations

import collections
import dis
import enum
import inspect
import operator
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import flambeau
from flambeau import Tensor, _function_mode, overrides
from flambeau.fx._codegen import MAGIC
from flambeau.fx._naming import public_names
from flambeau.fx._whole import told
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node, Target, _assert, base_types, map_aggregate, map_arg

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError",
           "TracerBase"]

_ITERATED = ("Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
             "loop or as a *args or **kwargs function argument. See the torch.fx docs on "
             "pytorch.org for a more detailed explanation of what types of control flow can be "
             "traced, and check out the Proxy docstring for help troubleshooting Proxy iteration "
             "errors")

#: functions that call a method and do nothing else, in torch too
METHODS = {"torch.nn.functional.sigmoid": "sigmoid", "torch.nn.functional.tanh": "tanh"}
#: operators of tensors that are told as the methods they are
OPERATORS = {"__eq__": "eq", "__pow__": "pow"}

_HOME = os.path.dirname(str(flambeau.__file__)) + os.sep


class TraceError(ValueError):
    """Python asked for something that only a value could tell."""


class TracerBase:
    """Turns what is done with proxies into nodes of `graph`."""

    graph: Graph
    record_stack_traces: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    #: names of modules that are being called, outermost first, each with its place and type
    module_stack: collections.OrderedDict[str, tuple[str, Any]]

    def create_node(self, kind: str, target: Target, args: tuple, kwargs: dict[str, Any],
                    name: str | None = None, type_expr: Any = None) -> Node:
        """A node in the graph, whose arguments are nodes and plain values already."""
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if getattr(self, "module_stack", None):
            node.meta["nn_module_stack"] = collections.OrderedDict(self.module_stack)
        return node

    def proxy(self, node: Node) -> Proxy:
        """The proxy that stands for a node."""
        return Proxy(node, self)

    def create_proxy(self, kind: str, target: Target, args: tuple, kwargs: dict[str, Any],
                     name: str | None = None, type_expr: Any = None,
                     proxy_factory_fn: Callable[[Node], Proxy] | None = None) -> Proxy:
        """Record a call with these arguments, proxies among them; the proxy of its result."""
        node = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs),
                                name, type_expr)
        found = proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)
        if self.record_stack_traces and not found.node.stack_trace:
            found.node.stack_trace = "".join(_program_frames().format())
        return found

    def create_arg(self, a: Any) -> Any:
        """An argument as nodes have them: proxies become nodes, containers what is in them."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            parts = [self.create_arg(each) for each in a]
            return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
        if isinstance(a, list):
            return [self.create_arg(each) for each in a]
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(each) for key, each in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(each) for each in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*(self.create_arg(each) for each in (a.start, a.stop, a.step)))
        if is_dataclass(a) and not isinstance(a, type):
            inside = {each.name: self.create_arg(getattr(a, each.name)) for each in fields(a)}
            return self.create_node("call_function", type(a), (), inside)
        if isinstance(a, (*base_types, enum.Enum)) or a is inspect.Signature.empty:
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, key: Any) -> Any:
        def refuse(node: Node) -> None:
            raise RuntimeError("Keys for dictionaries used as an argument cannot contain a Node. "
                               f"Got key: {made}")

        made = self.create_arg(key)
        map_arg(made, refuse)
        return made

    def to_bool(self, obj: Proxy) -> bool:
        """Asked when a proxy decides a branch: there is no saying."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Asked when a proxy is iterated: only unpacking says how many are wanted."""
        wanted = _unpacked(sys._getframe(2))
        if wanted is None:
            raise TraceError(_ITERATED)
        return (operator.getitem(obj, k) for k in range(wanted))

    def keys(self, obj: Proxy) -> Any:
        """Asked for the keys of a proxy, as `**` does."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Records at the end of a graph that is there."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.module_stack = collections.OrderedDict()


class Proxy:
    """Stands for the value of a node: what is done with it becomes nodes.

    Operators, methods, attributes and functions that are given one are recorded, and give others.
    Python itself cannot be: a branch on a proxy, or a loop over it, raises.

    >>> import flambeau as torch
    >>> graph = torch.fx.Graph()
    >>> x = Proxy(graph.placeholder("x"))
    >>> torch.relu(x + 1).sum(dim=0)
    Proxy(sum_1)
    >>> print(graph.python_code("self").src.strip())
    def forward(self, x):
        add = x + 1;  x = None
        relu = torch.relu(add);  add = None
        sum_1 = relu.sum(dim = 0);  relu = sum_1 = None
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    __hash__ = object.__hash__  # a proxy is compared by recording it, and is itself all the same

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Attribute:
        if name in ("tracer", "node"):  # not made yet: while it is copied
            raise AttributeError(name)
        return Attribute(self, name)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state

    def __deepcopy__(self, memo: dict) -> Proxy:
        made = Proxy.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and (found := _asserted(sys._getframe(1), self)) is not None:
            return found
        return self.tracer.to_bool(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __len__(self) -> int:
        raise RuntimeError("'len' is not supported in symbolic tracing by default. If you want "
                           "this call to be recorded, please call torch.fx.wrap('len') at module "
                           "scope")

    def keys(self) -> Any:
        """What `**` asks for."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, func: Any, types: tuple, args: tuple = (),
                           kwargs: dict[str, Any] | None = None) -> Proxy:
        kwargs = kwargs or {}
        found: list[Proxy] = []
        map_aggregate((args, kwargs), lambda a: found.append(a) if isinstance(a, Proxy) else None)
        tracer = found[0].tracer
        assert all(each.tracer is tracer for each in found), "proxies of several tracers are mixed"
        if _is_method(func):
            method = OPERATORS.get(func.__name__, func.__name__)
            return tracer.create_proxy("call_method", method, args, kwargs)
        func = getattr(func, "original", func)
        name = public_names().get(id(func))
        if name in METHODS:
            return tracer.create_proxy("call_method", METHODS[name], args, kwargs)
        args, kwargs = told(name, args, kwargs)
        return tracer.create_proxy("call_function", func, args, kwargs,
                                   name=tracer.graph._target_to_str(func))


class Attribute(Proxy):
    """An attribute of a proxy; a node only if it is used other than by being called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy(
                "call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter whose shape is known while its values are not."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Tensor) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    def size(self, *args: Any) -> Any:
        return self.param.size(*args)

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


# -- operators -----------------------------------------------------------------------------------


def _operator(function: Callable, reflected: bool = False) -> Callable:
    def recorded(self: Proxy, *others: Any) -> Any:
        args = (*others, self) if reflected else (self, *others)
        tracer = self.tracer
        return tracer.create_proxy("call_function", function, args, {})

    recorded.__name__ = function.__name__
    return recorded


#: operators that a proxy answers on the right of something else too
REFLECTED = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift",
             "and_", "or_", "xor")

for _name in MAGIC:
    _bare, _function = _name.rstrip("_"), getattr(operator, _name)
    setattr(Proxy, f"__{_bare}__", _operator(_function))
    if _name in REFLECTED:
        setattr(Proxy, f"__r{_bare}__", _operator(_function, reflected=True))


def _is_method(func: Any) -> bool:
    """Whether what was called is a method of Tensor."""
    if isinstance(func, _function_mode.Seen):
        return func.home == _function_mode.HOME
    return id(func) not in public_names() and overrides.is_tensor_method_or_property(func)


# -- looking at who asks ---------------------------------------------------------------------------


#: instructions between those that say what a frame is about to do
_NO_STEPS = ("CACHE", "TO_BOOL", "NOT_TAKEN")


def _unpacked(frame: Any) -> int | None:
    """Into how many names the frame is about to unpack what it asks for, if it is."""
    instructions = {each.offset: each for each in dis.get_instructions(frame.f_code)}
    asking = instructions.get(frame.f_lasti)
    return asking.argval if asking is not None and asking.opname == "UNPACK_SEQUENCE" else None


def _asserted(frame: Any, condition: Proxy) -> bool | None:
    """True, once recorded, if the frame asks for the sake of an `assert` alone; else None."""
    ahead = [each for each in dis.get_instructions(frame.f_code)
             if each.offset >= frame.f_lasti and each.opname not in _NO_STEPS]
    if ahead and ahead[0].opname == "COMPARE_OP":  # which asks itself, from 3.13 on
        del ahead[0]
    if len(ahead) < 3:
        return None
    jump, error, said = ahead[:3]
    jumps = jump.opname.startswith("POP_JUMP") and jump.opname.endswith("IF_TRUE")
    if not jumps or "assertion" not in f"{error.opname} {error.argrepr}".lower():
        return None
    _assert(condition, said.argval if said.opname == "LOAD_CONST" else None)
    return True


def _program_frames() -> traceback.StackSummary:
    """The frames of the program that is traced: those of the library say nothing."""
    return traceback.StackSummary.from_list(
        [each for each in traceback.extract_stack() if not each.filename.startswith(_HOME)])
