"""Branches, loops and scans as calls: control flow of a program in one expression.

A compiled function runs its Python, so that both mean here what `if` and `while` mean; gradients
flow through either.
"""

from __future__ import annotations

from flambeau import Tensor
from flambeau.utils._pytree import tree_leaves

from .associative_scan import associative_scan

__all__ = ["associative_scan", "cond", "while_loop"]


def cond(pred, true_fn, false_fn, operands=()):
    """true_fn(*operands) if pred holds, else false_fn(*operands).

    >>> import flambeau as torch
    >>> torch.cond(torch.tensor(True), torch.neg, torch.exp, (torch.ones(2),))
    tensor([-1., -1.])
    """
    if not isinstance(pred, (bool, int, float)):
        _check_branch(pred, true_fn, false_fn, operands)
    return true_fn(*operands) if pred else false_fn(*operands)


def _check_branch(pred, true_fn, false_fn, operands) -> None:
    if not isinstance(pred, Tensor):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or not all(
            isinstance(leaf, Tensor) for leaf in tree_leaves(operands)):
        raise RuntimeError("Expect operands to be a tuple of possibly nested dict/list/tuple that "
                           f"only consists of tensor leaves, but got {operands}.")


def while_loop(cond_fn, body_fn, carried_inputs):
    """The values carried on by body_fn for as long as cond_fn of them holds.

    >>> import flambeau as torch
    >>> torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, torch.ones(2)))
    (3, tensor([8., 8.]))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)) or not all(
            isinstance(leaf, (Tensor, int)) for leaf in tree_leaves(carried_inputs)):
        raise RuntimeError("Expect carried_inputs to be a tuple of possibly nested dict/list/tuple "
                           f"that only consists of tensor or int leaves, but got {carried_inputs}.")
    carried = tuple(carried_inputs)
    while cond_fn(*carried):
        found = body_fn(*carried)
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        _check_carried(carried, found)
        carried = found
    return carried


def _check_carried(before: tuple, after: tuple) -> None:
    """What is carried stays what it is: as many values, of the same shapes and dtypes."""
    given, found = ([(x.shape, x.dtype) if isinstance(x, Tensor) else type(x)
                     for x in tree_leaves(values)] for values in (before, after))
    if given != found:
        raise RuntimeError("Expected body_fn to return values of the same shapes and dtypes as it "
                           f"was given: {given} became {found}")
