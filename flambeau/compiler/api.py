"""What users call: compile, disable, explain, reset."""

from __future__ import annotations

import contextlib
import copy
import functools
import weakref
from typing import Any

from ..engine import interception
from ..engine.tensor import Tensor
from .compiled import Compiled, all_compiled
from .report import Report


def compile(model=None, *, fullgraph: bool = False, dynamic=None, backend="inductor", mode=None,
            options=None, disable: bool = False, verify: int = 0):
    """The same function or module, faster.

    It runs the real Python; op calls are recorded once and then run as native programs. Python is
    left out, as long as nothing it depends on has changed, where all it does is to call ops; with
    fullgraph=True that is demanded, and what stands in its way is an error. Calls that would gain
    nothing run eagerly: of little work, or of shapes that are seldom met. `verify=n`
    compares the first n calls with eager ones. backend, mode, options and dynamic are accepted for
    the sake of PyTorch programs: there is one way to compile here.

    >>> import flambeau
    >>> double = flambeau.compile(lambda x: x * 2)
    >>> double(flambeau.tensor([1.0, 2.0]))
    tensor([2., 4.])
    """
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend,
                                 mode=mode, options=options, disable=disable, verify=verify)
    if disable or isinstance(model, Compiled):
        return model
    if not callable(model):
        raise TypeError(f"compile: a function or a module is needed, not {type(model).__name__}")
    if hasattr(model, "forward") and hasattr(model, "_registered"):
        return _compiled_module(model, fullgraph, verify)
    return Compiled(model, fullgraph, verify)


def _compiled_module(module, fullgraph: bool, verify: int):
    """A module that shares everything with another, and whose calls are compiled."""
    twin: Any = object.__new__(_compiled_class(type(module)))
    twin.__dict__ = module.__dict__
    call = type(module).__call__
    function = functools.wraps(type(module).forward)(
        lambda *args, **kwargs: call(twin, *args, **kwargs))
    function.__name__ = type(module).__name__
    _remember(twin, Compiled(function, fullgraph, verify))
    return twin


def compile_in_place(module, fullgraph: bool = False, verify: int = 0, **_) -> None:
    """From now on, calls of this module are compiled."""
    if _is_compiled_module(module):
        return
    cls = type(module)
    function = functools.wraps(cls.forward)(
        lambda *args, **kwargs: cls.__call__(module, *args, **kwargs))
    function.__name__ = cls.__name__
    module.__class__ = _compiled_class(cls)
    _remember(module, Compiled(function, fullgraph, verify))


#: by the address of the module, for as long as it lives: that is found sooner than a reference
_calls: dict[int, Compiled] = {}


def _remember(module, call: Compiled) -> None:
    _calls[id(module)] = call
    weakref.finalize(module, _calls.pop, id(module), None).atexit = False


def _compiled_class(cls: type) -> Any:
    if cls not in _classes:
        _classes[cls] = _new_class(cls)
    return _classes[cls]


_classes: dict[type, type] = {}


def _new_class(cls: Any) -> type:
    plain = cls.__call__

    def __call__(self, *args, **kwargs):
        compiled = _calls[id(self)]
        small = compiled.small
        if small is not None:  # as in a call of what is compiled, with two frames less
            kind = args[0].sig if args and args[0].__class__ is Tensor else None
            if left := small.get(kind):
                small[kind] = left - 1
                return plain(self, *args, **kwargs)
        return compiled(*args, **kwargs)

    def __deepcopy__(self, memo):
        original = object.__new__(cls)
        original.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return compile(original, fullgraph=_calls[id(self)].fullgraph)

    def __reduce__(self):
        original = object.__new__(cls)
        original.__dict__ = self.__dict__
        return compile, (original,)

    return type(cls.__name__, (cls,), {
        "__call__": __call__, "__deepcopy__": __deepcopy__, "__reduce__": __reduce__,
        "__reduce_ex__": lambda self, protocol: __reduce__(self), "__module__": cls.__module__,
        "__qualname__": cls.__qualname__, "__doc__": cls.__doc__,
        "_orig_mod": property(lambda self: self)})


def report_of(compiled) -> Report:
    """What happened to a compiled function or module so far."""
    found = compiled if isinstance(compiled, Compiled) else _calls.get(id(compiled))
    if found is None:
        raise TypeError(f"explain: {type(compiled).__name__} is not compiled")
    return found.report


def explain(function, *args, **kwargs) -> Report:
    """Segments, programs, breaks and their lines, after calling a function twice.

    Of what is compiled already, and called without arguments, it tells what happened so far.
    """
    if isinstance(function, Compiled) or _is_compiled_module(function):
        compiled = function
    else:
        compiled = compile(function)
    if args or kwargs or compiled is not function:
        inner = compiled if isinstance(compiled, Compiled) else _calls[id(compiled)]
        before = inner.weighs, inner.looks, inner.small
        inner.weighs = inner.looks = False  # this once it is compiled, whatever it does
        inner.small = None
        for _ in range(2):
            compiled(*args, **kwargs)
        inner.weighs, inner.looks, inner.small = before
    return report_of(compiled)


