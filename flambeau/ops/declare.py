"""The six kinds of op, and the registry.

An op is declared once, by a decorated function; fronts, methods, in-place forms, gradients,
docs and tests are derived from the declaration. Called on exprs a pointwise op becomes a node of
an expression; called on anything else an op runs on the engine that is plugged in below.

Parameters that are tensors are annotated: `T` for one, `Ts` for a list of them. A pointwise op's
positional parameters are its operands, tensors or numbers; those after `*` are attributes. Numbers
are given to the kernel when it runs, except attributes and values named in `bake`. Operands are
joined to one dtype; `promote=(1, 2)` leaves the others, such as a condition, as they are. `check`
is given operands (signatures or numbers) and attributes before anything is planned, to refuse them.
`said` is the name by which messages call an op that has no public name of its own.

A gradient names what it wants among `g` (the gradient of the result), the op's own parameters,
`out`, and `<name>_meta` for a parameter of which only shape and dtype matter: just what it names
is kept for backward. It returns one value per tensor parameter, in order; a value may be a
function without arguments, called only if that gradient is wanted, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core import dtype as dt
from ..core import expr as ex
from ..core.dtype import BOOL, FLOAT, INDEX, REAL, SAME, SUM
from ..core.expr import Expr
from ..core.signature import document_of, parameters_of

__all__ = ["BOOL", "FLOAT", "INDEX", "REAL", "SAME", "SUM", "Composite", "Indexed", "Library",
           "Engine", "Op", "Pointwise", "Reduction", "View", "composite", "engine", "indexed",
           "library", "pointwise", "reduction", "registry", "view"]

#: every op by name; a name with dots says where it lives (`nn.functional.gelu`)
registry: dict[str, Op] = {}



class Engine:
    """What bodies and formulas ask of the engine that runs them; it plugs itself in here.

    full(shape, value, dtype, device), zeros_of(signature), zeros_like(x), cast(x, dtype), clone(x),
    contiguous(x), reshape(x, shape), sum_to(x, shape), to_array(x), tensor(data, dtype) ...
    """

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"the engine has no {name}; import flambeau before running ops")


engine = Engine()

if TYPE_CHECKING:
    T: TypeAlias = Any
    Ts: TypeAlias = Any
else:
    T = "T"    # annotation of a parameter that is a tensor
    Ts = "Ts"  # of one that is a sequence of tensors


class Op:
    """What can be computed, declared once.

    `backward` is what torch calls the step of its graph, where it is not Name + Backward0; where
    torch has several names it is a function of the step, or of a view's arguments, or a table by
    which operands of a pointwise op are tensors (t) and which numbers (n).
    """

    kind = ""
    wanted: list[str]  # what the formula names
    engine: Any        # what runs it, its tables of plans and its other forms: plugged in later
    plans: dict
    kin_plans: dict
    quick: dict
    alike: dict
    method_form: Any
    reflected: Any
    takes_out = False  # whether its front takes `out=` itself

    def __init__(self, function: Callable, name: str | None = None, *, rule: str = SAME,
                 samples=(), method: bool | str = True, inplace: bool = False,
                 function_form: bool = True, where: str = "", backward: Any = None,
                 said: str | None = None):
        self.name = name or function.__name__
        self.said = said or self.name
        self.body, self.rule, self.samples = function, rule, samples
        self.doc = document_of(function)
        self.method = self.name if method is True else method
        self.inplace, self.function_form, self.where = inplace, function_form, where
        self.backward_name = backward
        self.formula: Callable | None = None
        self.run: Callable = _unplugged
        self._read_parameters(function)
        key = f"{where}.{self.name}" if where else self.name
        if key in registry:
            raise ValueError(f"op {key} is declared twice")
        registry[key] = self

    def _read_parameters(self, function: Callable) -> None:
        """Names, defaults and which parameters are tensors."""
        positional, keyword, self.defaults = parameters_of(function)
        self.names = [*positional, *keyword]
        notes = function.__annotations__
        self.tensor_names = [n for n in self.names if notes.get(n) in ("T", "Ts", "T | None")]

    def gradient(self, formula: Callable) -> Op:
        """Decorator: how the op goes back."""
        self.formula = formula
        self.wanted = parameters_of(formula)[0]
        return self

    def __call__(self, *args, **kwargs):
        return self.run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.kind} op {self.name}>"

    def __str__(self) -> str:
        import inspect  # only those who read pay for it

        lines = [f"{self.kind} {self.name}{inspect.signature(self.body)}"]
        lines += [f"    {line}" for line in self.doc.splitlines()]
        return "\n".join(lines)


def _unplugged(*args, **kwargs):
    raise RuntimeError("ops run on an engine; import flambeau")


class Pointwise(Op):
    """Each element of the result from the elements at the same place of the operands."""

    kind = "pointwise"

    written_dtype: dt.dtype | None = None  # of a derived op: the dtype its result always has
    check: Callable | None = None  # raises for operands it refuses, before they are promoted

    def __init__(self, function, name=None, *, promote=True, bake=(), check=None, **options):
        super().__init__(function, name, **{"inplace": True, **options})
        self.operands, self.attributes, _ = parameters_of(function)
        self.promoted = tuple(range(len(self.operands))) if promote is True else tuple(promote)
        self.baked, self.baked_values = frozenset(), bake
        if isinstance(bake, (tuple, list)):
            self.baked = frozenset(b for b in bake if isinstance(b, str))
            self.baked_values = frozenset(b for b in bake if not isinstance(b, str))
        self.check = check

    def bakes(self, value) -> bool:
        """Whether a number given as an operand becomes part of the kernel."""
        return value in self.baked_values

    def __call__(self, *args, **kwargs):
        for a in args:
            if isinstance(a, Expr):
                return self.node(*args, **kwargs)
        return self.run(*args, **kwargs)

    def node(self, *args, **attributes) -> Expr:
        """The op as one node of an expression."""
        attributes = {**{k: v for k, v in self.defaults.items() if k in self.attributes},
                      **attributes}
        joined = ex.lift(*(args[i] for i in self.promoted))
        wanted = dt.operating(self.rule, joined[0].dtype)
        values = list(args)
        for i, value in zip(self.promoted, joined, strict=True):
            values[i] = ex.cast(value, wanted)
        return ex.make(self, tuple(values), tuple(sorted(attributes.items())),
                       self.element(values, attributes).dtype)

    def element(self, args: list[Expr], attributes: dict) -> Expr:
        """The body, on one element."""
        return self.body(*args, **attributes)

    def partials(self, node: Expr, moves) -> list[Expr | None]:
        """What each moving argument adds to the movement of this node."""
        attributes = dict(node.attr or ())
        return [None if move is None else self._push(i, move, node, attributes)
                for i, move in enumerate(moves)]

    def _push(self, i: int, move: Expr, node: Expr, attributes: dict) -> Expr | None:
        """How the node moves with argument i: the gradient of each real part, times the move."""
        if node.dtype.kind != "c" and node.args[i].dtype.kind != "c":
            return self.pull(i, move, node.args, node, attributes)
        parts = []
        for unit in (1, 1j) if node.dtype.kind == "c" else (1,):
            back = self.pull(i, ex.const(unit, node.dtype), node.args, node, attributes)
            if back is None:
                return None
            parts.append(ex.real(ex.conj(back) * move))
        return parts[0] if len(parts) == 1 else ex.complex_of(*parts)

    def pull(self, i: int, g: Expr, args, out: Expr, attributes: dict):
        """The gradient with respect to operand i, as an expr, or None if there is none."""
        if self.formula is not None:
            values = dict(zip(self.operands, args, strict=True)) | attributes
            values |= {"g": g, "out": out}
            parts = self.formula(*(values[name] for name in self.wanted))
            part = parts[i] if isinstance(parts, tuple) else parts
            return part() if isinstance(part, FunctionType) else part
        leaves = [ex.make("state", (), 1000 + k, a.dtype) for k, a in enumerate(args)]
        body = self.element(leaves, attributes)
        back = dict(zip(leaves, args, strict=True))
        slopes = [ex.tangent(body, {leaves[i]: ex.const(unit, leaves[i].dtype)})
                  for unit in ((1, 1j) if leaves[i].dtype.kind == "c" else (1,))]
        if slopes[0] is None:
            return None
        return _backwards(g, [ex.substitute(slope, back) for slope in slopes if slope is not None])


def _backwards(g: Expr, slopes: list[Expr]) -> Expr:
    """A gradient from the slopes along the real and, of a complex operand, the imaginary axis."""
    along = slopes[0]
    if along.dtype.kind != "c":
        parts = [g * slope for slope in slopes]
    else:
        parts = [ex.real(ex.conj(g) * slope) for slope in slopes]
    return parts[0] if len(parts) == 1 else ex.complex_of(*parts)


class Reduction(Op):
    """Elements along some dimensions folded into one.

    The body is one step of the fold: (state, element), or with `indexed` (state, element,
    position along the reduced dimension), and returns the new state, a position last. What follows
    `*` are attributes: numbers given when the kernel runs. `start` is a number, a tuple of them, or
    a function of the dtype; `merge` joins two partial states (by default the step itself);
    `finish` makes the result of the state and of what it names among `count`, the attributes, and
    the op of `after`. `after=other` first reduces by another op, whose result the step takes as
    its third argument. `results` names several results with their dtype rules, and `result` is a
    function of the dtype where no rule fits. `empty=False` refuses to reduce nothing, `accepts`
    raises for dtypes it refuses, `wide` folds many float32 in float64, `typed` takes dtype=,
    `numbered` calls its step of the graph Backward1 if dimensions were given, `named` is the
    name its results are published under, and `bare` reduces nothing over no dimensions.
    A `running` one is a scan: along one dimension, it keeps what it has so far at each place.
    """

    kind = "reduction"

    def __init__(self, function, name=None, *, start, merge=None, finish=None, empty=True,
                 indexed=False, results=None, result=None, after=None, accepts=None, wide=False,
                 typed=False, numbered=False, named=None, bare=False, running=False, **options):
        super().__init__(function, name, **options)
        self.results_name, self.bare, self.running = named, bare, running
        self.start, self.merge, self.finish = start, merge, finish
        self.empty, self.indexed, self.results, self.result = empty, indexed, results, result
        self.after, self.accepts, self.wide = after, accepts, wide
        self.typed, self.numbered = typed, numbered

    def _read_parameters(self, function) -> None:
        self.attributes, own = parameters_of(function)[1:]
        self.names = ["x", "dim", "keepdim", "dtype", *self.attributes]
        self.defaults = {"dim": None, "keepdim": False, "dtype": None,
                         **{name: own[name] for name in self.attributes if name in own}}
        self.tensor_names = ["x"]


class View(Op):
    """Another shape and strides over the same storage; no data moves.

    The body takes the input's signature (shape, strides, offset, dtype) and the op's own
    arguments, and returns shape and strides, and an offset in elements if it moved, and a dtype if
    it is another. Where no view will do it returns None, and `otherwise`, given the tensor and the
    arguments, makes the result. With `variadic` the last parameter may be given as loose integers.
    """

    kind = "view"

    def __init__(self, function, name=None, *, variadic=False, otherwise=None,
                 differentiable=True, **options):
        super().__init__(function, name, **options)
        self.variadic, self.otherwise = variadic, otherwise
        self.differentiable = differentiable

    def _read_parameters(self, function) -> None:
        super()._read_parameters(function)
        self.tensor_names = self.names[:1]


class Indexed(Op):
    """out[i...] = x[f(i...)], or its transpose, a scatter.

    The body takes x, the coordinates of the place as exprs, and the op's own arguments, and returns
    the element as an expr that is linear in the elements it reads: x[c0, c1, ...] is one, and
    x.size(d) a size. Coordinates it computes must lie inside x. Integers among the arguments, alone
    or in tuples, are exprs too, so that one kernel serves all their values. `shape`, given x's
    signature and the arguments, checks them and returns the shape of the result. The gradient, a
    scatter-add, is derived.
    """

    kind = "indexed"

    def __init__(self, function, name=None, *, shape, **options):
        super().__init__(function, name, **options)
        self.shape = shape

    def _read_parameters(self, function) -> None:
        super()._read_parameters(function)
        del self.names[1]  # the coordinates
        self.tensor_names = self.names[:1]


class Library(Op):
    """What a device answers by name; the body is the shape rule.

    The body takes the op's own parameters, tensors as their signatures, checks them, and returns
    the shape of the result, or (shape, dtype), or a list of those for several results; None when
    the shape depends on the values.
    """

    kind = "library"


class Composite(Op):
    """Other ops put together. The body is run on values: tensors, or traced tensors.

    With `keeps` the body runs unrecorded parts, such as row programs, and returns its result and a
    tuple of what its gradient is given after `g`.
    """

    kind = "composite"
    rows: tuple | None = None  # row programs, forward and back, where it is one of each

    def __init__(self, function, name=None, *, keeps=False, **options):
        super().__init__(function, name, **options)
        self.keeps = keeps


def _decorator(cls, **fixed):
    """@kind, @kind(rule), @kind(rule, samples) and keyword options."""
    def declare(*args, **options):
        if len(args) == 1 and isinstance(args[0], FunctionType):
            return cls(args[0], **fixed)
        names = ("rule", "samples")
        chosen = dict(zip(names, args, strict=False))
        return lambda function: cls(function, **{**fixed, **chosen, **options})
    return declare


pointwise = _decorator(Pointwise)
reduction = _decorator(Reduction)
view = _decorator(View)
indexed = _decorator(Indexed)
library = _decorator(Library)
composite = _decorator(Composite)
