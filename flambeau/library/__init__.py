"""Ops of one's own, in Python: torch.library's names.

    @library.custom_op("mylib::scaled", mutates_args=())
    def scaled(x: Tensor, by: float) -> Tensor:
        return torch.from_numpy(x.numpy() * by)

    torch.ops.mylib.scaled(x, 2.0)
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import flambeau

from . import operator as _operator
from .check import opcheck
from .operator import KEYS as _KEYS
from .operator import OpOverload as _OpOverload
from .operator import find as _find
from .schema import Schema as _Schema
from .schema import infer_schema

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "impl",
           "impl_abstract", "infer_schema", "opcheck", "register_autocast", "register_autograd",
           "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap"]

_defined: set[str] = set()  # namespaces that a Library of kind DEF has


def fallthrough_kernel() -> None:
    """Stands for no kernel at all in Library.impl."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Library:
    """Ops of a namespace, from their schemas and kernels; gone with the last name of it."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = ""):
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns == "prim":
            raise ValueError(f"{ns} is a reserved namespace. Please try creating a library with "
                             "another name.")
        if kind == "DEF":
            if ns in _defined:
                raise RuntimeError(f"Only a single TORCH_LIBRARY can be used to register the "
                                   f"namespace {ns}; please put all of your definitions in a "
                                   "single TORCH_LIBRARY block, or use the kind FRAGMENT.")
            _defined.add(ns)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._ops: list[_OpOverload] = []
        self._end = weakref.finalize(self, _forget, ns, kind, self._ops)

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """An op without kernels; its name."""
        op = _OpOverload(_Schema(schema, self.ns), tags)
        if _operator.exists(op):
            raise RuntimeError(f"Tried to register an operator ({op._schema}) with the same name "
                               "and overload name multiple times. Each overload's schema should "
                               "only be registered with a single call to def().")
        self._ops.append(_operator.add(op))
        return op.name().removeprefix(f"{self.ns}::")

    def impl(self, op_name: Any, fn: Callable, dispatch_key: str = "", *,
             with_keyset: bool = False, allow_override: bool = False) -> None:
        """Run this function for an op where the key says."""
        if not callable(fn):
            raise TypeError("Input function is required to be a callable but found type "
                            f"{type(fn)}")
        key = dispatch_key or self.dispatch_key
        where = _KEYS.get(key)
        if where is None:
            raise RuntimeError(f"could not parse dispatch key: {key}")
        if fn is fallthrough_kernel:
            return
        name = op_name if isinstance(op_name, str) else op_name.name()
        _operator.kernels_of(name if "::" in name else f"{self.ns}::{name}")[where] = fn

    def _register_fake(self, op_name: str, fn: Callable, _stacklevel: int = 1) -> None:
        self.impl(op_name, fn, "Meta")

    def _destroy(self) -> None:
        """Forget its ops now."""
        self._end()


def _forget(ns: str, kind: str, ops: list) -> None:
    for op in ops:
        _operator.remove(op)
    if kind == "DEF":
        _defined.discard(ns)


_kept: dict[str, Library] = {}  # of ops that are defined without a Library of their own


def _library(space: str) -> Library:
    return _kept.setdefault(space, Library(space, "FRAGMENT"))


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> None:
    """An op without kernels: define("mylib::f", "(Tensor x) -> Tensor")."""
    space, name = _operator.parse_name(qualname)
    (lib or _library(space)).define(name + schema, tags=tags)


def _decorating(register: Callable) -> Callable:
    """A function that registers another, given to it or decorated."""
    def with_function(op: Any, *more: Any, func: Callable | None = None, **options: Any):
        if func is not None:
            register(op, *more, func)
            return None

        def decorate(function: Callable) -> Callable:
            register(op, *more, function)
            return function

        return decorate

    return with_function


def _run_on(op: Any, types: Any, func: Any) -> None:
    _find(op).kernels.update(dict.fromkeys(_places(types), func))


_impl = _decorating(_run_on)


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None):
    """Run a function for an op on these devices: "cpu", "default", or a dispatch key."""
    if isinstance(qualname, Library):  # the older form: impl(library, name[, key])
        def decorate(function: Callable) -> Callable:
            qualname.impl(types, function, func or "")
            return function

        return decorate
    return _impl(qualname, types, func=func)


def _places(types: Any) -> list[str]:
    """Where the kernels of these devices or keys are kept."""
    if types is None:
        return ["default"]
    return [_KEYS[t] if t in _KEYS else t if t == "default" else flambeau.device(t).type
            for t in ([types] if isinstance(types, str) else types)]


def register_kernel(op: Any, device_types: Any, func: Callable | None = None, /, *,
                    lib: Library | None = None):
    """Run a function for an op on these devices."""
    return _impl(op, device_types, func=func)


def register_fake(op: Any, func: Callable | None = None, /, *, lib: Library | None = None,
                  _stacklevel: int = 1, allow_override: bool = False):
    """Run a function for an op on the meta device: shapes and dtypes alone.

    The op may be defined later, or never: packages describe those of their C++ part before they
    ask whether it is there.
    """
    return _impl_early(op, func=func)


def _shapes_of(op: Any, func: Any) -> None:
    kernels = _operator.kernels_of(op) if isinstance(op, str) else _find(op).kernels
    kernels["meta"] = func


_impl_early = _decorating(_shapes_of)
impl_abstract = register_fake


def register_autograd(op: Any, backward: Callable, /, *, setup_context: Callable | None = None,
                      lib: Library | None = None) -> None:
    """Go back through an op by backward(ctx, *grads); setup_context(ctx, inputs, output) keeps."""
    found = _find(op)
    if found._schema.is_mutable:
        raise RuntimeError(f"Cannot register autograd formula for non-functional operator "
                           f"{found.custom or found} with schema {found._schema}. Please create a "
                           "functional operator and register an autograd formula for that.")
    found.differentiate(backward, setup_context)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *,
                      lib: Library | None = None) -> None:
    """Where autocast is on, give an op its arguments in this dtype."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in ("cpu", "cuda"):
        raise ValueError(f"Unknown device type: {device_type}")
    _find(op).casts[device_type] = cast_inputs


