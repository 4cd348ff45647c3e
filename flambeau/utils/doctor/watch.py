"""What happens in a program, told to each mistake: calls, modules, ways back, optimizers' steps."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterable
from types import FrameType
from typing import Any

import flambeau
from flambeau import Tensor, autograd
from flambeau.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from flambeau.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from flambeau.overrides import TorchFunctionMode

from .mistake import Finding, Mistake, Place

HOME = os.path.dirname(flambeau.__file__) + os.sep
#: code that is not the program's own; between two programs the nearer one is meant
_OTHERS = (HOME, os.path.dirname(os.__file__) + os.sep, "<")
_BACKWARD = (Tensor.backward, autograd.backward)


class Watch(TorchFunctionMode):
    """Listens while it is on, in the thread that began; `findings` has what was found.

    Compiled functions run eagerly meanwhile: there is more to be seen.
    """

    def __init__(self, mistakes: Iterable[type[Mistake]]):
        super().__init__()
        self.findings: list[Finding] = []
        self.depth = 0                      # of modules that call each other
        self.mistakes = [mistake(self) for mistake in mistakes]
        self._known: dict[tuple, Finding] = {}
        self._handles: list = []
        self._thread = 0
        self._busy = False                  # with what it does itself

    def __enter__(self) -> Watch:
        self._thread = threading.get_ident()
        self._eagerly = flambeau.compiler.set_stance("force_eager")
        self._handles = [
            register_module_forward_pre_hook(self._forward),
            register_module_forward_hook(self._forwarded, always_call=True),
            register_optimizer_step_pre_hook(self._step),
            register_optimizer_step_post_hook(lambda o, *_: self._all("on_stepped", o)),
        ]
        super().__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        while self._handles:
            self._handles.pop().remove()
        self._eagerly.__exit__(*failure)
        self._all("on_end")

    def tell(self, mistake: type[Mistake], place: Place, what: str) -> None:
        """A mistake was made somewhere; it is told of once, as it was first."""
        known = self._known.get((mistake, place))
        if known is not None:
            known.times += 1
            return
        self._known[mistake, place] = finding = Finding(mistake, place, what)
        self.findings.append(finding)

    def place(self) -> Place:
        """The line of the program that is being run."""
        frame: FrameType | None = sys._getframe()
        nearest = None
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith(_OTHERS):
                place = Place(file, frame.f_lineno)
                if "site-packages" not in file:
                    return place
                nearest = nearest or place
            frame = frame.f_back
        return nearest or Place("<program>", 0)

    # -- what happens --------------------------------------------------------------------------

    def _all(self, event: str, *told: Any) -> None:
        """Tell all mistakes. One that fails sees nothing more: the program is not to suffer."""
        if self._busy or threading.get_ident() != self._thread:
            return
        self._busy = True
        try:
            for mistake in list(self.mistakes):
                try:
                    getattr(mistake, event)(*told)
                except Exception as error:
                    self.mistakes.remove(mistake)
                    warnings.warn(f"doctor: no longer looks for '{mistake.title}': "
                                  f"{type(error).__name__}: {error}", stacklevel=3)
        finally:
            self._busy = False

    def __torch_function__(self, function: Any, types: Any, args: tuple = (),
                           kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self._busy:
            return function(*args, **kwargs)
        if function in _BACKWARD:
            given = args[0] if args else kwargs.get("tensors")
            self._all("on_backward", [given] if isinstance(given, Tensor) else list(given or ()))
            result = function(*args, **kwargs)
            self._all("on_wentback")
            return result
        result = function(*args, **kwargs)
        self._all("on_call", function, args, kwargs, result)
        return result

    def _step(self, optimizer: Any, args: tuple, kwargs: dict) -> None:
        if all(given is None for given in (*args[1:], *kwargs.values())):
            self._all("on_step", optimizer)
        # else it is given a closure, which goes back itself

    def _forward(self, module: Any, args: tuple) -> None:
        if threading.get_ident() == self._thread:
            self.depth += 1
            self._all("on_forward", module, self.depth == 1)

    def _forwarded(self, module: Any, args: tuple, output: Any) -> None:
        if threading.get_ident() == self._thread and self.depth:
            self._all("on_forwarded", module, output, self.depth == 1)
            self.depth -= 1
