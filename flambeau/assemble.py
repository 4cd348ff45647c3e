"""Registry -> functions, Tensor methods, in-place forms, operators; torch's aliases: one table."""

from __future__ import annotations

import importlib
import os
from typing import Any

from . import ops as declarations
from .core import dtype as dt
from .core.device import resolve
from .core.errors import LinAlgError
from .devices.cpu import checksum  # noqa: F401  what files use
from .engine import (
    again,
    assignment,
    aten,
    attention,  # noqa: F401  fills in `engine`,
    autocast,  # noqa: F401  what amp uses
    buffer,
    by_place,
    convert,
    coo,
    coo_ops,  # noqa: F401  fills in `engine`,
    copies,
    copying,
    create,
    create_like,
    dlpack,
    inplace,
    join,  # noqa: F401  fills in `engine`,
    legacy,
    movement,  # noqa: F401  fills in `engine`,
    moves,
    noise,  # noqa: F401  fills in `engine`,
    number_first,
    protocol,
    random,
    recurrent,  # noqa: F401  fills in `engine`,
    restride,
    results,
    sampling,
    scaling,  # noqa: F401  what amp uses
    sequence,
    shared_memory,  # noqa: F401  what multiprocessing uses
    storages,
    subclass,
    together,  # noqa: F401  what optimizers and clipping use
    whole_step,  # noqa: F401  what optimizers use
    writing,
    written_out,
)
from .engine.dispatch import plug
from .engine.eager import engine, new_table, operator_forms
from .engine.fresh import empty
from .engine.interception import (
    PLAIN,
    Named,
    intercepted,
    module_changes,  # noqa: F401  counted by modules
    plainly,  # noqa: F401  what optimizers use inside compiled functions
    tracers,
    tracing,  # noqa: F401
)
from .engine.modes import modes
from .engine.node import fronts  # noqa: F401  what modules are called by
from .engine.tensor import Tensor, make, signature
from .ops.declare import Composite, Op, Pointwise, Reduction, View, registry

for _file in sorted(os.listdir(declarations.__path__[0])):
    if _file.endswith(".py") and _file != "__init__.py":
        importlib.import_module(f"{declarations.__name__}.{_file[:-3]}")

for _op in list(registry.values()):
    plug(_op)

#: torch's other names for the same thing: alias -> name
ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "clip": "clamp", "concat": "cat",
    "concatenate": "cat", "divide": "div", "fix": "trunc", "greater": "gt", "greater_equal": "ge",
    "less": "lt", "less_equal": "le", "moveaxis": "movedim", "multiply": "mul", "negative": "neg",
    "not_equal": "ne", "subtract": "sub", "swapaxes": "transpose", "swapdims": "transpose",
    "row_stack": "vstack", "trapz": "trapezoid", "unsafe_chunk": "chunk", "unsafe_split": "split",
    "unsafe_split_with_sizes": "split_with_sizes",
    "nn.functional.pixel_shuffle": "pixel_shuffle",
    "nn.functional.pixel_unshuffle": "pixel_unshuffle",
    "nn.functional.channel_shuffle": "channel_shuffle", "native_channel_shuffle": "channel_shuffle",
    "ger": "outer", "spmm": "mm", "dsmm": "mm", "hsmm": "hspmm", "saddmm": "sspaddmm",
    "linalg.matmul": "matmul",
    "linalg.matrix_power": "matrix_power", "linalg.matrix_exp": "matrix_exp",
    "special.expit": "sigmoid", "special.exp2": "exp2",
    "special.digamma": "digamma", "special.erf": "erf", "special.erfc": "erfc",
    "special.erfinv": "erfinv", "special.expm1": "expm1", "special.gammainc": "igamma",
    "special.gammaincc": "igammac", "special.gammaln": "lgamma", "special.i0": "i0",
    "special.log1p": "log1p", "special.logit": "logit", "special.multigammaln": "mvlgamma",
    "special.polygamma": "polygamma", "special.psi": "digamma", "special.round": "round",
    "special.sinc": "sinc", "special.xlogy": "xlogy", "special.softmax": "softmax",
    "special.log_softmax": "log_softmax", "special.logsumexp": "logsumexp",
    "bilinear": "nn.functional.bilinear",
    "cosine_similarity": "nn.functional.cosine_similarity",
    "group_norm": "nn.functional.group_norm", "layer_norm": "nn.functional.layer_norm",
    "pairwise_distance": "nn.functional.pairwise_distance", "rms_norm": "nn.functional.rms_norm",
}