def _is_compiled_module(function) -> bool:
    return id(function) in _calls


def disable(function=None, recursive: bool = True, *, reason=None):
    """A function that is never part of a program: it runs on real tensors, by itself."""
    if function is None:
        return functools.partial(disable, recursive=recursive, reason=reason)

    @functools.wraps(function)
    def by_itself(*args, **kwargs):
        return interception.plainly(function, *args, **kwargs)

    return by_itself


def reset() -> None:
    """Forget everything that was compiled."""
    for compiled in list(all_compiled):
        compiled.reset()


def is_compiling() -> bool:
    """Whether a compiled function is at work."""
    return interception.tracing()


is_dynamo_compiling = is_compiling


# -- how to compile --------------------------------------------------------------------------------


def _eagerly(self, *args, **kwargs):
    return self.function(*args, **kwargs)


def _on_known_paths(self, *args, **kwargs):
    before = self.report.captured
    result = _as_ever(self, *args, **kwargs)
    if before and self.report.captured > before:
        raise RuntimeError("Detected recompile when torch.compile stance is 'fail_on_recompile'. "
                           f"function name: '{self.report.name}'. flambeau.compiler.explain shows "
                           "where its paths part.")
    return result


_as_ever = Compiled.__call__
#: what a call of a compiled function does; where a path is new, all but two learn it: the results
#: are the same as those of running eagerly once
STANCES = {"default": _as_ever, "force_eager": _eagerly, "fail_on_recompile": _on_known_paths,
           "eager_on_recompile": _as_ever, "eager_then_compile": _as_ever,
           "aot_eager_then_compile": _as_ever}


class set_stance(contextlib.ContextDecorator):
    """How compiled functions run, from here on, in a context or in a function.

    >>> import flambeau
    >>> with set_stance("force_eager"):
    ...     flambeau.compile(lambda x: x + 1)(flambeau.ones(1))  # runs as it is written
    tensor([2.])
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False,
                 force_backend=None):
        if stance not in STANCES:
            raise RuntimeError(f"invalid torch.compile stance '{stance}'")
        if force_backend is not None and stance != "default":
            raise RuntimeError("non-default stance cannot have force_backend set")
        if interception.tracing():
            raise RuntimeError("set_stance: a compiled function cannot change how it is compiled")
        self.stance, self.before = stance, Compiled.stance
        self._take(stance)

    @staticmethod
    def _take(stance: str) -> None:
        # Calls go by the class, so that none has to ask how it is to run.
        Compiled.stance = stance
        Compiled.__call__ = STANCES[stance]  # type: ignore[method-assign]

    def __call__(self, function):
        self._take(self.before)  # until the function is called
        return super().__call__(function)

    def __enter__(self):
        self._take(self.stance)
        return self

    def __exit__(self, *failure):
        self._take(self.before)


def cudagraph_mark_step_begin() -> None:
    """A step of training or inference begins: nothing is kept from the one before it."""


def allow_in_graph(fn):
    """The function, or functions: any may be part of a program, since real Python runs."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(each) for each in fn]
    if not callable(fn):
        raise AssertionError("allow_in_graph expects a callable")
    return fn


def assume_constant_result(fn):
    """The function: what it computes without tensors is a constant of the path it is on."""
    return fn


def nested_compile_region(fn=None, **options):
    """The function: what is called twice is compiled once anyhow."""
    return (lambda function: function) if fn is None else fn


def substitute_in_graph(original_fn, *, can_constant_fold_through: bool = False,
                        skip_signature_check: bool = False):
    """Decorator of a form of a function that could be traced: the original can, so it is kept."""
    if not callable(original_fn):
        raise TypeError(f"substitute_in_graph expects a function but got {type(original_fn)}")

    def decorate(traceable_fn):
        if not callable(traceable_fn):
            raise TypeError("@substitute_in_graph(...) expects a function but got "
                            f"{type(traceable_fn)}")
        if not skip_signature_check:
            _check_signatures(original_fn, traceable_fn)
        return traceable_fn

    return decorate


def _check_signatures(original, traceable) -> None:
    import inspect  # half a megabyte that nobody else needs here

    try:
        wanted = inspect.signature(original)
    except ValueError:
        return
    given = inspect.signature(traceable)
    parts = [[(p.name, p.kind, p.default) for p in s.parameters.values()] for s in (wanted, given)]
    if parts[0] != parts[1]:
        raise TypeError(f"Signature mismatch between {original} and {traceable}: {wanted} != "
                        f"{given}")


BACKENDS = {"eager": ("debug",), "inductor": ()}


def list_backends(exclude_tags=("debug", "experimental")) -> list[str]:
    """Names that `compile(backend=...)` is meant to be given; there is one way to compile here."""
    left_out = set(exclude_tags or ())
    return [name for name, tags in BACKENDS.items() if not left_out.intersection(tags)]


def get_default_backend() -> str:
    """The backend of compile() where none is named."""
    return "inductor"


def set_default_backend(backend) -> None:
    """Accepted: there is one way to compile here."""


def is_exporting() -> bool:
    """Whether a program is being exported."""
    return False
