"""flambeau with every call compiled: a library for the conformance harness to test.

    python -m conformance --lib through_compile --suite ops

A call is rehearsed on copies of its arguments, so that the call that counts follows a known path:
its result comes out of a program. Random numbers, buffers and arguments are as if nothing had been
rehearsed. Modules are compiled in place, with `Module.compile()`.
"""

from __future__ import annotations

import functools
import os
import sys
import types

import flambeau

REHEARSALS = 2
#: not computations: how the library is asked, seeded and configured
PLAIN = frozenset("""manual_seed seed get_rng_state set_rng_state initial_seed compile is_tensor
    from_numpy as_strided tensor set_grad_enabled is_grad_enabled save load get_default_dtype
    set_default_dtype set_num_threads get_num_threads set_printoptions retain_grad backward
    requires_grad_ numpy register_hook""".split())
#: whose functions are computations
NAMESPACES = ("nn", "nn.functional", "nn.init", "nn.utils", "linalg", "fft", "special", "signal",
              "signal.windows", "_C", "_C._nn")


def copied(value, memo: dict):
    """Arguments of their own, laid out as the given ones are."""
    if isinstance(value, flambeau.Tensor):
        if id(value) not in memo:
            memo[id(value)] = _copied_tensor(value)
        return memo[id(value)]
    if isinstance(value, (list, tuple)) and type(value) is not flambeau.Size:
        parts = [copied(v, memo) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {k: copied(v, memo) for k, v in value.items()}
    if isinstance(value, flambeau.Generator):
        generator = flambeau.Generator()
        generator.set_state(value.get_state())
        return generator
    return value


def _copied_tensor(x):
    if x.layout is not flambeau.strided:
        return x
    with flambeau.no_grad():
        plain = x.detach()
        reach = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
        whole = plain.as_strided((reach if x.numel() else 0,), (1,)).clone()
        made = whole.as_strided(tuple(x.shape), x.stride()) if x.numel() else plain.clone()
    if isinstance(x, flambeau.nn.Parameter):
        return flambeau.nn.Parameter(made, x.requires_grad)
    made.requires_grad_(x.requires_grad)
    return made if x.is_leaf else made.view_as(made)


def through_compile(function):
    """A function whose calls are compiled, rehearsed and made."""
    @functools.wraps(function, updated=())
    def call(*args, **kwargs):
        return rehearsed(flambeau.compile(lambda *a, **k: function(*a, **k)), args, kwargs)

    return call


def rehearsed(compiled, args, kwargs, restore=lambda: None):
    state = flambeau.get_rng_state()
    for _ in range(REHEARSALS):
        try:
            compiled(*copied(args, memo := {}), **copied(kwargs, memo))
        except Exception:
            break
        finally:
            restore()
            flambeau.set_rng_state(state)
    result = compiled(*args, **kwargs)
    if isinstance(compiled, flambeau.compiler.Compiled):
        _note(compiled)
    return result


def _note(compiled) -> None:
    """What did not become a program, for those who ask."""
    log = os.environ.get("THROUGH_COMPILE_LOG")
    if log:
        report = flambeau.compiler.explain(compiled)
        with open(log, "a") as file:
            file.write(f"{report.calls} {report.captured} {len(report.programs)} "
                       f"{[f'{op}: {why}' for op, why in report.breaks]}\n")


def compiled_module(cls):
    """A maker of modules of a class whose calls are compiled."""
    @functools.wraps(cls, updated=())
    def make(*args, **kwargs):
        module = cls(*args, **kwargs)
        module.compile()
        compiled_class = type(module)

        def __call__(self, *args, **kwargs):
            if any(isinstance(p, flambeau.nn.UninitializedParameter) for p in self.parameters()):
                return cls.__call__(self, *args, **kwargs)
            state = {k: v.clone() for k, v in self.state_dict().items()}
            return rehearsed(functools.partial(compiled_class.__call__, self), args, kwargs,
                             lambda: self.load_state_dict(state))

        module.__class__ = type(cls.__name__, (compiled_class,), {"__call__": __call__})
        return module

    return make


def wrapped(name: str, value):
    """What a name of flambeau is here."""
    if name in PLAIN or (name.startswith("_") and not name.endswith("__")):
        return value
    if isinstance(value, type):
        takes = issubclass(value, flambeau.nn.Module) and value is not flambeau.nn.Module
        return compiled_module(value) if takes else value
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType) or (
            type(value).__name__ in ("method_descriptor", "wrapper_descriptor")):
        return through_compile(value)
    return value


class _Class(type):
    """Looks like flambeau.Tensor, with compiled methods."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, flambeau.Tensor)


KEPT = frozenset(dir(object)) | {"__dict__", "__slots__", "__weakref__", "__getattr__"}
Tensor = _Class("Tensor", (), {name: wrapped(name, getattr(flambeau.Tensor, name))
                               for name in dir(flambeau.Tensor) if name not in KEPT})


class Namespace(types.ModuleType):
    """A module of flambeau whose functions are compiled."""

    def __init__(self, path: str, original):
        super().__init__(f"{__name__}.{path}")
        self.__dict__["_original"] = original

    def __getattr__(self, name: str):
        value = wrapped(name, getattr(self._original, name))
        self.__dict__[name] = value
        return value

    def __dir__(self):
        return dir(self._original)


def __getattr__(name: str):
    value = getattr(flambeau, name)
    return wrapped(name, value)


def _namespaces() -> None:
    for path in NAMESPACES:
        original, owner = flambeau, sys.modules[__name__]
        *outer, last = path.split(".")
        for part in outer:
            original, owner = getattr(original, part, None), getattr(owner, part, None)
        original = getattr(original, last, None)
        if original is not None:
            setattr(owner, last, Namespace(path, original))


_namespaces()