#: operator -> (op, whether the operands are swapped)
OPERATORS = {
    "__add__": ("add", False), "__radd__": ("add", True),
    "__sub__": ("sub", False), "__rsub__": ("sub", True),
    "__mul__": ("mul", False), "__rmul__": ("mul", True),
    "__truediv__": ("true_divide", False), "__rtruediv__": ("true_divide", True),
    "__div__": ("true_divide", False), "__rdiv__": ("true_divide", True),
    "__floordiv__": ("floor_divide", False), "__rfloordiv__": ("floor_divide", True),
    "__mod__": ("remainder", False), "__rmod__": ("remainder", True),
    "__pow__": ("pow", False), "__rpow__": ("pow", True),
    "__and__": ("bitwise_and", False), "__rand__": ("bitwise_and", True),
    "__or__": ("bitwise_or", False), "__ror__": ("bitwise_or", True),
    "__xor__": ("bitwise_xor", False), "__rxor__": ("bitwise_xor", True),
    "__lshift__": ("bitwise_left_shift", False), "__rlshift__": ("bitwise_left_shift", True),
    "__rshift__": ("bitwise_right_shift", False), "__rrshift__": ("bitwise_right_shift", True),
    "__matmul__": ("matmul", False), "__rmatmul__": ("matmul", True),
    "__eq__": ("eq", False), "__ne__": ("ne", False), "__lt__": ("lt", False),
    "__le__": ("le", False), "__gt__": ("gt", False), "__ge__": ("ge", False),
    "__neg__": ("neg", False), "__abs__": ("abs", False), "__invert__": ("bitwise_not", False),
}
INPLACE_OPERATORS = {
    "__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "true_divide",
    "__idiv__": "true_divide",
    "__ifloordiv__": "floor_divide", "__imod__": "remainder", "__ipow__": "pow",
    "__iand__": "bitwise_and", "__ior__": "bitwise_or", "__ixor__": "bitwise_xor",
    "__ilshift__": "bitwise_left_shift", "__irshift__": "bitwise_right_shift",
}


#: ops that are read as attributes of a tensor
ATTRIBUTES = {"T": "T_", "mT": "mT", "H": "H", "mH": "adjoint", "real": "real", "imag": "imag"}


