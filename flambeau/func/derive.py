"""Gradients and Jacobians of functions, as functions; they nest.

Each level differentiates with respect to fresh leaves of its own. What it gives keeps its graph
where a tensor from outside, an outer level's leaf or a parameter, has a part in it, and only there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.autograd import grad as _gradient

from ..engine.interception import named, tracers
from ..engine.node import Edge, edge_of
from . import tree
from .batch import vmap
from .batched import Batched, Unbatched, apart, bare, like, new_level


def grad(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """The gradient of func, which gives one number, with respect to its arguments `argnums`."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def slope(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return slope


def grad_and_value(func: Callable, argnums: int | tuple[int, ...] = 0,
                   has_aux: bool = False) -> Callable:
    """(gradient, value) of func, which gives one number."""
    @functools.wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        with _Level() as level:
            chosen = _chosen(args, argnums)
            fresh = level.fresh(chosen)
            out = func(*_replaced(args, argnums, fresh), **kwargs)
            out, aux = _parted(out, has_aux)
            if not isinstance(out, Tensor):
                raise RuntimeError("Expected f(*args) to return a Tensor, got "
                                   f"{type(out).__name__}")
            if out.dim() != 0:
                raise RuntimeError("Expected f(*args) to return a scalar tensor, got tensor with "
                                   f"{out.dim()} dims. Maybe you wanted to use the vjp or jacrev "
                                   "APIs instead?")
            found = tree.filled(fresh, level.gradients([out], fresh, [None]))
            found, out, aux = level.left((found, out, aux))
        return found, ((out, aux) if has_aux else out)

    return both


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """(func(*primals), a function from cotangents to their products with the Jacobian)."""
    with _Level() as level:
        fresh = level.fresh(primals)
        out, aux = _parted(func(*fresh), has_aux)
        told = level.left((out, aux))

    def pull(*cotangents: Any) -> Any:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        with flambeau.enable_grad():
            found = tree.filled(fresh, level.gradients(tree.leaves(out), fresh,
                                                       tree.leaves(given)))
        return level.left(found)

    return (told[0], pull, told[1]) if has_aux else (told[0], pull)


def jvp(func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False,
        has_aux: bool = False) -> tuple:
    """(func(*primals), the product of its Jacobian with the tangents).

    Found by going back twice: the product with cotangents is linear in them, and its transpose
    is the one that is wanted.
    """
    _check_tangents(primals, tangents)
    with _Level() as level:
        out, aux, push = level.linear(func, primals, has_aux)
        out, product, aux = level.left((out, push(tree.leaves(tangents)), aux))
    return (out, product, aux) if has_aux else (out, product)


def _check_tangents(primals: Any, tangents: Any) -> None:
    called = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{called}: Expected primals to be a tuple. E.g. it should be valid to "
                           "call f(*primals).")
    shapes = tree.tree_structure(primals), tree.tree_structure(tangents)
    if shapes[0] != shapes[1]:
        raise RuntimeError(f"{called}: Expected primals and tangents to have the same python "
                           "structure. For example, if primals is a tuple of 3 tensors, tangents "
                           f"also must be. Got primals with structure {shapes[0]} and tangents "
                           f"with structure {shapes[1]}")
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not tree.leaves(given):
            raise RuntimeError(f"{called}: Expected {name} to contain at least one Tensor.")
        for x in tree.leaves(given):
            if not isinstance(x, Tensor):
                raise RuntimeError(f"{called}: Expected {name} to contain only Tensors, got "
                                   f"unsupported type {type(x)}")
    for x, t in zip(tree.leaves(primals), tree.leaves(tangents), strict=True):
        if x.shape != t.shape:
            raise RuntimeError("Trying to set a forward gradient that has a different size than "
                               "that of the original Tensor, this is not supported. Tensor is of "
                               f"size {list(x.shape)} while the given forward gradient is of size "
                               f"{list(t.shape)}.")


def linearize(func: Callable, *primals: Any) -> tuple:
    """(func(*primals), the function that takes tangents to their products with the Jacobian).

    func is run once; its graph is kept, and every call of the function goes through it.
    """
    with _Level() as level:
        out, _, push = level.linear(func, primals, False)
    inputs, shape = tree.leaves(primals), tree.tree_structure(primals)

    def product(*tangents: Any) -> Any:
        given = tree.leaves(tangents)
        if tree.tree_structure(tangents) != shape:
            raise RuntimeError(f"Expected the tangents {tree.tree_structure(tangents)} to have the "
                               f"same argspec as the primals {shape}")
        for k, (x, t) in enumerate(zip(inputs, given, strict=True)):
            for what in ("shape", "device", "dtype"):
                if getattr(x, what) != getattr(t, what):
                    raise RuntimeError(f"tangent:{k} with {what} {getattr(t, what)} in flattened "
                                       f"pytree doesn't match the {what} {getattr(x, what)} of "
                                       "the corresponding primal.")
        with flambeau.enable_grad():
            found = push(given)
        return level.left(found)

    return level.left(out), product


