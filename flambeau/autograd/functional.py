"""Derivatives of functions: Jacobians, Hessians, and their products with vectors."""

from __future__ import annotations

import flambeau
from flambeau import Tensor

from ..engine.backward import grad


def _as_tuple(given, argument: str, name: str):
    """(whether it was several tensors, the tensors as a tuple)."""
    several = isinstance(given, (tuple, list))
    values = tuple(given) if several else (given,)
    for k, value in enumerate(values):
        if not isinstance(value, Tensor):
            raise TypeError(f"The {argument} given to {name} must be either a Tensor or a tuple of "
                            f"Tensors but the value at index {k} has type {type(value)}.")
    return several, values


def _fresh(inputs, create_graph: bool):
    """Inputs that can be differentiated with respect to: part of the graph only if it is wanted."""
    if create_graph:
        return tuple(x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
                     for x in inputs)
    return tuple(x.detach().requires_grad_() for x in inputs)


def _result(values, several: bool, create_graph: bool):
    values = tuple(values) if create_graph else tuple(_detached(v) for v in values)
    return values if several else values[0]


def _detached(value):
    return tuple(map(_detached, value)) if isinstance(value, tuple) else value.detach()


def _check_outputs(outputs, strict: bool) -> None:
    for k, out in enumerate(outputs):
        if strict and not out.requires_grad:
            raise RuntimeError(f"Output {k} of the user-provided function does not require "
                               "gradients. The outputs must be computed in a differentiable "
                               "manner from the input when running in strict mode.")


def _gradients(outputs, inputs, vectors, create_graph: bool, strict: bool = False, retain=None):
    """Vector-Jacobian products; zeros where an output does not depend on an input."""
    pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
    if not pairs:
        return tuple(flambeau.zeros_like(x) for x in inputs)
    found = grad([o for o, _ in pairs], inputs, [v for _, v in pairs], create_graph=create_graph,
                 retain_graph=True if retain is None else retain, allow_unused=True)
    for k, g in enumerate(found):
        if strict and g is None:
            raise RuntimeError("The output of the user-provided function is independent of input "
                               f"{k}. This is not allowed in strict mode.")
        if strict and create_graph and not g.requires_grad:
            raise RuntimeError("jacobian of the user-provided function is independent of input "
                               f"{k}. This is not allowed in strict mode when create_graph=True.")
    return tuple(flambeau.zeros_like(x) if g is None else g
                 for x, g in zip(inputs, found, strict=True))


def _check_vectors(vectors, like, several: bool) -> None:
    if len(vectors) != len(like):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got "
                           f"{len(vectors)}.")
    for k, (v, x) in enumerate(zip(vectors, like, strict=True)):
        if v.shape != x.shape:
            where = f"Entry {k} in v" if several else "v"
            raise RuntimeError(f"{where} has invalid size: should be {x.shape} but got {v.shape}.")


