"""Gradients checked against differences."""

from __future__ import annotations

import warnings

import flambeau
from flambeau import Tensor

from ..core.lazily import np
from ..engine.backward import grad


class GradcheckError(RuntimeError):
    """A gradient that is not the slope."""


def _tensors(values):
    return [v for v in values if isinstance(v, Tensor)]


def _outputs(function, inputs):
    found = function(*inputs)
    found = found if isinstance(found, (tuple, list)) else (found,)
    return [o for o in found if isinstance(o, Tensor) and (o.dtype.is_floating_point
                                                           or o.dtype.is_complex)]


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True,
              nondet_tol=0.0, check_undefined_grad=True, check_grad_dtypes=False,
              check_batched_grad=False, check_batched_forward_grad=False, check_forward_ad=False,
              check_backward_ad=True, fast_mode=False, masked=None):
    """Whether the gradients of func agree with small differences; raises GradcheckError if not."""
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be "
                             "True")
    try:
        if check_backward_ad:
            _check(func, inputs, eps, atol, rtol, nondet_tol, check_grad_dtypes)
        if check_forward_ad:
            _check_forward(func, inputs, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_forward(func, inputs, eps, atol, rtol) -> None:
    """Tangents against the same differences."""
    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    watched = [x for x in _tensors(inputs) if x.requires_grad]
    for number, out in enumerate(_outputs(func, inputs)):
        for k, x in enumerate(watched):
            found = _columns(func, inputs, number, x, out)
            numeric = _numeric(func, inputs, number, x, eps, out)
            if not np.allclose(found, numeric, rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    f"Jacobian computed with forward mode mismatch for output {number} with "
                    f"respect to input {k},\nnumerical:{numeric}\nanalytical:{found}\n")


def _columns(func, inputs, number, x, out) -> np.ndarray:
    """One row per number of the output, one column per number of x, by tangents."""
    forward = flambeau.autograd.forward_ad
    height = _real_view(out.detach().numpy()).size
    columns = []
    for place in range(x.numel()):
        for weight in [1.0, 1.0j] if x.dtype.is_complex else [1.0]:
            along = np.zeros(x.numel(), x.detach().numpy().dtype)
            along[place] = weight
            with forward.dual_level():
                dual = forward.make_dual(x.detach(), flambeau.tensor(along).reshape(x.shape))
                moved = _outputs(func, tuple(dual if a is x else a for a in inputs))[number]
                tangent = forward.unpack_dual(moved).tangent
                columns.append(np.zeros(height) if tangent is None else
                               _real_view(np.array(tangent.detach().numpy())))
    return np.array(columns, np.float64).reshape(len(columns), height).T


def _check(func, inputs, eps, atol, rtol, nondet_tol, check_dtypes) -> None:
    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    watched = [x for x in _tensors(inputs) if x.requires_grad]
    if not watched:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but "
                         "none of the them have requires_grad=True.")
    for k, x in enumerate(watched):
        if x.dtype not in (flambeau.float64, flambeau.complex128):
            warnings.warn(f"Input #{k} requires gradient and is not a double precision floating "
                          "point or complex. This check will likely fail if all the inputs are not "
                          "of double precision floating point or complex. ", stacklevel=3)
    outputs = _outputs(func, inputs)
    for number, out in enumerate(outputs):
        analytic = [_analytic(func, inputs, number, x, check_dtypes) for x in watched]
        again = [_analytic(func, inputs, number, x, check_dtypes) for x in watched]
        for k, x in enumerate(watched):
            if not np.all(np.abs(analytic[k] - again[k]) <= nondet_tol):
                raise GradcheckError("Backward is not reentrant, i.e., running backward with same "
                                     "input and grad_output multiple times gives different values, "
                                     "although analytical gradient matches numerical gradient. "
                                     f"(input {k}, output {number})")
            numeric = _numeric(func, inputs, number, x, eps, out)
            if not np.allclose(analytic[k], numeric, rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    f"Jacobian mismatch for output {number} with respect to input {k},\n"
                    f"numerical:{numeric}\nanalytical:{analytic[k]}\n")