def function_of(op: Op):
    """The public function of an op: its front, and `out=` where the front does not take it."""
    if isinstance(op, (Pointwise, View)) or op.takes_out:
        return op.run
    if isinstance(op, Composite) and op.where == "nn.functional" and op.formula is None:
        return _named_front(op)  # torch's functions there take no `out=`
    run, name = op.run, op.name

    def function(*args, out=None, **kwargs):
        if out is None:
            return run(*args, **kwargs)
        return written_out.run_into(name, run, args, kwargs, out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.doc
    return function


def _named_front(op: Op):
    """A front under its public name."""
    op.run.__name__ = op.run.__qualname__ = op.name
    op.run.__doc__ = op.doc
    return op.run


def method_of(op: Op, function):
    """The method of an op: native where there is such a form."""
    return getattr(op, "method_form", None) or (op.run if isinstance(op, View) else function)


def inplace_of(op: Op) -> tuple:
    """The form that ends in an underscore: (method, function)."""
    name = f"{op.name}_"
    own = Named(name, None)  # what a trace knows this form by
    if isinstance(op, Pointwise):
        needed, many = len(op.operands) - 1, again.takes_many(op)

        def form(self, *args, **kwargs):
            given = (self, *args)
            if tracers or kwargs or not PLAIN.issuperset(map(type, given)):
                found = _asked(own, given, kwargs)
                if found is not None:
                    return found[0]
            if len(args) == needed and not kwargs and not many:
                return inplace.pointwise_inplace(op, self, *args)
            if number_first.is_scaled(op, (self, *args)):
                (_, *others), attributes = number_first.scaled(op, (self, *args))
                return inplace.pointwise_inplace(op, self, *others, **attributes)
            _, operands, attributes = _arranged(op, (self, *args), kwargs)
            inplace.pointwise_inplace(op, *operands, **attributes)
            if not modes.grad or self.node is None:
                again.remember(op.quick, op, self, args, kwargs, _arranged)
            return self
    else:
        def form(self, *args, **kwargs):
            given = (self, *args)
            if tracers or kwargs or not PLAIN.issuperset(map(type, given)):
                found = _asked(own, given, kwargs)
                if found is not None:
                    return found[0]
            engine.overwrite(self, name, op.run, args, kwargs)
            if table is not None and (not modes.grad or self.node is None):
                again.remember(table, op, self, args, kwargs, again.one_step)
            return self

        table = new_table() if isinstance(op, Composite) and op.formula is None else None
    form.__name__ = form.__qualname__ = name
    form.__doc__ = f"In-place form of `{op.name}`."
    own.run = form
    if isinstance(op, Pointwise):
        return again.pointwise_forms(op, form)
    return (form, form) if table is None else again.composite_forms(form, table)


def _arranged(op: Pointwise, args: tuple, kwargs: dict) -> tuple[Pointwise, list, dict]:
    """The op, the operands of its form in place, and its attributes."""
    needed = len(op.operands)
    operands = list(args[:needed])
    public = dict(zip(("input", "other"), op.operands, strict=False))
    attributes = {public.get(k, k): v for k, v in kwargs.items()}
    for missing in op.operands[len(operands):]:
        if missing in attributes:
            operands.append(attributes.pop(missing))
        elif missing in op.defaults:
            operands.append(op.defaults[missing])
        else:
            raise TypeError(f"{op.name}_() missing 1 required positional argument: '{missing}'")
    if len(args) > needed + len(op.attributes):
        raise TypeError(f"{op.name}_() takes {needed - 1 + len(op.attributes)} positional "
                        f"argument(s) but {len(args) - 1} were given")
    attributes.update(zip(op.attributes, args[needed:], strict=False))
    return op, operands, attributes


def _asked(own: Named, args: tuple, kwargs: dict):
    """(result,) if a trace, or an argument that is no plain tensor, answers for a form in place."""
    if tracers and isinstance(args[0], Tensor):
        return tracers[-1](own, args, kwargs)
    return intercepted(own, args, kwargs)


#: public functions by dotted name, and what else lives among them
functions: dict[str, object] = {"linalg.LinAlgError": LinAlgError,
                                "as_strided_": restride.as_strided_}


def adopt(key: str, op: Op) -> None:
    """The public forms of one op: function, method, and those that end in an underscore."""
    function = function_of(op) if op.function_form else None
    method = method_of(op, function or op.run) if op.method and not op.where else None
    if not isinstance(op, (Pointwise, Reduction, View)):
        function, method = by_place.placed_forms(op, function, method)
    if function is not None:
        functions[key] = function
    if method is not None:
        setattr(Tensor, str(op.method), method)
    if op.inplace and (op.method or op.function_form):
        method, function = inplace_of(op)
        if op.method and not op.where:
            setattr(Tensor, method.__name__, method)
        if op.function_form:
            functions.setdefault(f"{key}_", function)
            subclass.functions[Named(f"{op.name}_", None)] = function


def install() -> None:
    protocol.install()
    for key, op in registry.items():
        adopt(key, op)
    for part in (buffer, create_like, legacy, moves, random, sampling, storages, copies, dlpack,
                 coo):
        part.install()
    for name, (target, swapped) in OPERATORS.items():
        if target in registry:
            setattr(Tensor, name, _operator(name, registry[target], swapped))
    Tensor.__invert__ = _inverted(Tensor.__invert__)
    for name, target in INPLACE_OPERATORS.items():
        if target in registry:
            form = getattr(Tensor, f"{target}_", None)
            if form is not None:
                setattr(Tensor, name, form)
    for name, target in ATTRIBUTES.items():
        run = registry[target].run
        setattr(Tensor, name, property(run, _attribute_setter(run)))
    for alias, name in ALIASES.items():
        if name in functions:
            functions.setdefault(alias, functions[name])
        for suffix in ("", "_"):
            if name + suffix in functions:
                functions.setdefault(alias + suffix, functions[name + suffix])
            if "." not in alias and hasattr(Tensor, name + suffix):
                setattr(Tensor, alias + suffix, getattr(Tensor, name + suffix))
    subclass.install(registry, functions)
    space = declarations.namespaces.namespace("aten")
    space._find = _of_aten
    space._packets.update({name: declarations.namespaces.Known("aten", name, run)
                           for name, run in aten.APART.items()})


def _of_aten(name: str):
    """The op that torch.ops.aten has under a name: a public function, or a method."""
    return functions.get(name) or functions.get(f"nn.functional.{name}") or (
        functions.get(name.replace("linalg_", "linalg.", 1)) or functions.get(
            name.replace("fft_", "fft.", 1)) or getattr(Tensor, name, None))


def _attribute_setter(run):
    return lambda x, value: assignment.assign(run(x), value)


_operator_forms: dict[Op, tuple] = {}


def _operator(name: str, op: Op, swapped: bool):
    if isinstance(op, Pointwise) and len(op.operands) == 2:
        if op not in _operator_forms:
            _operator_forms[op] = operator_forms(op)
        return _operator_forms[op][swapped]
    if not swapped:
        return method_of(op, op.run)
    run = op.run

    def reflected(self, other):
        return run(other, self)

    reflected.__name__ = name
    return reflected


def _inverted(run):
    """`~`, which refuses what has no bits as Python's own numbers do."""
    def __invert__(self):
        try:
            return run(self)
        except NotImplementedError:
            raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type "
                            "tensors") from None
    return __invert__


# -- what the engine calls back into ---------------------------------------------------------------