def jacrev(func: Callable, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False,
           chunk_size: int | None = None, _preallocate_and_copy: bool = False) -> Callable:
    """The Jacobian of func, one row after the other."""
    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        with _Level() as level:
            chosen = _chosen(args, argnums)
            fresh = level.fresh(chosen)
            out, aux = _parted(func(*_replaced(args, argnums, fresh), **kwargs), has_aux)
            whole = [tree.filled(fresh, level.rows(o, fresh)) for o in tree.leaves(out)]
            found, aux = level.left((tree.filled(out, [_Box(w) for w in whole]), aux))
        return (found, aux) if has_aux else found

    return jacobian


def jacfwd(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
           chunk_size: int | None = None, randomness: str = "error") -> Callable:
    """The Jacobian of func, one column after the other."""
    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = _chosen(args, argnums)
        inputs, told = tree.leaves(chosen), []

        def along(*directions: Tensor) -> Any:
            found = jvp(lambda *xs: func(*_replaced(args, argnums, tree.filled(chosen, xs)),
                                         **kwargs), tuple(inputs), directions, has_aux=has_aux)
            told.append(found)
            return found[1]

        columns = []
        for k, x in enumerate(inputs):
            basis = flambeau.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
            rest = [flambeau.zeros_like(y) for y in inputs]
            swept = vmap(lambda d, k=k, rest=rest: along(*rest[:k], d, *rest[k + 1:]), out_dims=-1,
                         randomness=randomness)(basis)
            columns.append([c.reshape(*c.shape[:-1], *x.shape) for c in tree.leaves(swept)])
        whole = [tree.filled(chosen, [c[j] for c in columns]) for j in range(len(columns[0]))]
        found = tree.mapped(_opened, tree.filled(told[0][0], [_Box(w) for w in whole]))
        return (found, told[0][2]) if has_aux else found

    return jacobian


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
    """The second derivatives of func."""
    return jacrev(jacrev(func, argnums), argnums)


class _Box:
    """A nest that stands where a leaf was."""

    def __init__(self, content: Any):
        self.content = content


def _opened(x: Any) -> Any:
    return x.content if isinstance(x, _Box) else x


