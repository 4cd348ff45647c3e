"""vmap: a function of one example becomes a function of a batch.

The function is run once on batched tensors, which stand for all examples. Where it needs the memory
of one, for a custom Function, it is run again for each example and the results are stacked.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau import Tensor

from ..engine.onlookers import Onlooker, onlookers
from . import rules, tree  # noqa: F401 rules are loaded for their registrations
from .batched import Unbatched, new_level

RANDOMNESS = ("error", "different", "same")


def vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
         chunk_size: int | None = None) -> Callable:
    """func over dimension `in_dims` of its arguments; results are stacked along `out_dims`."""
    if randomness not in RANDOMNESS:
        raise RuntimeError("Only allowed values for randomness are 'error', 'different', or "
                           f"'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def batched(*args: Any, **kwargs: Any) -> Any:
        name = getattr(func, "__name__", repr(func))
        dims = _dims_of(in_dims, args, name)
        given, shape = tree.tree_flatten((args, kwargs))
        dims += [0 if isinstance(x, Tensor) else None for x in given[len(dims):]]
        size, dims = _size_of(given, dims, name)
        wholes = [x.movedim(d, 0) if d else x for x, d in zip(given, dims, strict=True)]

        def run(examples: list) -> Any:
            positional, named = tree.tree_unflatten(examples, shape)
            return func(*positional, **named)

        if randomness != "error":  # numbers are drawn as if examples came one by one
            state = flambeau.get_rng_state() if randomness == "same" else None
            return _one_by_one(run, wholes, dims, size, out_dims, name, state)
        with _nothing_drawn():
            try:
                return _together(run, wholes, dims, size, out_dims, name)
            except Unbatched:
                return _one_by_one(run, wholes, dims, size, out_dims, name, None)

    return batched


@contextlib.contextmanager
def _nothing_drawn() -> Iterator[None]:
    """Random numbers that are drawn inside, in this thread, are an error."""
    onlookers.append(onlooker := Onlooker())
    try:
        yield
    finally:
        onlookers.remove(onlooker)
    if onlooker.saw_one:
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use "
            "the 'same' or 'different' randomness flags on vmap or perform the randomness "
            "operation out of vmap")


def _together(run: Callable, wholes: list, dims: list, size: int, out_dims: Any, name: str) -> Any:
    """One run for all examples."""
    with new_level(size) as level:
        found = run([x if d is None else level.batched(x)
                     for x, d in zip(wholes, dims, strict=True)])
        results, spread = _results(found, out_dims, name)
        whole = []
        for x, d in zip(results, spread, strict=True):
            if d is None:
                whole.append(x.whole[0] if level.owns(x) else x)
            else:
                x = level.whole(x)
                whole.append(x.movedim(0, d) if d else x)
    return tree.filled(found, whole)


def _one_by_one(run: Callable, wholes: list, dims: list, size: int, out_dims: Any, name: str,
                state: Tensor | None) -> Any:
    """A run for each example, each from the same state of the generator if one is given."""
    slices = [None if d is None else x.unbind(0) for x, d in zip(wholes, dims, strict=True)]
    runs = []
    for k in range(size):
        if state is not None:
            flambeau.set_rng_state(state)
        runs.append(run([x if s is None else s[k]
                         for x, s in zip(wholes, slices, strict=True)]))
    columns = zip(*[_results(found, out_dims, name)[0] for found in runs], strict=True)
    spread = _results(runs[0], out_dims, name)[1]
    return tree.filled(runs[0], [
        column[0] if d is None else flambeau.stack(column, d)
        for column, d in zip(columns, spread, strict=True)])


def _dims_of(in_dims: Any, args: tuple, name: str) -> list:
    def unfit() -> Exception:
        return ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the "
            "structure of inputs: it must be an int, None, or a nest that mirrors them")
    if not isinstance(in_dims, (int, tuple, list)):
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to "
                         "be int or a (potentially nested) tuple matching the structure of "
                         f"inputs, got: {type(in_dims)}.")
    if not args:
        raise ValueError(f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, "
                         "or you are trying to vmap over a function with no inputs.")
    return tree.spread(tuple(in_dims) if isinstance(in_dims, list) else in_dims, args, unfit)


def _size_of(values: list, dims: list, name: str) -> tuple[int, list]:
    """The number of examples, and each dimension counted from the front."""
    sizes: list[int] = []
    found: list[int | None] = []
    for x, d in zip(values, dims, strict=True):
        if d is None:
            found.append(None)
            continue
        if not isinstance(x, Tensor):
            raise ValueError(f"vmap({name})(<inputs>): Got in_dim={d} for an input but the input "
                             f"is of type {type(x)}. We cannot vmap over non-Tensor arguments, "
                             "please use None as the respective in_dim")
        if not -x.dim() <= d < x.dim():
            raise ValueError(f"vmap({name})(<inputs>): Got in_dim={d} for some input, but that "
                             f"input is a Tensor of dimensionality {x.dim()} so expected in_dim "
                             f"to satisfy -{x.dim()} <= in_dim < {x.dim()}.")
        sizes.append(x.shape[d])
        found.append(d % x.dim())
    if not sizes:
        raise ValueError(f"vmap({name})(<inputs>): at least one of the inputs must be batched: "
                         "all of in_dims are None")
    if len(set(sizes)) > 1:
        raise ValueError("vmap: Expected all tensors to have the same size in the mapped "
                         f"dimension, got sizes {sizes} for the mapped dimension")
    if sizes[0] == 0:
        raise ValueError(f"vmap({name})(<inputs>): the mapped dimension has size 0")
    return sizes[0], found


def _results(found: Any, out_dims: Any, name: str) -> tuple[list, list]:
    """The tensors that a function returned, and the dimension where examples go in each."""
    def unfit() -> Exception:
        return ValueError(f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not "
                          "compatible with the structure of outputs")
    dims = tree.spread(tuple(out_dims) if isinstance(out_dims, list) else out_dims, found, unfit)
    results = tree.leaves(found)
    for x in results:
        if not isinstance(x, Tensor):
            raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type "
                             f"{type(x)}. Did you mean to set out_dims= to None for it?")
    return results, dims
