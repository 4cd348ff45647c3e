"""opcheck: whether an op does what it says."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.utils._pytree import tree_leaves, tree_map

from .operator import OpOverload, find

TESTS = ("test_schema", "test_autograd_registration", "test_faketensor",
         "test_aot_dispatch_dynamic")


class OpCheckError(Exception):
    """An op does not do what it says."""


def opcheck(op: Any, args: tuple, kwargs: dict | None = None, *, test_utils: Any = TESTS,
            raise_exception: bool = True, atol: float | None = None,
            rtol: float | None = None) -> dict[str, Any]:
    """Run an op on examples, and compare with what its schema and its fake kernel say."""
    found, kwargs = find(op), kwargs or {}
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = set(names) - set(TESTS)
    if unknown:
        raise ValueError(f"opcheck: there is no test called {unknown.pop()}; there are {TESTS}")
    results: dict[str, Any] = {}
    for name in names:
        try:
            CHECKS[name](found, args, kwargs)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error}") from error
            results[name] = error
    return results


def _copied(values: Any) -> Any:
    return tree_map(lambda a: a.detach().clone().requires_grad_(a.requires_grad)
                    if isinstance(a, Tensor) else a, values)


def _check_schema(op: OpOverload, args: tuple, kwargs: dict) -> None:
    """What the schema does not say is changed is not."""
    given, named = _copied((args, kwargs))
    with flambeau.no_grad():
        op(*given, **named)
    for argument, was, now in zip(op._schema.positional, args, given, strict=False):
        for a, b in zip(tree_leaves(was), tree_leaves(now), strict=True):
            if isinstance(a, Tensor) and not argument.mutated and not flambeau.equal(a, b):
                raise RuntimeError(f"Argument {argument.name} is not defined as mutable but was "
                                   "mutated")


def _check_gradient(op: OpOverload, args: tuple, kwargs: dict) -> None:
    """There is a way back, where one is asked for."""
    wanted = any(isinstance(a, Tensor) and a.requires_grad for a in tree_leaves((args, kwargs)))
    if not wanted or op._schema.is_mutable:
        return
    given, named = _copied((args, kwargs))
    outs = [o for o in tree_leaves(op(*given, **named)) if isinstance(o, Tensor)
            and o.requires_grad]
    inputs = [a for a in tree_leaves((given, named)) if isinstance(a, Tensor) and a.requires_grad]
    flambeau.autograd.grad(outs, inputs, [flambeau.ones_like(o) for o in outs], allow_unused=True)


def _check_fake(op: OpOverload, args: tuple, kwargs: dict) -> None:
    """The fake kernel gives the shapes, dtypes and strides of the real one."""
    given, named = _copied((args, kwargs))
    with flambeau.no_grad():
        real = op(*given, **named)
        fake = op(*_on_meta(args), **_on_meta(kwargs))
    for a, b in zip(tree_leaves(real), tree_leaves(fake), strict=True):
        if isinstance(a, Tensor) and (a.shape, a.dtype, a.stride()) != (
                b.shape, b.dtype, b.stride()):
            raise RuntimeError(f"{op}: the fake kernel gives {b.dtype} of shape {tuple(b.shape)} "
                               f"and strides {b.stride()}, the real one {a.dtype} of shape "
                               f"{tuple(a.shape)} and strides {a.stride()}")


def _on_meta(values: Any) -> Any:
    return tree_map(lambda a: a.detach().to("meta") if isinstance(a, Tensor) else a, values)


def _check_compiled(op: OpOverload, args: tuple, kwargs: dict) -> None:
    """Compiled or not, it computes the same."""
    compiled = flambeau.compile(lambda *args, **kwargs: op(*args, **kwargs))
    with flambeau.no_grad():
        for _ in range(2):
            (one, two), (three, four) = _copied((args, kwargs)), _copied((args, kwargs))
            flambeau.testing.assert_close(compiled(*one, **two), op(*three, **four),
                                          equal_nan=True)


CHECKS = {"test_schema": _check_schema, "test_autograd_registration": _check_gradient,
          "test_faketensor": _check_fake, "test_aot_dispatch_dynamic": _check_compiled}