def register_vmap(op: Any, func: Callable | None = None, /, *, lib: Library | None = None):
    """Accepted: vmap runs such an op once for each example, which needs no rule."""
    _find(op)
    return func if func is not None else lambda function: function


def register_torch_dispatch(op: Any, torch_dispatch_class: Any, func: Callable | None = None, /, *,
                            lib: Library | None = None):
    """Accepted: there is nothing below ops that a class could answer."""
    _find(op)
    return func if func is not None else lambda function: function


class get_ctx:
    """What a fake kernel may ask for sizes that depend on values."""

    @staticmethod
    def new_dynamic_size(*, min: int = 0, max: int | None = None) -> int:
        raise RuntimeError("new_dynamic_size: a meta tensor has a size; one that depends on values "
                           "cannot be told")

    create_unbacked_symint = new_dynamic_size


class CustomOpDef:
    """A function that is an op: what custom_op makes."""

    def __init__(self, namespace: str, name: str, schema: str, fn: Callable, tags: Any = ()):
        self._namespace, self._name, self._init_fn, self.tags = namespace, name, fn, tags
        self._opoverload = op = _OpOverload(_Schema(name + schema, namespace), tags)
        op.custom = self
        if not op._schema.is_mutable:
            op.differentiate(None, None)
        _operator.add(op)
        self.__name__, self.__doc__ = name, fn.__doc__

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any):
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types: Any, fn: Callable | None = None, /):
        """Run a function on these devices."""
        return register_kernel(self, device_types, fn) or fn

    def register_fake(self, fn: Callable, /) -> Callable:
        """Run a function on the meta device."""
        register_fake(self, fn)
        return fn

    def register_autograd(self, backward: Callable, /, *,
                          setup_context: Callable | None = None) -> None:
        """Go back by backward(ctx, *grads)."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func: Callable | None = None):
        """Accepted: vmap needs no rule."""
        return register_vmap(self, func)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Where autocast is on, take arguments in this dtype."""
        register_autocast(self, device_type, cast_inputs)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Callable | None = None, /):
        """Accepted: there is nothing below ops that a class could answer."""
        return register_torch_dispatch(self, torch_dispatch_class, fn)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True):
        """Inside, the kernel of one device is or is not used; without it, the first function is."""
        disabled = self._opoverload.disabled
        before = set(disabled)
        (disabled.discard if enabled else disabled.add)(device_type)
        try:
            yield
        finally:
            disabled.clear()
            disabled.update(before)


def custom_op(name: str, fn: Callable | None = None, /, *, mutates_args: str | Iterable[str],
              device_types: Any = None, schema: str | None = None, tags: Any = None):
    """An op of a function with annotations, which may do anything with its tensors.

    >>> @custom_op("docs::doubled", mutates_args=())
    ... def doubled(x: flambeau.Tensor) -> flambeau.Tensor:
    ...     return flambeau.from_numpy(x.numpy() * 2)
    >>> flambeau.ops.docs.doubled(flambeau.ones(2))
    tensor([2., 2.])
    """
    def make(function: Callable) -> CustomOpDef:
        told = schema or infer_schema(function, mutates_args=mutates_args)
        op = CustomOpDef(*_operator.parse_name(name), told, function, tags or ())
        op.register_kernel(device_types, function)
        return op

    return make if fn is None else make(fn)