def _vectors(v, like, name: str, why: str):
    """The vector that was given, or 1 if there is only one number to weigh."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {why}")
        return tuple(flambeau.ones_like(x) for x in like)
    several, vectors = _as_tuple(v, "v", name)
    _check_vectors(vectors, like, several)
    return vectors


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """The outputs of func, and v times its Jacobian."""
    with flambeau.enable_grad():
        several_in, inputs = _as_tuple(inputs, "inputs", "vjp")
        inputs = _fresh(inputs, create_graph)
        several_out, outputs = _as_tuple(func(*inputs), "outputs", "vjp")
        _check_outputs(outputs, strict)
        vectors = _vectors(v, outputs, "vjp", "the user-provided function returns a single Tensor "
                                              "with a single element.")
    with flambeau.set_grad_enabled(create_graph or flambeau.is_grad_enabled()):
        found = _gradients(outputs, inputs, vectors, create_graph, strict)
    return (_result(outputs, several_out, create_graph),
            _result(found, several_in, create_graph))


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """The outputs of func, and its Jacobian times v (through the gradient of a gradient)."""
    with flambeau.enable_grad():
        _, inputs = _as_tuple(inputs, "inputs", "jvp")
        vectors = _vectors(v, inputs, "jvp", "the input to the user-provided function is a single "
                                             "Tensor with a single element.")
        inputs = _fresh(inputs, create_graph)
        several_out, outputs = _as_tuple(func(*inputs), "outputs", "jvp")
        _check_outputs(outputs, strict)
        weights = tuple(flambeau.zeros_like(o, requires_grad=True) for o in outputs)
        pulled = _gradients(outputs, inputs, weights, True, strict)
        found = _gradients(pulled, weights, vectors, create_graph, strict)
    return (_result(outputs, several_out, create_graph),
            _result(found, several_out, create_graph))


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False,
             strategy="reverse-mode"):
    """The derivative of every number func returns with respect to every number it is given."""
    _check_strategy(strategy, create_graph, strict, vectorize)
    with flambeau.enable_grad():
        several_in, inputs = _as_tuple(inputs, "inputs", "jacobian")
        inputs = _fresh(inputs, create_graph)
        several_out, outputs = _as_tuple(func(*inputs), "outputs", "jacobian")
        _check_outputs(outputs, strict)
        rows = _columns(outputs, inputs) if strategy == "forward-mode" else [
            _rows(out, inputs, create_graph, strict) for out in outputs]
    rows = [row if several_in else row[0] for row in rows]
    return _result(rows, several_out, create_graph)


def _check_strategy(strategy: str, create_graph: bool, strict: bool, vectorize: bool) -> None:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant. '
            'Otherwise, prefer to use "reverse-mode".')
    called = "torch.autograd.functional.jacobian"
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                f"{called}: `create_graph=True` and `strategy=\"forward-mode\"` are not supported "
                "together (yet). Please either set `create_graph=False` or "
                '`strategy="reverse-mode"`.')
        if strict:
            raise RuntimeError(
                f"{called}: `strict=True` and `strategy=\"forward-mode\"` are not supported "
                'together (yet). Please either set `strict=False` or `strategy="reverse-mode"`.')
        if not vectorize:
            raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse "
                                      "Hessian is only implemented for `vectorize=True`.")
    if strict and vectorize:
        raise RuntimeError(f"{called}: `strict=True` and `vectorized=True` are not supported "
                           "together. Please either set `strict=False` or `vectorize=False`.")


def _columns(outputs, inputs):
    """The Jacobian one number of the inputs after the other, for functions with few of them."""
    weights = tuple(flambeau.zeros_like(o, requires_grad=True) for o in outputs)
    pulled = _gradients(outputs, inputs, weights, True)
    zeros = tuple(flambeau.zeros_like(x) for x in inputs)
    rows: list[list] = [[] for _ in outputs]
    for k, x in enumerate(inputs):
        basis = flambeau.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
        columns = [_gradients(pulled, weights, (*zeros[:k], e, *zeros[k + 1:]), False)
                   for e in basis]
        for j, out in enumerate(outputs):
            whole = [column[j] for column in columns]
            rows[j].append(flambeau.stack(whole, -1).reshape(*out.shape, *x.shape) if whole else
                           flambeau.zeros(*out.shape, *x.shape, dtype=x.dtype))
    return [tuple(row) for row in rows]


def _rows(out, inputs, create_graph: bool, strict: bool):
    """The Jacobian of one output with respect to each input."""
    if not out.requires_grad:
        return tuple(flambeau.zeros(*out.shape, *x.shape, dtype=x.dtype) for x in inputs)
    flat = out.reshape(-1)
    found = [_gradients((flat[k],), inputs, (flambeau.ones_like(flat[k]),), create_graph, strict)
             for k in range(flat.numel())]
    return tuple(flambeau.stack(column).reshape(*out.shape, *x.shape) if column else
                 flambeau.zeros(*out.shape, *x.shape, dtype=x.dtype)
                 for column, x in zip(zip(*found, strict=True) if found else [()] * len(inputs),
                                      inputs, strict=True))


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False,
            outer_jacobian_strategy="reverse-mode"):
    """The second derivative of a function that returns one number."""
    several_in, inputs = _as_tuple(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def gradient(*inner):
        return jacobian(lambda *x: _one_number(func(*x), "hessian"), inner, create_graph=True,
                        strict=strict)

    found = jacobian(gradient, inputs, create_graph=create_graph, strict=strict,
                     vectorize=vectorize, strategy=outer_jacobian_strategy)
    return found if several_in else found[0][0]


def _one_number(out, name: str):
    several, values = _as_tuple(out, "outputs of the user-provided function", name)
    if several or len(values) != 1:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if values[0].dim() and values[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a "
                           "single element")
    return values[0].squeeze() if values[0].dim() else values[0]


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """The output of func, and v times its Hessian."""
    with flambeau.enable_grad():
        several_in, inputs = _as_tuple(inputs, "inputs", "vhp")
        vectors = _vectors(v, inputs, "vhp", "the input to the user-provided function is a single "
                                             "Tensor with a single element.")
        inputs = _fresh(inputs, create_graph)
        out = func(*inputs)
        value = _one_number(out, "vhp")
        first = _gradients((value,), inputs, (flambeau.ones_like(value),), True, strict)
        found = _gradients(first, inputs, vectors, create_graph, strict)
    return _result((out,), False, create_graph), _result(found, several_in, create_graph)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """The output of func, and its Hessian times v."""
    with flambeau.enable_grad():
        several_in, inputs = _as_tuple(inputs, "inputs", "hvp")
        vectors = _vectors(v, inputs, "hvp", "the input to the user-provided function is a single "
                                             "Tensor with a single element.")
        inputs = _fresh(inputs, create_graph)
        out = func(*inputs)
        value = _one_number(out, "hvp")
        first = _gradients((value,), inputs, (flambeau.ones_like(value),), True, strict)
        weights = tuple(flambeau.zeros_like(x, requires_grad=True) for x in inputs)
        pulled = _gradients(first, inputs, weights, True, strict)
        found = _gradients(pulled, weights, vectors, create_graph, strict)
    return _result((out,), False, create_graph), _result(found, several_in, create_graph)


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
