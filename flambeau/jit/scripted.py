"""Modules and functions that are scripted: Python as it is, and a program when they are saved.

What is saved is recorded from a call like the first one that was made, or like `example_inputs`; of
a module that was never called, on inputs that its first layer takes. A scripted program may branch
on values in torch, a recorded one cannot: so a model that reads values is refused, never frozen.
"""

from __future__ import annotations

import copy
import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.export.graph import mapped
from flambeau.export.record import NotRecorded, recording, refusing_reads
from flambeau.jit.annotations import ScriptModule
from flambeau.jit.program import ScriptFunction, TopLevelTracedModule, save, trace

_examples: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None,
           example_inputs: Any = None) -> Any:
    """The same function or module, which can be saved; a class as it is.

    >>> scripted = script(nn.Linear(3, 2).eval())
    >>> scripted.save("/dev/null")
    """
    if not callable(obj):
        raise RuntimeError(f"jit.script: a function, class or module is needed, not "
                           f"{type(obj).__name__}")
    if isinstance(obj, (type, RecursiveScriptModule, TopLevelTracedModule, Scripted)):
        return obj
    scripted = _twin(obj) if isinstance(obj, nn.Module) else Scripted(obj)
    for given in example_inputs or ():
        _examples[scripted] = (tuple(given) if isinstance(given, (tuple, list)) else (given,), {})
        break
    return scripted


def _seen(scripted: Any, args: tuple, kwargs: dict) -> None:
    """Keep the first inputs, to record a program from."""
    if scripted not in _examples and not recording():
        _examples[scripted] = mapped((args, kwargs), lambda a: a.detach()
                                     if isinstance(a, Tensor) else a)


class RecursiveScriptModule(ScriptModule):
    """A module that shares everything with the one it was scripted from."""

    _original: type[nn.Module]

    def __call__(self, *args: Any, **kwargs: Any):
        _seen(self, args, kwargs)
        return super().__call__(*args, **kwargs)

    @property
    def original_name(self) -> str:
        return self._original.__name__

    @property
    def code(self) -> str:
        """The source of forward."""
        return inspect.getsource(self._original.forward)

    def save(self, f: Any, _extra_files: Any = None) -> None:
        """Write the program and its weights to a file."""
        save(program_of(self), f, _extra_files)

    def __deepcopy__(self, memo: dict):
        return script(copy.deepcopy(_plain(self), memo))

    def __reduce_ex__(self, protocol: Any):
        return script, (_plain(self),)


def _plain(scripted: RecursiveScriptModule) -> nn.Module:
    """The module as it was before it was scripted."""
    original = object.__new__(scripted._original)
    original.__dict__ = scripted.__dict__
    return original


@functools.cache
def _twin_class(cls: type) -> Any:
    return type(cls.__name__, (RecursiveScriptModule, cls), {
        "_original": cls, "__module__": cls.__module__, "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__})


def _twin(module: nn.Module) -> RecursiveScriptModule:
    kind: Any = type(module)
    twin = object.__new__(_twin_class(kind))
    twin.__dict__ = module.__dict__
    return twin


class Scripted:
    """A function that was scripted."""

    def __init__(self, function: Callable):
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any):
        _seen(self, args, kwargs)
        return self._function(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None):
        return self if instance is None else functools.partial(self, instance)

    @property
    def code(self) -> str:
        """The source of the function."""
        return inspect.getsource(self._function)

    def save(self, f: Any, _extra_files: Any = None) -> None:
        """Write the program to a file."""
        save(program_of(self), f, _extra_files)


# -- recording -------------------------------------------------------------------------------------


def program_of(scripted: Any) -> TopLevelTracedModule | ScriptFunction:
    """The program of a scripted module or function, or why there is none."""
    module = isinstance(scripted, nn.Module)
    called = _plain(scripted) if module else scripted._function
    args, kwargs = _examples[scripted] if scripted in _examples else _guessed(called)
    try:
        with refusing_reads():
            program = trace(called, args, example_kwarg_inputs=kwargs, check_trace=False)
            if module and called.training:
                _check_modes(called, program, args, kwargs)
    except NotRecorded as error:
        raise RuntimeError(f"jit.save: {error}") from error
    return program


def _check_modes(module: nn.Module, program: Any, args: tuple, kwargs: dict) -> None:
    """A saved program has one mode: in training, only if it makes no difference."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        other = trace(module, args, example_kwarg_inputs=kwargs, check_trace=False)
    finally:
        for m, training in modes:
            m.training = training
    if str(other.graph) != str(program.graph):
        raise RuntimeError(f"jit.save: {type(module).__name__} does one thing in training and "
                           "another in evaluation, and a saved program can do only one: call "
                           ".eval() on it first")


def _guessed(called: Any) -> tuple[tuple, dict]:
    """Inputs that a model takes which was never called: those of its first layer, if of one."""
    wanted = [p for p in inspect.signature(getattr(called, "forward", called)).parameters.values()
              if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(wanted) == 1 and isinstance(called, nn.Module):
        state = flambeau.get_rng_state()
        before = [(b, b.clone()) for b in called.buffers()]
        for x in _inputs(called):
            try:
                with flambeau.no_grad():
                    called(x)
                return (x,), {}
            except (RuntimeError, ValueError, IndexError, TypeError):
                continue
            finally:
                flambeau.set_rng_state(state)
                with flambeau.no_grad():
                    for b, was in before:
                        b.copy_(was)
    raise RuntimeError("jit.save: a program is recorded from a call: call the scripted "
                       f"{type(called).__name__} once, or give script(..., example_inputs=[(x,)])")


def _inputs(module: nn.Module) -> Iterator[Tensor]:
    """Inputs that the layers of a module take, those of the first layer first."""
    for layer in module.modules():
        if isinstance(getattr(layer, "in_features", None), int):
            n = layer.in_features
            yield from (flambeau.zeros(2, n), flambeau.zeros(2, 3, n))
        if isinstance(layer, nn.RNNBase):
            yield flambeau.zeros(2, 3, layer.input_size)
        rank = len(getattr(layer, "kernel_size", ())) if isinstance(
            getattr(layer, "kernel_size", None), tuple) else 0
        if rank and isinstance(getattr(layer, "in_channels", None), int):
            yield from (flambeau.zeros(2, layer.in_channels, *(n,) * rank)
                        for n in (32, 28, 224, 64))
        if hasattr(layer, "num_embeddings"):
            yield flambeau.zeros(2, 3, dtype=flambeau.int64)
    yield from (flambeau.zeros(2, 3), flambeau.zeros(2, 3, 32, 32))
