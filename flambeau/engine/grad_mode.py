"""Switches of recording: contexts, and decorators of functions and generators."""

from __future__ import annotations

import functools

from ..core.signature import is_generator
from .modes import modes


class Switch:
    """A context that is a decorator too: the decorated function runs inside a fresh context."""

    def clone(self):
        return type(self)()

    def __call__(self, function):
        if isinstance(function, type):
            function.__init__ = self(function.__init__)
            return function
        if is_generator(function):
            return _around_generator(self.clone, function)

        @functools.wraps(function)
        def inside(*args, **kwargs):
            with self.clone():
                return function(*args, **kwargs)

        return inside


def _around_generator(context, function):
    """The body of a generator runs inside the context, and whoever consumes it does not."""

    @functools.wraps(function)
    def inside(*args, **kwargs):
        generator = function(*args, **kwargs)
        try:
            with context():
                item = generator.send(None)
            while True:
                try:
                    answer = yield item
                except GeneratorExit:
                    with context():
                        generator.close()
                    raise
                except BaseException as error:
                    with context():
                        item = generator.throw(error)
                else:
                    with context():
                        item = generator.send(answer)
        except StopIteration as end:
            return end.value

    return inside


class BareSwitch(Switch):
    """A switch without arguments can decorate without parentheses."""

    def __new__(cls, function=None):
        made = super().__new__(cls)
        return made if function is None else made(function)


class no_grad(BareSwitch):
    """Nothing inside is recorded.

    >>> with no_grad():
    ...     is_grad_enabled()
    False
    """

    __module__ = "torch.autograd.grad_mode"

    def __enter__(self) -> None:
        self.before = modes.grad
        modes.grad = False

    def __exit__(self, *_) -> None:
        modes.grad = self.before


class enable_grad(BareSwitch):
    """What is computed inside is recorded, even within no_grad."""

    __module__ = "torch.autograd.grad_mode"

    def __enter__(self) -> None:
        self.before = modes.grad
        modes.grad = True

    def __exit__(self, *_) -> None:
        modes.grad = self.before


class set_grad_enabled(Switch):
    """Recording on or off, from now on or, as a context, until its end."""

    __module__ = "torch.autograd.grad_mode"

    def __init__(self, mode: bool):
        self.before, self.mode = modes.grad, mode
        modes.grad = mode

    def clone(self):
        return set_grad_enabled(self.mode)

    def __call__(self, function):
        modes.grad = self.before  # it decorates: it was not meant for the code around
        return super().__call__(function)

    def __enter__(self) -> None:
        modes.grad = self.mode

    def __exit__(self, *_) -> None:
        modes.grad = self.before

    def __repr__(self) -> str:
        return f"{self.__module__}.set_grad_enabled(mode={self.mode})"


class inference_mode(Switch):
    """Nothing inside is recorded, and what is made inside can never be."""

    __module__ = "torch.autograd.grad_mode"

    def __new__(cls, mode=True):
        made = super().__new__(cls)
        if isinstance(mode, bool):
            return made
        made.mode = True
        return made(mode)

    def __init__(self, mode: bool = True):
        self.mode = mode

    def clone(self):
        return inference_mode(self.mode)

    def __enter__(self) -> None:
        self.before = modes.grad, modes.inference
        modes.inference = self.mode
        modes.grad = modes.grad if not self.mode and not self.before[1] else not self.mode

    def __exit__(self, *_) -> None:
        modes.grad, modes.inference = self.before


def is_grad_enabled() -> bool:
    """Whether what is computed now is recorded."""
    return modes.grad


def is_inference_mode_enabled() -> bool:
    """Whether this runs inside inference_mode."""
    return modes.inference


class set_multithreading_enabled(Switch):
    """Kept for programs that set it: going back uses the threads of its kernels."""

    __module__ = "torch.autograd.grad_mode"

    def __init__(self, mode: bool):
        self.before, self.mode = modes.multithreading, mode
        modes.multithreading = mode

    def clone(self):
        return set_multithreading_enabled(self.mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_) -> None:
        modes.multithreading = self.before
