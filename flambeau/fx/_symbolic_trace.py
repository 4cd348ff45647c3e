"""Symbolic tracing: running a module or function on proxies, to get the graph of what it does."""

from __future__ import annotations

import collections
import functools
import inspect
import math
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import flambeau
from flambeau import Tensor, _function_mode, nn
from flambeau.fx._codegen import _PyTreeCodeGen, _PyTreeInfo
from flambeau.fx._watching import is_fx_tracing, proxies_in, watched, wrap
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import _assert, base_types
from flambeau.fx.proxy import ParameterProxy, TracerBase
from flambeau.utils import _pytree as pytree

__all__ = ["PH", "PHBase", "ProxyableClassMeta", "Tracer", "is_fx_tracing", "symbolic_trace",
           "wrap"]


class PHBase:
    """Marks a place in `concrete_args` that stays an input."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()

def _assert_is_none(value: Any, message: str) -> None:
    assert value is None, message


class ProxyableClassMeta(type):
    """Lets instances of a class be made of proxies: making one is a node."""

    def __init__(cls, name: str, bases: tuple, attrs: dict[str, Any]) -> None:
        super().__init__(name, bases, attrs)
        cls._is_proxyable = True

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = cls.__new__(cls)  # type: ignore[call-overload]
        if not is_fx_tracing():
            cls.__init__(made, *args, **kwargs)  # type: ignore[misc]
            return made
        found = proxies_in((args, kwargs))
        if not found:
            cls.__init__(made, *args, **kwargs)  # type: ignore[misc]
            return made
        return found[0].tracer.create_proxy("call_function", cls, args, kwargs)


class Tracer(TracerBase):
    """Makes the graph of a module or function; a subclass decides what is a leaf, and what not.

    >>> class Deep(Tracer):
    ...     def is_leaf_module(self, m, module_qualified_name):
    ...         return False
    >>> print(Deep().trace(nn.Sequential(nn.Tanh())))
    graph():
        %input_1 : [num_users=1] = placeholder[target=input]
        %tanh : [num_users=1] = call_function[target=torch.tanh](args = (%input_1,), kwargs = {})
        return tanh
    """

    root: nn.Module

    def __init__(self, autowrap_modules: tuple[ModuleType, ...] = (math,),
                 autowrap_functions: tuple[Callable, ...] = (),
                 param_shapes_constant: bool = False) -> None:
        super().__init__()
        #: functions that are recorded wherever the program has a name for them
        self.autowrapped = {id(value) for module in autowrap_modules
                            for name, value in vars(module).items()
                            if not name.startswith("_") and callable(value)}
        self.autowrapped.update(map(id, autowrap_functions))
        self.autowrap_modules = autowrap_modules
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[nn.Module, str] = {}
        self.module_stack = collections.OrderedDict()

    # -- what subclasses change ------------------------------------------------------------------

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a call of a module is a node; others are traced through.

        Those that the library comes with are, but for `Sequential`.
        """
        inside = m.__module__.startswith(("flambeau.nn", "flambeau.ao.nn"))
        return inside and not isinstance(m, nn.Sequential)

    def path_of_module(self, mod: nn.Module) -> str:
        """Where a module is below the root."""
        found = self.submodule_paths.get(mod)
        if found is None:
            raise NameError("module is not installed as a submodule")
        return found

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: tuple,
                    kwargs: dict[str, Any]) -> Any:
        """What a call of a module gives: a proxy for a leaf, else what its forward does."""
        path = self.path_of_module(m)
        self.module_stack[path] = (path, type(m))
        try:
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            del self.module_stack[path]

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What reading a parameter, buffer or module of a module gives."""
        if isinstance(attr_val, nn.Parameter):
            return self._of_tensor(attr_val, self._parameter_names, parameter_proxy_cache, True)
        if self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            return self._of_tensor(attr_val, self._buffer_names, parameter_proxy_cache, False)
        return attr_val

    def _of_tensor(self, value: Tensor, names: dict[int, str], cache: dict[str, Any],
                   parameter: bool) -> Any:
        name = names.get(id(value))
        if name is None:
            return value
        if name not in cache:
            make = None
            if self.param_shapes_constant and parameter:
                make = lambda node: ParameterProxy(self, node, name, value)  # noqa: E731
            cache[name] = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=make)
        return cache[name]

    def create_arg(self, a: Any) -> Any:
        """An argument as nodes have them; tensors become attributes of the root."""
        if isinstance(a, nn.Parameter) and id(a) in self._parameter_names:
            return self.create_node("get_attr", self._parameter_names[id(a)], (), {})
        if isinstance(a, nn.Parameter):
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Tensor):
            return self.create_node("get_attr", self._name_of_tensor(a), (), {})
        if isinstance(a, nn.Module) and a in self.submodule_paths:
            return self.create_node("get_attr", self.submodule_paths[a], (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            parts = tuple(self.create_arg(each) for each in a)
            return self.create_node("call_function", type(a), parts, {})
        if isinstance(type(a), ProxyableClassMeta) or isinstance(a, flambeau.Generator):
            return self.create_node("get_attr", self._constant(a, "_opaque_obj"), (), {})
        return super().create_arg(a)

    def _name_of_tensor(self, a: Tensor) -> str:
        name = self._tensor_names.get(id(a))
        if name is None:
            name = self._tensor_names[id(a)] = self._constant(a, "_tensor_constant")
            self._kept.append(a)
        return name

    def _constant(self, value: Any, prefix: str) -> str:
        """Keep a value on the root under a new name."""
        name = self.get_fresh_qualname(prefix)
        setattr(self.root, name, value)
        return name

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name like this one that the root does not have yet."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    # -- tracing ---------------------------------------------------------------------------------

    def trace(self, root: nn.Module | Callable[..., Any],
              concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of what a module or function does, whatever its inputs are.

        Inputs named in `concrete_args` have the values given there.
        """
        is_module = isinstance(root, nn.Module)
        self.root = root if isinstance(root, nn.Module) else nn.Module()
        function: Any = root
        if is_module:
            name = self.traced_func_name
            assert hasattr(type(root), name), (
                f"traced_func_name={name} doesn't exist in {type(root).__name__}")
            function = getattr(type(root), name)
        self._collect()
        self.graph = Graph(tracer_cls=type(self))
        with _function_mode.listening(self._programs(function)), watched(self, function):
            called, args = self.create_args_for_root(function, is_module, concrete_args)
            result = called(*args)
            self.create_node("output", "output", (self.create_arg(result),), {},
                             type_expr=_annotations(called).get("return"))
        return self.graph

    def _collect(self) -> None:
        """Names of all that belongs to the root, before reading it is watched."""
        root = self.root
        self.submodule_paths = {m: name for name, m in root.named_modules()}
        self._parameter_names = {id(p): name for name, p in root.named_parameters()}
        self._buffer_names = {id(b): name for name, b in root.named_buffers()}
        self._tensor_names: dict[int, str] = {}
        self._kept: list[Tensor] = []  # so that an id stays one tensor's
        for path, module in root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    self._tensor_names.setdefault(id(value), f"{path}.{name}".lstrip("."))

    def _programs(self, function: Any) -> list[dict[str, Any]]:
        """The globals of the modules that the traced code was written in."""
        homes = {type(m).__module__ for m in self.submodule_paths} & sys.modules.keys()
        spaces = [vars(sys.modules[home]) for home in homes]
        spaces.append(getattr(inspect.unwrap(function), "__globals__", {}))
        return list({id(space): space for space in spaces
                     if not str(space.get("__name__")).startswith("flambeau.")}.values())

    def create_args_for_root(self, root_fn: Callable[..., Any], is_module: bool,
                             concrete_args: dict[str, Any] | None = None) -> tuple[Any, list]:
        """What is to be called, and the proxies to call it with; each becomes an input."""
        function: Any = inspect.unwrap(root_fn)
        assert isinstance(function, FunctionType), f"Expected FunctionType, got {type(function)}"
        code = function.__code__
        names = list(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount])
        args: list[Any] = []
        if is_module:
            if not names:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
            names = names[1:]
        signature = inspect.signature(function)
        places = _Places(self, signature, _annotations(function), concrete_args or {})
        args += [places.proxy(name) for name in names]
        if code.co_kwonlyargcount or code.co_flags & (
                inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            if code.co_flags & inspect.CO_VARARGS:
                args.append(places.proxy(f"*{code.co_varnames[len(names) + is_module]}"))
            if code.co_flags & inspect.CO_VARKEYWORDS:
                last = code.co_argcount + code.co_kwonlyargcount + bool(
                    code.co_flags & inspect.CO_VARARGS)
                args.append(places.proxy(f"**{code.co_varnames[last]}"))
            root_fn = _by_place(function)
        if not concrete_args:
            return root_fn, args
        flat, spec = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in spec.children_specs):
            return root_fn, args
        codegen = _PyTreeCodeGen(_PyTreeInfo(
            [name for name in signature.parameters if not (is_module and name == "self")],
            spec if not is_module else _without_first(spec), None))
        self.graph._codegen = codegen

        def flattened(*leaves: Any):
            result = root_fn(*pytree.tree_unflatten(list(leaves), spec))
            out, out_spec = pytree.tree_flatten(result)
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return out

        return flattened, flat


