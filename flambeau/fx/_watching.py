"""What is different while a trace is under way: modules, their parameters, wrapped functions."""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from flambeau import _function_mode, nn
from flambeau.fx.node import map_aggregate
from flambeau.fx.proxy import Proxy

#: (globals of a module, name) -> what is wrapped there
_wrapped: dict[tuple[int, str], dict[str, Any]] = {}
#: how many traces are under way
_tracing = [0]


def is_fx_tracing() -> bool:
    """Whether a trace is under way."""
    return bool(_tracing[0])


def wrap(fn_or_name: Any) -> Any:
    """Have calls of a function, by name or as a decorator, recorded as one node.

    To be called where the function has its name: at the top of a module.

    >>> import flambeau
    >>> @flambeau.fx.wrap
    ... def twice(x):
    ...     return 2 * x if x > 0 else x
    >>> flambeau.fx.symbolic_trace(lambda x: twice(x) + 1).graph.find_nodes(
    ...     op="call_function", target=twice)
    [twice]
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


def proxies_in(values: Any) -> list[Proxy]:
    """The proxies in nested containers."""
    found: list[Proxy] = []
    map_aggregate(values, lambda a: found.append(a) if isinstance(a, Proxy) else None)
    return found


@contextlib.contextmanager
def watched(tracer: Any, function: Any) -> Iterator[None]:
    """Inside, calls of modules, reads of what they hold and wrapped functions go to a tracer.

    Other threads go on as ever.
    """
    modules, wrapper = _Modules(tracer), _Wrapper(tracer)
    modules.wrapper = wrapper
    try:
        wrapper.begin(getattr(inspect.unwrap(function), "__globals__", None))
        modules.begin()
        _tracing[0] += 1
        yield
    finally:
        _tracing[0] -= 1
        modules.end()
        wrapper.end()


class _Modules:
    """Stands between modules and those who call and read them."""

    wrapper: _Wrapper

    def __init__(self, tracer: Any) -> None:
        self.tracer, self.thread = tracer, threading.get_ident()
        self.proxies: dict[str, Any] = {}  # of parameters, by name: each is read once
        self.own: dict[str, Any] = {}      # what Module itself had: that of a trace around this one

    def begin(self) -> None:
        names = ("__call__", "__getattribute__")
        self.own = {name: vars(nn.Module)[name] for name in names if name in vars(nn.Module)}
        self.call, self.read = nn.Module.__call__, nn.Module.__getattribute__
        for name, form in zip(names, (self._called(), self._read()), strict=True):
            setattr(nn.Module, name, form)

    def end(self) -> None:
        del nn.Module.__getattribute__
        for name, form in self.own.items():
            setattr(nn.Module, name, form)

    def _called(self) -> Callable[..., Any]:
        call = self.call

        def module_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self.thread:
                return call(module, *args, **kwargs)
            self.wrapper.look(getattr(module.forward, "__globals__", None))
            forward = functools.partial(call, module)
            return self.tracer.call_module(module, forward, args, kwargs)

        return module_call

    def _read(self) -> Callable[..., Any]:
        read, stand_ins = self.read, _function_mode.names.stand_ins

        def module_read(module: nn.Module, name: str) -> Any:
            value = read(module, name)
            held = read(module, "__dict__")
            if name not in held or threading.get_ident() != self.thread:
                return value
            if name in held.get("_registered", ()):
                return self.tracer.getattr(name, value, self.proxies)
            return stand_ins.get(id(value), value)  # an activation that is kept as a function

        return module_read


class _Wrapper:
    """Puts functions in the place of those that are wrapped, and puts them back."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer
        self.before: list[tuple[dict[str, Any], str, Any]] = []
        self.seen: set[int] = set()

    def begin(self, own: dict[str, Any] | None) -> None:
        for (_, name), space in list(_wrapped.items()):
            self._replace(space, name, space.get(name, getattr(builtins, name, None)))
        self.look(own)
        for module in self.tracer.autowrap_modules:
            self.look(vars(module))

    def look(self, space: dict[str, Any] | None) -> None:
        """Replace the functions in a space that are recorded wherever they are."""
        if space is None or id(space) in self.seen:
            return
        self.seen.add(id(space))
        for name, value in list(space.items()):
            if id(value) in self.tracer.autowrapped and not name.startswith("_"):
                self._replace(space, name, value)

    def _replace(self, space: dict[str, Any], name: str, value: Any) -> None:
        if value is None or hasattr(value, "_fx_recorded"):
            return
        self.before.append((space, name, space.get(name, self)))
        space[name] = _recorded(value)

    def end(self) -> None:
        for space, name, value in reversed(self.before):
            if value is self:  # it was a builtin
                del space[name]
            else:
                space[name] = value


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose calls are nodes if there is a proxy among the arguments."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found = proxies_in((args, kwargs))
        if not found:
            return function(*args, **kwargs)
        made = found[0].tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    wrapped._fx_recorded = True  # type: ignore[attr-defined]
    return wrapped