def sum_to(g: Tensor, shape) -> Tensor:
    """Sum a gradient over the dimensions a shape was broadcast along."""
    have = g.sig.shape
    if have == tuple(shape):
        return g
    lead = len(have) - len(shape)
    dims = tuple(range(lead)) + tuple(
        d + lead for d, n in enumerate(shape) if n == 1 and have[d + lead] != 1)
    if dims:
        # Without a view the sum is nobody else's, and a leaf may keep it as its gradient.
        only_lead = len(dims) == lead
        g = registry["sum"].run(g, dims, not only_lead)
        if only_lead:
            return g
    return g if lead == 0 else registry["view"].run(g, tuple(shape))


def cast(x: Tensor, dtype: dt.dtype) -> Tensor:
    """The elements in another dtype; x itself if it has it."""
    return x if x.sig.dtype is dtype else converters[dtype].run(x)


def without_grad(function, *args, **kwargs):
    before, modes.grad = modes.grad, False
    try:
        return function(*args, **kwargs)
    finally:
        modes.grad = before


class _Converter(Pointwise):
    """Conversion to one dtype: a pointwise op like any other."""

    def __init__(self, target: dt.dtype):
        self._target = target
        super().__init__(lambda x: x, f"to_{target.name}", method=False, function_form=False,
                         inplace=False, backward="ToCopyBackward0", promote=())
        self.written_dtype = target


converters = {d: _Converter(d) for d in dt.ALL}
for _op in converters.values():
    plug(_op)
identity = registry["clone"]

engine.sum_to = sum_to
engine.cast = cast
engine.reshape = registry["reshape"].run
engine.without_grad = without_grad
engine.tensor = convert.from_data
engine.to_array = convert.to_array
engine.linspace = sequence.linspace
engine.named = results.named
engine.like_named = results.like_named
engine.clone = identity.run
engine.identity = identity
engine.into_out = written_out.into_out
engine.written = lambda op, args, kwargs, out: written_out.run_into(
    op.name, op.run, args, kwargs, out)
engine.overwrite = inplace.overwrite
engine.fill_op = registry["fill"]
engine.fill_form = lambda x, value: inplace.pointwise_inplace(engine.fill_op, x, value)
engine.item = convert.item
engine.resize = written_out.resized
engine.copy_into = copying.copy_into
engine.demand_apart = writing.demand_apart
engine.add = registry["add"].run
engine.divide = registry["true_divide"].run
for _name in ("diagonal", "floor_divide", "narrow", "real", "remainder", "select",
              "slice", "transpose", "unbind", "view"):
    setattr(engine, _name, registry[_name].run)
engine.view_dtype = engine.view
engine.masked_fill = registry["masked_fill"]


def fill(x: Tensor, value) -> Tensor:
    """Set every element, unrecorded."""
    inplace.pointwise_into(constant, x, (value,), {})
    return x


adding: Any = registry["add"]
_adders: dict = {}  # machine code that adds to what is there, by kin


def accumulate_into(have: Tensor, g: Tensor) -> None:
    """have += g, unrecorded: how gradients gather in a leaf."""
    sig = have.sig
    run = _adders.get(sig.kin) if g.sig is sig and sig.kin is not None else None
    if run is None:
        inplace.pointwise_into(adding, have, (have, g), {})
        if g.sig is sig and sig.kin is not None and sig.contiguous:
            key = ("into", sig.kin, sig.kin, sig.kin, (("alpha", int),))
            plan = adding.kin_plans.get(key)
            if plan is not None:
                _adders[sig.kin] = plan[2]
    else:
        run(have.ptr, have.ptr, g.ptr, 1, sig.numel)
    have.mem.version += 1


def repeated(g: Tensor, meta) -> Tensor:
    """One element seen everywhere in a shape, unrecorded."""
    return make(signature(g.sig.dtype, meta.shape, (0,) * meta.rank, meta.device), g.mem, g.ptr)


def copy_like(g: Tensor, sig) -> Tensor:
    """A copy laid out as a signature says."""
    out = empty(convert.dense_signature(sig))
    copying.copy_into(out, g)
    return out


def full(shape, value, dtype=None, where=None) -> Tensor:
    """A new tensor of one value."""
    sig = signature(dtype or dt.of_scalar(value), tuple(shape), None, resolve(where))
    return create.filled(empty(sig), value)


def zeros_of(sig) -> Tensor:
    return create.filled(empty(convert.dense_signature(sig)), 0)


class _Constant(Pointwise):
    """One number everywhere."""

    def __init__(self):
        super().__init__(lambda x: x, "constant", method=False, function_form=False, inplace=False)


constant = _Constant()
plug(constant)
engine.constant = constant
engine.fill = fill
engine.accumulate_into = accumulate_into
engine.copy_like = copy_like
engine.repeated = repeated
engine.zeros_of = zeros_of
engine.full = full
engine.empty = lambda shape, dtype=None, where=None: empty(
    signature(dtype or dt.default_float(), tuple(shape), None, resolve(where)))
engine.zeros_like = lambda x: zeros_of(x.sig)