def _without_first(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    return pytree.TreeSpec(spec.type, spec.context, spec.children_specs[1:])


def _annotations(function: Any) -> dict[str, Any]:
    """The types that a function says its parameters have; texts where they cannot be read."""
    try:
        return inspect.get_annotations(inspect.unwrap(function), eval_str=True)
    except Exception:  # whatever a name in there may raise
        return dict(getattr(function, "__annotations__", {}))


def _by_place(function: Any) -> Callable[..., Any]:
    """A function whose parameters are all given by place, `*args` and `**kwargs` as one each."""
    code: CodeType = function.__code__
    variable = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    count = code.co_argcount + code.co_kwonlyargcount + sum(
        bool(code.co_flags & each) for each in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS))
    return FunctionType(
        code.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0,
                     co_flags=code.co_flags & ~variable),
        function.__globals__, function.__name__, None, function.__closure__)


class _Places:
    """Makes the inputs of a graph from the parameters of a function."""

    def __init__(self, tracer: Tracer, signature: inspect.Signature, types: dict[str, Any],
                 concrete: dict[str, Any]) -> None:
        self.tracer, self.signature, self.types, self.concrete = (
            tracer, signature, types, concrete)
        self.count = 0

    def proxy(self, name: str) -> Any:
        """The proxy of a parameter, or its given value, with what is left open in it."""
        if name in self.concrete:
            self.count = 0
            return pytree.tree_map(functools.partial(self._concrete, name), self.concrete[name])
        if name.startswith("*"):
            default: tuple = ()
        else:
            value = self.signature.parameters[name].default
            default = () if value is inspect.Parameter.empty else (value,)
        return self.tracer.create_proxy("placeholder", name, default, {},
                                        type_expr=self.types.get(name))

    def _concrete(self, name: str, value: Any) -> Any:
        self.count += 1
        default = self.signature.parameters[name].default
        given = () if default is inspect.Parameter.empty else (default,)
        out = self.tracer.create_proxy("placeholder", f"{name}_{self.count}", given, {})
        if isinstance(value, PHBase):
            return out
        message = f"{name} has been specialized to have value {value} but got another value"
        if value is None:
            self.tracer.create_proxy("call_function", _assert_is_none, (out, message), {})
        elif isinstance(value, base_types):
            _assert(out == value, message)
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized "
                "function. It is up to the user to make sure that your inputs match the inputs you "
                "specialized the function with.", stacklevel=2)
        return value


def symbolic_trace(root: nn.Module | Callable[..., Any],
                   concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A module whose graph says what another module, or a function, does.

    >>> traced = symbolic_trace(lambda x, y: flambeau.relu(x) + y)
    >>> print(traced.code.strip())
    def forward(self, x, y):
        relu = torch.relu(x);  x = None
        add = relu + y;  relu = y = None
        return add
    >>> traced(flambeau.tensor([-1.0, 1.0]), 2)
    tensor([2., 3.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, nn.Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


