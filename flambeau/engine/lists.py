"""torch's `_foreach_` functions: one op on every tensor of a list, as optimizers and averages of
weights are written by hand. Each is the op's method on each tensor, so gradients, dtypes and
errors are those of the op."""

from __future__ import annotations

from .tensor import Tensor

#: ops that have the two forms, out of place and in place
BOTH = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min",
    "cos", "cosh", "div", "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log",
    "log10", "log1p", "log2", "maximum", "minimum", "mul", "neg", "pow", "reciprocal", "round",
    "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan", "tanh", "trunc")
#: methods that are called otherwise than the function
INSTEAD = {"maximum_": "clamp_min_", "minimum_": "clamp_max_", "maximum": "clamp_min",
           "minimum": "clamp_max"}
#: what follows the list, by the names that torch gives it, in the order it has without them
NAMES = ("tensor1", "tensors1", "tensor2", "other", "exponent", "mat2", "weight", "weights",
         "value", "scalar", "scalars")
_NAMED = frozenset(NAMES)


def _columns(count: int, operands: list) -> list:
    """Each operand once per tensor: a list has one for each, anything else is for all."""
    found = []
    for each in operands:
        if not isinstance(each, (list, tuple)):
            each = [each] * count
        elif len(each) != count:
            raise RuntimeError("Tensor lists must have the same number of tensors, got "
                               f"{count} and {len(each)}")
        found.append(each)
    return found


def _rows(name: str, tensors, operands: list | tuple = ()):
    """The tensors, each with its own operands."""
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"_foreach_{name}(): argument 'self' (position 1) must be tuple of "
                        f"Tensors, not {type(tensors).__name__}")
    if not len(tensors):
        raise RuntimeError("Tensor list must have at least one tensor.")
    for k, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {k} in argument 0, but got "
                            f"{type(x).__name__}")
    return zip(tensors, *_columns(len(tensors), list(operands)), strict=True)


def _in_order(name: str, named: dict) -> list:
    """Operands that are given by name, as they would follow each other without."""
    if not _NAMED.issuperset(named):
        unknown = next(each for each in named if each not in _NAMED)
        raise TypeError(f"_foreach_{name}() received an invalid combination of arguments: it has "
                        f"no '{unknown}'")
    if len(named) == 1:
        return [*named.values()]
    return [named[each] for each in NAMES if each in named]


def _scaled(method):
    """x + value * (a * b), of which the value may be missing."""
    def call(x, a, b, value=1):
        return method(x, a, b, value=value)
    return call


def _in_turn(name: str, call):
    """The function that calls this on every tensor of a list."""
    def each(self, *operands, alpha=None, **named):
        if named:
            operands = (*operands, *_in_order(name, named))
        if len(operands) == 3 and isinstance(operands[2], Tensor):  # addcmul: one for each
            operands = (*operands[:2], operands[2].tolist())
        rows = _rows(name, self, operands)
        if alpha is None:
            found = [call(*row) for row in rows]
        elif operands and isinstance(operands[0], (list, tuple, Tensor)):
            found = [call(*row, alpha=alpha) for row in rows]
        else:
            raise TypeError(f"_foreach_{name}() received an invalid combination of arguments: "
                            "alpha is for lists of tensors")
        return found if name.endswith("_") else tuple(found)

    each.__doc__ = f"`{name}` of every tensor in a list."
    return each


def _pow(self, exponent):
    """x ** exponent of every tensor, or a number to the power of every tensor."""
    if isinstance(self, (list, tuple)):
        return tuple([x.pow(e) for x, e in _rows("pow", self, (exponent,))])
    return tuple([self ** e for e in exponent])


def _norm(self, ord=2, dtype=None):
    """The norm of every tensor in a list, each as if it were one vector."""
    return tuple([x.norm(ord, dtype=dtype) for (x,) in _rows("norm", self)])


def _powsum(self, ord=2, dtype=None):
    """The sum of |x| ** ord of every tensor in a list."""
    return tuple([x.abs().pow(ord).sum(dtype=dtype) for (x,) in _rows("powsum", self)])


def _copy(self, src, non_blocking=False):
    """Copy every tensor of one list into that of another."""
    for x, source in _rows("copy_", self, (src,)):
        x.copy_(source, non_blocking)
    return list(self)


def _clone(self, *, memory_format=None):
    """A copy of every tensor in a list."""
    named = {} if memory_format is None else {"memory_format": memory_format}
    return tuple([x.clone(**named) for (x,) in _rows("clone", self)])


def functions() -> dict:
    """The functions under torch's names; asked for when tensors have their methods."""
    own = {"clone": _clone, "copy_": _copy, "norm": _norm, "pow": _pow, "powsum": _powsum}
    for name in (*BOTH, *[f"{n}_" for n in BOTH], "max", "mm", "zero_"):
        method = getattr(Tensor, INSTEAD.get(name, name))
        own.setdefault(name, _in_turn(
            name, _scaled(method) if name.startswith("addc") else method))
    for name, f in own.items():
        f.__name__ = f.__qualname__ = f"_foreach_{name}"
    return {f"_foreach_{name}": f for name, f in own.items()}
