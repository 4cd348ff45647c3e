"""Which modules become units of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from flambeau.nn import Module


class ModuleWrapPolicy:
    """Modules of these classes are units."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool = False, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, self._classes)

    def __repr__(self) -> str:
        return f"ModuleWrapPolicy({set(self._classes)})"


class CustomPolicy:
    """Modules a function says yes to are units."""

    def __init__(self, lambda_fn: Callable[[Module], Any]) -> None:
        self._choose = lambda_fn

    def __call__(self, module: Module, recurse: bool = False, *args: Any, **kwargs: Any) -> bool:
        return recurse or bool(self._choose(module))


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    return True


def transformer_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int,
                                 transformer_layer_cls: Iterable[type[Module]]) -> bool:
    """Layers of these classes are units."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def lambda_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int,
                            lambda_fn: Callable[[Module], bool]) -> bool:
    return recurse or lambda_fn(module)


def size_based_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int,
                                min_num_params: int = 100_000_000,
                                force_leaf_modules=None, exclude_wrap_modules=None) -> bool:
    """Modules with at least so many parameters that are in no unit yet."""
    return nonwrapped_numel >= int(min_num_params)


def wrap_children(module: Module, policy: Callable[..., bool], wrap: Callable[[Module], Module],
                  wrapped: type, ignored: set[int]) -> int:
    """Wrap descendants, the deepest first; how many parameters went into units."""
    done = 0
    for name, child in list(module.named_children()):
        if id(child) in ignored or isinstance(child, wrapped):
            continue
        size = sum(p.numel() for p in child.parameters())
        inner = 0
        if policy(child, True, size):
            inner = wrap_children(child, policy, wrap, wrapped, ignored)
        left = size - inner
        if left and policy(child, False, left):
            setattr(module, name, wrap(child))
            inner = size
        done += inner
    return done


class _Wrapping:
    """How `wrap` wraps, inside enable_wrap."""

    how: tuple[Callable[..., Module], dict] | None = None


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any):
    """Inside, `wrap` makes units of modules."""
    before, _Wrapping.how = _Wrapping.how, (wrapper_cls, wrapper_kwargs)
    try:
        yield
    finally:
        _Wrapping.how = before


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """A module as a unit of its own inside enable_wrap, and as it is elsewhere."""
    if _Wrapping.how is None:
        return module
    wrapper, options = _Wrapping.how
    return wrapper(module, **{**options, **wrap_overrides})


__all__ = ["ModuleWrapPolicy", "CustomPolicy", "always_wrap_policy", "enable_wrap",
           "lambda_auto_wrap_policy", "size_based_auto_wrap_policy", "transformer_auto_wrap_policy",
           "wrap"]  # fmt: skip