def _real_view(array: np.ndarray) -> np.ndarray:
    """Numbers flat, complex ones as two."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _analytic(func, inputs, number, x, check_dtypes) -> np.ndarray:
    """One row per number of the output, one column per number of x, by going back."""
    with flambeau.enable_grad():
        out = _outputs(func, inputs)[number]
    width = _real_view(x.detach().numpy()).size
    weights = [1.0, 1.0j] if out.dtype.is_complex else [1.0]
    rows = []
    for place in range(out.numel()):
        for weight in weights:
            v = np.zeros(out.numel(), out.detach().numpy().dtype)
            v[place] = weight
            if not out.requires_grad:
                rows.append(np.zeros(width))
                continue
            g, = grad([out], [x], [flambeau.tensor(v).reshape(out.shape)], retain_graph=True,
                      allow_unused=True)
            if g is not None and check_dtypes and g.dtype != x.dtype:
                raise GradcheckError(f"backward gives a gradient of {g.dtype} for an input of "
                                     f"{x.dtype}")
            rows.append(np.zeros(width) if g is None else _real_view(g.detach().numpy()))
    return np.array(rows, np.float64).reshape(len(rows), width)


def _numeric(func, inputs, number, x, eps, out) -> np.ndarray:
    """The same, by moving each number of x a little."""
    memory = x.detach().numpy()
    moving = np.ndindex(*memory.shape)
    parts = [eps, eps * 1j] if memory.dtype.kind == "c" else [eps]
    columns = []
    with flambeau.no_grad():
        for place in moving:
            for step in parts:
                columns.append(_difference(func, inputs, number, memory, place, step, eps))
    height = _real_view(out.detach().numpy()).size
    return np.array(columns, np.float64).reshape(len(columns), height).T


def _difference(func, inputs, number, memory, place, step, eps) -> np.ndarray:
    before = memory[place]
    memory[place] = before + step
    high = _real_view(np.array(_outputs(func, inputs)[number].detach().numpy()))
    memory[place] = before - step
    low = _real_view(np.array(_outputs(func, inputs)[number].detach().numpy()))
    memory[place] = before
    return (high - low) / (2 * eps)


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3,
                  gen_non_contig_grad_outputs=False, raise_exception=True, nondet_tol=0.0,
                  check_undefined_grad=True, check_grad_dtypes=False, check_batched_grad=False,
                  check_fwd_over_rev=False, check_rev_over_rev=True, fast_mode=False,
                  masked=False):
    """Whether the gradients of the gradients of func agree with small differences."""
    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if grad_outputs is None:
        outputs = _outputs(func, inputs)
        grad_outputs = tuple(_weights_like(o.detach()).requires_grad_() for o in outputs)
    elif isinstance(grad_outputs, Tensor):
        grad_outputs = (grad_outputs,)
    count = len(inputs)

    def gradients(*args):
        given, weights = args[:count], args[count:]
        watched = [x for x in _tensors(given) if x.requires_grad]
        with flambeau.enable_grad():
            outputs = _outputs(func, given)
            return tuple(g for g in grad(outputs, watched, list(weights), create_graph=True,
                                         allow_unused=True) if g is not None)

    return gradcheck(gradients, (*inputs, *grad_outputs), eps=eps, atol=atol, rtol=rtol,
                     raise_exception=raise_exception, nondet_tol=nondet_tol,
                     check_grad_dtypes=check_grad_dtypes)


__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


def _weights_like(x):
    """Numbers in [-1, 1), drawn as torch.testing.make_tensor draws them."""
    weights = flambeau.empty_like(x)
    parts = flambeau.view_as_real(weights) if x.is_complex() else weights
    parts.uniform_(-1, 1)
    return weights