class _Level:
    """One differentiation: its leaves, and what may be told outside of it."""

    def __init__(self) -> None:
        self.own: set[int] = set()
        self.kept: list[Tensor] = []  # alive as long as their ids are in `own`
        self.inside: set = set()      # steps behind which nothing is from outside

    def __enter__(self) -> _Level:
        self.recording = flambeau.is_grad_enabled()
        self.switch = flambeau.enable_grad()
        self.switch.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self.switch.__exit__(*failure)

    def fresh(self, values: Any) -> Any:
        """The values, to differentiate with respect to; joined to the graph they come from."""
        leaves: list[Any] = []

        def one(x: Any) -> Any:
            if not isinstance(x, Tensor):
                raise ValueError("expected the arguments that are differentiated to be tensors, "
                                 f"got {type(x).__name__}")
            if "_tangent" in x.__dict__:
                raise RuntimeError("func: a dual tensor of a level of forward mode cannot be "
                                   "differentiated again here; nest jvp, grad and the others "
                                   "instead")
            x = apart(x)
            if x.requires_grad and self.recording:
                return x.view_as(x)
            leaves.append(bare(x).detach())
            return like(x, leaves[-1])

        made = tree.mapped(one, values)
        for leaf in leaves:  # when all are made: what a compiled call has not computed ends there
            leaf.requires_grad_()
        self.own.update(map(id, leaves))
        self.kept += leaves
        return made

    def gradients(self, outs: list, fresh: Any, cotangents: list) -> list:
        inputs = tree.leaves(fresh)
        pairs = [(o, c) for o, c in zip(outs, cotangents, strict=True)
                 if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            return [flambeau.zeros_like(x) for x in inputs]
        found = _gradients(pairs, inputs)
        return [flambeau.zeros_like(x) if g is None else g
                for x, g in zip(inputs, found, strict=True)]

    def linear(self, func: Callable, primals: tuple, has_aux: bool) -> tuple:
        """(what func gives, what else it gives, tangents -> their products with its Jacobian)."""
        fresh = self.fresh(primals)
        out, aux = _parted(func(*fresh), has_aux)
        outs = tree.leaves(out)
        for o in outs:
            if not isinstance(o, Tensor):
                raise RuntimeError("jvp(f, primals, tangents): expected f(*primals) to return "
                                   f"only tensors, got unsupported type {type(o)}")
        seeds = [like(o, flambeau.zeros_like(
            bare(o), requires_grad=o.is_floating_point() or o.is_complex())) for o in outs]
        self.own.update(id(bare(s)) for s in seeds)
        self.kept += seeds
        back = self.gradients(outs, fresh, seeds)

        def push(tangents: list) -> Any:
            pairs = [(b, t) for b, t in zip(back, tangents, strict=True) if b.requires_grad]
            pushed = iter(_gradients(pairs, [s for s in seeds if s.requires_grad])
                          if pairs else [])
            found = [next(pushed, None) if s.requires_grad else None for s in seeds]
            return tree.filled(out, [flambeau.zeros_like(o) if p is None else p
                                     for o, p in zip(outs, found, strict=True)])

        return out, aux, push

    def rows(self, out: Tensor, fresh: Any) -> list:
        """For each input the Jacobian of one output: its shape, then the input's."""
        if not out.requires_grad:
            return [x.new_zeros(*out.shape, *x.shape) for x in tree.leaves(fresh)]
        try:
            return _rows(out, tree.leaves(fresh))
        except Unbatched:
            pass
        each = [self.gradients([element], fresh, [None])
                for element in out.reshape(-1).unbind()]
        return [flambeau.stack(column).reshape(*out.shape, *x.shape)
                for column, x in zip(zip(*each, strict=True), tree.leaves(fresh), strict=True)]

    def left(self, values: Any) -> Any:
        """What leaves the level: without a graph, unless somebody outside has a part in it."""
        return tree.mapped(self._left, values)

    def _left(self, x: Any) -> Any:
        if isinstance(x, _Box):
            return self.left(x.content)
        if isinstance(x, Tensor) and x.requires_grad and not (
                self.recording and self._reaches_outside(x)):
            return x.detach()
        return x

    def _reaches_outside(self, x: Tensor) -> bool:
        x = bare(x)
        if tracers:  # a compiled call that has been on this path knows, before x is computed
            found = tracers[-1].factory(_ASK, (x, *self.kept), {})
            if found is not None:
                return bool(found[0])
        return _reaches_beyond(x, self.own, self.inside)[0]


def _reaches_beyond(x: Any, own: set[int], inside: set) -> tuple[bool, bool]:
    """(whether a leaf that is not our own has a part in x, whether it has on every such path).

    inside: steps behind which nothing is from outside.
    """
    seen, ahead, surely = set(), [edge_of(x)], True
    while ahead:
        edge = ahead.pop()
        if isinstance(edge, Tensor):
            if id(edge) not in own:
                return True, surely
            continue
        node = edge.node if type(edge) is Edge else edge
        if node is not None and node not in seen and node not in inside:
            seen.add(node)
            ahead += node.parents
            surely = surely and node.name() != "CompiledBackward"  # of another part of the call
    inside |= seen
    return False, surely


def _ask(x: Tensor, *own: Tensor) -> Any:
    """Whether x reaches outside: a set, which no path can express, if it may not next time."""
    found, surely = _reaches_beyond(x, {*map(id, own)}, set())
    return found if surely else {found} - {False}


_ASK = named("reaches_outside", _ask)


def _gradients(pairs: list, inputs: list) -> list:
    """Gradients, which can be differentiated again, of outputs with cotangents.

    Examples of a batch are independent, so their gradients are those of all of them together.
    """
    outs, cotangents = [], []
    for out, cotangent in pairs:
        whole = bare(out)
        if cotangent is None:
            cotangent = flambeau.ones_like(whole) if out.numel() == 1 else None
        else:
            cotangent = bare(apart(cotangent) if isinstance(out, Batched) else cotangent)
            if isinstance(cotangent, Tensor) and cotangent.dim() > whole.dim():
                raise Unbatched  # one output and cotangents of many examples
        outs.append(whole)
        cotangents.append(cotangent)
    found = _gradient(outs, [bare(x) for x in inputs], cotangents, create_graph=True,
                      allow_unused=True)
    return [None if g is None else like(x, g) for x, g in zip(inputs, found, strict=True)]


def _rows(out: Tensor, inputs: list) -> list:
    """For each input the Jacobian of one output, by going back once from all its elements."""
    whole = bare(out)
    count, examples = out.numel(), whole.dim() - out.dim()
    basis = flambeau.eye(count, dtype=out.dtype).reshape(count, *[1] * examples, *out.shape)
    level = new_level(count)
    found = _gradient([whole], [bare(x) for x in inputs],
                      [level.batched(basis.expand(count, *whole.shape))],
                      create_graph=True, allow_unused=True)
    return [x.new_zeros(*out.shape, *x.shape) if g is None else
            like(x, level.whole(g).movedim(0, examples)).reshape(*out.shape, *x.shape)
            for x, g in zip(inputs, found, strict=True)]


def _chosen(args: tuple, argnums: int | tuple[int, ...]) -> Any:
    try:
        return args[argnums] if isinstance(argnums, int) else tuple(args[k] for k in argnums)
    except IndexError:
        raise RuntimeError(f"Got argnum={argnums}, but only {len(args)} positional inputs"
                           ) from None


def _replaced(args: tuple, argnums: int | tuple[int, ...], values: Any) -> tuple:
    changed = list(args)
    if isinstance(argnums, int):
        changed[argnums] = values
    else:
        for k, value in zip(argnums, values, strict=True):
            changed[k] = value
    return tuple(changed)


def _parted(out: Any, has_aux: bool) -> tuple:
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise RuntimeError("has_aux=True: the function must return a tuple (output, aux), got "
                           f"{type(out).__name__}")
    return out
