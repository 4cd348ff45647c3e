"""Mistakes with modules: forward() called by hand, and parameters that a module does not know."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import weakref
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau import Tensor, nn

from .mistake import Mistake, Place
from .watch import HOME

_OWN = frozenset(vars(nn.Module()))


class Outermost(Mistake):
    """A mistake that has to know which modules a program calls, and what is in them."""

    def __init__(self, watch):
        super().__init__(watch)
        self.called: dict[int, weakref.ref] = {}
        self.names: dict[int, str] = {}     # of parameters

    def on_forward(self, module: Any, outermost: bool) -> None:
        known = self.called.get(id(module))
        if outermost and flambeau.is_grad_enabled() and (known is None or known() is not module):
            self.called[id(module)] = weakref.ref(module)
            self.names.update((id(p), f"{type(module).__name__}.{name}")
                              for name, p in module.named_parameters())

    def parameters(self) -> Iterator[Tensor]:
        """Those of all modules that were called and are still there."""
        for reference in list(self.called.values()):
            module = reference()
            if module is not None:
                yield from module.parameters()

    def name_of(self, parameter: Tensor) -> str:
        """What its module calls it, or else what it looks like."""
        return self.names.get(id(parameter), f"one of shape {tuple(parameter.shape)}")


class ForwardCalled(Mistake):
    title = "forward() is called, not the module"
    why = ("Calling the module runs forward() and all hooks around it, on which profilers, "
           "summaries and many libraries rely; forward() by itself runs none.")
    wrong = """\
prediction = model.forward(x)
"""
    right = """\
prediction = model(x)
"""

    def __init__(self, watch):
        super().__init__(watch)
        self.seen: set = set()

    def on_call(self, function: Any, args: tuple, kwargs: dict, result: Any) -> None:
        frame = sys._getframe()
        while frame is not None and frame.f_back is not None:
            caller = frame.f_back
            if frame.f_code.co_name == "forward" and (
                    not caller.f_code.co_filename.startswith(HOME)):
                self._look(frame, caller)
            frame = caller

    def _look(self, frame: Any, caller: Any) -> None:
        key = caller.f_code, caller.f_lineno
        if key in self.seen:
            return
        self.seen.add(key)
        module = frame.f_locals.get("self")
        if isinstance(module, nn.Module) and caller.f_locals.get("self") is not module:
            self.found(f"{type(module).__name__}.forward is called here by itself.",
                       Place(caller.f_code.co_filename, caller.f_lineno))


class Unregistered(Mistake):
    title = "parameters that the module does not know"
    why = ("A module finds parameters and modules that are attributes of its own. Those in a list "
           "or a dict, and tensors that are no nn.Parameter, are missing from parameters(), so no "
           "optimizer changes them, and from state_dict(), so they are not saved.")
    wrong = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 2)]
        self.scale = torch.ones(2, requires_grad=True)

    def forward(self, x):
        return self.layers[1](self.layers[0](x)) * self.scale

Net()(x)
"""
    right = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.layers[1](self.layers[0](x)) * self.scale

Net()(x)
"""

    def __init__(self, watch):
        super().__init__(watch)
        self.looked: set[int] = set()

    def on_forward(self, module: Any, outermost: bool) -> None:
        if not outermost or id(module) in self.looked:
            return
        self.looked.add(id(module))
        registered = {id(p) for p in (*module.parameters(), *module.modules())}
        for inner in module.modules():
            for name, value in vars(inner).items():
                what = None if name in _OWN else _missed(value, registered)
                if what:
                    self.found(f"{type(inner).__name__}.{name} {what}.",
                               _assignment(type(inner), name) or self.watch.place())


def _missed(value: Any, registered: set[int]) -> str | None:
    """What of an attribute a module does not see."""
    if isinstance(value, Tensor):
        missed = value.requires_grad and value.is_leaf and id(value) not in registered
        return "is a tensor that learns, but no nn.Parameter" if missed else None
    kind = type(value)
    if kind not in (list, tuple, dict):
        return None
    for part in value.values() if kind is dict else value:
        if isinstance(part, (nn.Module, nn.Parameter)) and id(part) not in registered:
            held = "modules" if isinstance(part, nn.Module) else "parameters"
            wanted = {"modules": "nn.Module", "parameters": "nn.Parameter"}[held]
            box = "Dict" if kind is dict else "List"
            return f"is a {kind.__name__} of {held}; make it an {wanted}{box}"
    return None


def _assignment(cls: type, name: str) -> Place | None:
    """Where a class assigns an attribute."""
    try:
        lines, first = inspect.getsourcelines(cls)
        file = inspect.getsourcefile(cls)
    except (OSError, TypeError):
        return None
    for node in ast.walk(ast.parse(textwrap.dedent("".join(lines)))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and (
                node.attr == name):
            return Place(file or "", first + node.lineno - 1)
    return Place(file or "", first)
