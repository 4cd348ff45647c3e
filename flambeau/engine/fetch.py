"""Fronts of ops that fetch and join elements: what is known already takes one frame.

Each looks up what was planned for these signatures, asks one native call whether indices are in
bounds, and runs the kernel. All else, errors among it, is left to the op's usual front.
"""

from __future__ import annotations

from operator import itemgetter

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import CPU
from ..devices.cpu import borders, taking
from ..devices.cpu.bounds import within
from ..devices.cpu.remember import keep
from ..ops.declare import Op, engine, registry
from . import pointwise as pw
from . import selection
from .eager import NOTHING, new_table
from .formula import FormulaBack, record
from .fresh import empty
from .indexed import plan_of
from .interception import PLAIN, tracers
from .join import JoinBack, known
from .modes import modes
from .node import accumulates, kept_values, new_node
from .storage import checkers
from .tensor import LEAF, Signature, Tensor, make, signature
from .views import Step

_INDEX = (dt.int64, dt.int32)


def _usable(x: Signature, index: Signature) -> bool:
    return (x.device is CPU and index.device is CPU and x.tag is None and index.tag is None
            and index.dtype in _INDEX and index.contiguous and index.numel > 0)


def _has_whole_rows(x: Signature) -> bool:
    """Whether what lies under each place of the first dimension is one piece."""
    return tuple(x.strides[1:]) == sh.contiguous_strides(tuple(x.shape[1:]))


def _recorded(out: Tensor, x: Tensor, index: Tensor, label: str, chosen) -> None:
    node, sig = x.node, x.sig
    out.node = new_node(
        Step(label, lambda g: [selection.put(engine.zeros_of(sig), chosen, g, "add", label)]),
        (x if node is LEAF else node,), (index,), (out.sig,))


# -- by index --------------------------------------------------------------------------------------


class _Fetch:
    """How elements of one signature are fetched by indices of another."""

    __slots__ = ("check", "count", "frame", "high", "last", "out", "program", "run")

    def __init__(self, x: Signature, index: Signature, frame, dim: int, by_rows: bool, shape=None):
        self.frame, self.high = frame, x.shape[dim]
        self.check, self.count = within(index.dtype.name), index.numel
        if by_rows:
            size = x.dtype.itemsize
            self.program = taking.Rows(index.numel, x.numel // self.high * size,
                                       x.strides[0] * size)
            self.run, self.last = taking.function(index.dtype.name), self.program.address
            self.out = signature(x.dtype, shape or frame.loops)
            return
        out, self.run, self.last, _, self.program = selection.reading(frame, x)
        self.out = out if shape is None else signature(out.dtype, shape)


def _by_index(label: str, frame_of):
    """The front of f(x, dim, index)."""
    def wrapped(op: Op, otherwise):
        plans, op.takes_out = new_table(), True

        def planned(x, dim, index):
            if not (isinstance(x, Tensor) and isinstance(index, Tensor) and type(dim) is int
                    and _usable(x.sig, index.sig) and x.sig.rank and x.sig.numel):
                return None
            dim = sh.wrap_dim(dim, x.sig.rank)
            frame = frame_of(x, dim, index)
            if frame is None:
                return None
            whole = frame_of is _rows_frame and dim == 0 and _has_whole_rows(x.sig)
            return _Fetch(x.sig, index.sig, frame, dim, whole)

        def front(*args, out=None, **named):
            if out is not None:
                return engine.written(op, args, named, out)
            if named or len(args) != 3 or checkers or Tensor not in PLAIN:
                return otherwise(*args, **named)
            x, dim, index = args
            try:
                plan = plans.get((x.sig, dim, index.sig))
            except (AttributeError, TypeError):
                return otherwise(*args)
            if plan is None:
                result = otherwise(*args)
                plans[x.sig, dim, index.sig] = planned(*args) or False
                return result
            if plan is False or not plan.check(index.ptr, plan.count, 0, plan.high):
                return otherwise(*args)
            out = empty(plan.out)
            plan.run(out.ptr, x.ptr, index.ptr, plan.last)
            if x.node is not None and modes.grad:
                _recorded(out, x, index, label, selection.Selection(plan.frame, (index,)))
            return out

        front.__name__, front.__doc__ = op.name, op.doc
        return front

    return wrapped


def _gather_frame(x, dim: int, index):
    return selection.along(index, dim).frame if index.sig.rank == x.sig.rank else None


def _rows_frame(x, dim: int, index):
    return selection.rows(index, tuple(x.sig.shape), dim).frame if index.sig.rank == 1 else None


# -- embedding -------------------------------------------------------------------------------------


class _EmbeddingBack(FormulaBack):
    """Adds rows to the gradient of a table that is a leaf; any other table gets one of its own."""

    def pull(self, node, g):
        (leaf,) = node.parents
        if node.extra is None and g.sig.contiguous and accumulates(leaf, g):
            kept = dict(zip(self.op.wanted, kept_values(node), strict=True))
            if kept["padding_idx"] < 0 and not kept["scale_grad_by_freq"] and not kept["sparse"]:
                _add_rows(leaf, kept["indices"], g)
                return [None]
        return super().pull(node, g)


def _add_rows(leaf: Tensor, index: Tensor, g: Tensor) -> None:
    """Add rows to a leaf's gradient, at an index that is known to be in bounds."""
    shape = tuple(leaf.sig.shape)
    have = leaf.grad
    if have is None:
        have = leaf._grad = engine.zeros_of(leaf.sig)
    flat = make(signature(g.sig.dtype, (index.sig.numel, shape[1])), g.mem, g.ptr)
    frame = selection.flat_rows(index.sig, shape)
    selection.write(have, selection.Selection(frame, (index,)), flat, "add")
    have.mem.version += 1


def _embedding(op: Op, otherwise):
    """nn.functional.embedding without a bound on norms."""
    if op.where != "nn.functional":
        return otherwise
    plans, table = new_table(), registry["embedding"]
    back = _EmbeddingBack(table)
    names = ["g", "weight_meta", "indices", "padding_idx", "scale_grad_by_freq", "sparse"]
    kept = itemgetter(*[names.index(name) for name in table.wanted])

    def planned(index, weight):
        if not (isinstance(weight, Tensor) and isinstance(index, Tensor)
                and _usable(weight.sig, index.sig) and weight.sig.rank == 2 and weight.sig.numel):
            return None
        flat = selection.flat_rows(index.sig, tuple(weight.sig.shape))
        return _Fetch(weight.sig, index.sig, flat, 0, _has_whole_rows(weight.sig),
                      (*index.sig.shape, weight.sig.shape[1]))

    def front(input, weight, padding_idx=None, max_norm=None, norm_type=2.0,
              scale_grad_by_freq=False, sparse=False):
        given = input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        if tracers:  # most likely the next call on a known path
            followed = tracers[-1].follow(op, given, NOTHING, modes.grad)
            if followed is not None:
                return followed
        try:
            plan = plans.get((input.sig, weight.sig))
        except AttributeError:
            return otherwise(*given)
        if plan is None:
            plan = plans[input.sig, weight.sig] = planned(input, weight) or False
        if plan is False or max_norm is not None or checkers or Tensor not in PLAIN or (
                padding_idx is not None and not -plan.high <= padding_idx < plan.high) or (
                not plan.check(input.ptr, plan.count, 0, plan.high)):
            return otherwise(*given)
        out = empty(plan.out)
        plan.run(out.ptr, weight.ptr, input.ptr, plan.last)
        node = weight.node
        if node is not None and modes.grad:
            padding = -1 if padding_idx is None else padding_idx % plan.high
            out.node = new_node(
                back, (weight if node is LEAF else node,),
                kept((None, weight.sig, input, padding, scale_grad_by_freq, sparse)), (out.sig,))
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


# -- joins -----------------------------------------------------------------------------------------


def _any_node(tensors) -> bool:
    """Whether one of them is part of a graph; most often none is."""
    for x in tensors:  # noqa: SIM110  a generator would cost more than all of them
        if x.node is not None:
            return True
    return False


def _join(label: str, fresh: bool):
    """The front of cat or stack."""
    def wrapped(op: Op, otherwise):
        op.takes_out = True

        def front(*args, out=None, **named):
            if out is not None:
                return engine.written(op, args, named, out)
            if named or len(args) > 2 or type(args[0]) not in (list, tuple):
                return otherwise(*args, **named)
            if tracers:
                followed = tracers[-1].follow(op, args, NOTHING, modes.grad)
                if followed is not None:
                    return followed
            tensors = args[0]
            pair = len(tensors) == 2  # the usual case, at half the cost
            try:
                if pair:
                    one, other = tensors
                    sigs = one.sig, other.sig
                else:
                    sigs = tuple([x.sig for x in tensors])
                plan = known.get((sigs, args[1] if len(args) == 2 else 0, fresh))
            except (AttributeError, TypeError):
                return otherwise(*args)
            if plan is None:
                return otherwise(*args)
            sig, whole, steps, dim, _ = plan
            result = empty(sig)
            start = result.ptr
            if whole is not None:
                run, last = whole
                if pair:
                    run(start, one.ptr, other.ptr, last)
                else:
                    run(start, *[x.ptr for x in tensors], last)
            else:
                for x, (run, last, move) in zip(tensors, steps):
                    run(start + move, x.ptr, last)
            wanted = (one.node or other.node) if pair else _any_node(tensors)
            if wanted and modes.grad and sig.dtype.kind in "fc":
                parents = tuple([x if x.node is LEAF else x.node for x in tensors])
                back = JoinBack(sigs, dim, fresh, [p is not None for p in parents])
                result.node = new_node(Step(label, back), parents, (), (sig,))
            return result

        front.__name__, front.__doc__ = op.name, op.doc
        return front

    return wrapped


# -- borders ---------------------------------------------------------------------------------------


class _Border:
    """One value around a tensor: a copy of what is kept of it, and a fill for each side."""

    __slots__ = ("copy", "fills", "out", "value")

    def __init__(self, x: Signature, pad: tuple, value):
        pairs = [(0, 0)] * (x.rank - len(pad) // 2) + [
            (pad[k], pad[k + 1]) for k in range(len(pad) - 2, -1, -2)]
        shape = tuple(n + a + b for n, (a, b) in zip(x.shape, pairs, strict=True))
        self.out = out = signature(x.dtype, shape)
        kept = [n + min(a, 0) + min(b, 0) for n, (a, b) in zip(x.shape, pairs, strict=True)]
        size, self.copy = x.dtype.itemsize, None
        if min(kept) > 0:
            to, from_ = ([sum(max(sign * a, 0) * s for (a, _), s in zip(
                pairs, sig.strides, strict=True)) * size] for sign, sig in ((1, out), (-1, x)))
            self.copy = (*_copy(signature(x.dtype, kept, x.strides), out), *to, *from_)
        self.value = engine.full((), value, x.dtype)
        self.fills = [self._fill(pairs, kept, d, after) for d in range(x.rank)
                      for after in (False, True) if pairs[d][after] > 0]
        self.fills = [fill for fill in self.fills if fill is not None]

    def _fill(self, pairs, kept, d: int, after: bool):
        """One side of a dimension: earlier ones as far as the tensor reaches, later ones whole."""
        out, (a, b) = self.out, pairs[d]
        shape = (*kept[:d], b if after else a, *out.shape[d + 1:])
        if min(shape) <= 0:
            return None
        starts = [*(max(first, 0) for first, _ in pairs[:d]), out.shape[d] - b if after else 0]
        move = sum(n * s for n, s in zip(starts, out.strides, strict=False)) * out.dtype.itemsize
        repeated = signature(out.dtype, shape, (0,) * len(shape))
        return *_copy(repeated, out), move


def _copy(source: Signature, out: Signature):
    """(plan, code, last argument) of a copy into a part of `out` that has the source's shape."""
    part = signature(out.dtype, source.shape, out.strides)
    plan = pw.plan(engine.identity, (source,), (), part)
    return plan, plan[2], plan[3]


def _constant_pad(op: Op, otherwise):
    plans = new_table()

    def planned(x, pad, value):
        sig = x.sig
        plain = sig.device is CPU and sig.tag is None and sig.numel and sig.rank
        if not plain or not all(type(p) is int for p in pad) or isinstance(value, Tensor):
            return None
        plan = _Border(sig, pad, value)
        return plan if plan.out.numel else None

    def front(x, pad, value=0):
        try:
            plan = plans.get((x.sig, pad, value))
        except (AttributeError, TypeError):
            return otherwise(x, pad, value)
        if plan is None:
            result = otherwise(x, pad, value)
            keep(plans, (x.sig, pad, value), planned(x, pad, value) or False)
            return result
        if plan is False or Tensor not in PLAIN:
            return otherwise(x, pad, value)
        out = empty(plan.out)
        start, given = out.ptr, plan.value.ptr
        if plan.copy is not None:
            _, run, last, to, from_ = plan.copy
            run(start + to, x.ptr + from_, last)
        for _, run, last, move in plan.fills:
            run(start + move, given, last)
        if x.node is not None and modes.grad:
            record(op, {"x": x, "pad": pad, "value": value}, out)
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _bordered(x: Signature, out: Signature, pad: tuple, mode: str):
    """(signature of the result, plan) of lines or planes with borders; or None."""
    if x.tag is not None or x.device is not CPU or not x.contiguous or not out.numel or (
            len(pad) > 4 or not all(type(p) is int and p >= 0 for p in pad)):
        return None
    left, right, top, bottom = (*pad, 0, 0)[:4]
    height = x.shape[-2] if len(pad) == 4 else 1
    plan = borders.Plan(x.dtype.itemsize, x.numel // (height * x.shape[-1]), height, x.shape[-1],
                        (top, bottom), (left, right), mode)
    return signature(x.dtype, out.shape), plan


def _border(mode: str):
    """The front of an indexed op that makes borders: natively, where it is lines or planes."""
    def wrapped(op: Op, otherwise):
        plans = new_table()

        def front(x, before, after):
            if tracers or type(x) is not Tensor or Tensor not in PLAIN:
                return otherwise(x, before, after)
            plan = plans.get((x.sig, before, after))
            if plan is None:
                out = otherwise(x, before, after)
                pad = [n for pair in zip(before[::-1], after[::-1], strict=True) for n in pair]
                found = _bordered(x.sig, out.sig, tuple(pad), mode)
                plans[x.sig, before, after] = (found and (*found, plan_of(
                    op, x.sig, {"before": before, "after": after}))) or ()
                return out
            if not plan:
                return otherwise(x, before, after)
            sig, native, way = plan
            out = empty(sig)
            native.function(out.ptr, x.ptr, *native.numbers)
            return out if x.node is None else otherwise.made(out, x, way)

        front.__name__, front.__doc__ = op.name, op.doc
        return front

    return wrapped


def _pad(op: Op, otherwise):
    """nn.functional.pad with a constant, or of planes of which nothing is recorded."""
    constant, plans = registry["constant_pad_nd"], new_table()
    ways = {"reflect": registry["mirrored"], "replicate": registry["replicated"]}

    def bordered(x, pad, mode):
        """The result of what was met before, or None."""
        try:
            plan = plans[x.sig, pad, mode]
        except (KeyError, AttributeError, TypeError):
            return None
        if tracers or Tensor not in PLAIN:
            return None
        if not plan or (x.node is not None and modes.grad):
            if mode not in ways or type(x) is not Tensor:
                return None
            return ways[mode].run(x, pad[::2][::-1], pad[1::2][::-1])  # checked when first met
        sig, plan = plan
        out = empty(sig)
        plan.function(out.ptr, x.ptr, *plan.numbers)
        return out

    def front(input, pad, mode="constant", value=None) -> Tensor:
        if mode == "constant" and type(pad) is tuple and Tensor in PLAIN:
            return constant.run(input, pad, 0 if value is None else value)
        if value is not None or type(pad) is not tuple:
            return otherwise(input, pad, mode, value)
        out = bordered(input, pad, mode)
        if out is None:
            out = otherwise(input, pad, mode, value)  # which checks
            if type(input) is Tensor and not tracers and (input.sig, pad, mode) not in plans:
                plans[input.sig, pad, mode] = _bordered(input.sig, out.sig, pad, mode)
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


#: op -> its front, given the op and the front that answers everything
def _take(op: Op, otherwise):
    """take(x, index), where nothing is recorded."""
    plans, op.takes_out = new_table(), True

    def front(*args, **named):
        if named or len(args) != 2 or tracers or checkers or Tensor not in PLAIN:
            return otherwise(*args, **named)
        x, index = args
        try:
            key = x.sig, index.sig
        except AttributeError:
            return otherwise(x, index)
        plan = plans.get(key)
        if plan is None:
            result = otherwise(x, index)
            plans[key] = _planned_take(*key) or False
            return result
        if plan is False or (modes.grad and x.node is not None):
            return otherwise(x, index)
        sig, check, count, size, run, last, _ = plan
        if not check(index.ptr, count, -size, size):
            return otherwise(x, index)
        out = empty(sig)
        run(out.ptr, x.ptr, index.ptr, size, last)
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _planned_take(x: Signature, index: Signature):
    """(signature, check, count, size, code, last argument, what keeps them alive)."""
    if not _usable(x, index) or not x.contiguous or not x.numel or index.kin is None:
        return None
    frame = selection.frame_along(signature(index.dtype, (index.numel,)), 0, True)
    _, run, last, _, program = selection.reading(frame, signature(x.dtype, (x.numel,)))
    return (signature(x.dtype, tuple(index.shape)), within(index.dtype.name), index.numel, x.numel,
            run, last, program)


#: name -> rank of tensors -> (whether they get a new dimension, which one they are joined along)
_JOINED = {
    "hstack":       {1: (False, 0), 2: (False, 1), 3: (False, 1), 4: (False, 1)},
    "vstack":       {1: (True, 0), 2: (False, 0), 3: (False, 0), 4: (False, 0)},
    "dstack":       {2: (True, 2), 3: (False, 2), 4: (False, 2)},
    "column_stack": {1: (True, 1), 2: (False, 1), 3: (False, 1), 4: (False, 1)},
}


def _side_by_side(op: Op, otherwise):
    """hstack and its kin of tensors of one rank, which are one cat or stack of them as they are."""
    ways, op.takes_out = _JOINED[op.name], True

    def front(*args, **named):
        if named or len(args) != 1 or tracers or type(args[0]) not in (list, tuple):
            return otherwise(*args, **named)
        tensors = args[0]
        first = tensors[0] if tensors else None
        if type(first) is not Tensor:
            return otherwise(tensors)
        sig = first.sig
        way = ways.get(sig.rank)
        if way is None or sig.tag is not None:
            return otherwise(tensors)
        fresh, dim = way
        for x in tensors:
            if type(x) is not Tensor or (fresh and x.node is not None) or (  # cat's step is named
                    x.sig is not sig and (fresh or x.sig.rank != sig.rank)):
                return otherwise(tensors)
        return registry["stack" if fresh else "cat"].run(tensors, dim)

    front.__name__, front.__doc__ = op.name, op.doc
    return front


FRONTS = {
    **dict.fromkeys(_JOINED, _side_by_side),
    "take":            _take,
    "cat":             _join("CatBackward0", False),
    "stack":           _join("StackBackward0", True),
    "gather":          _by_index("GatherBackward0", _gather_frame),
    "index_select":    _by_index("IndexSelectBackward0", _rows_frame),
    "embedding":       _embedding,
    "constant_pad_nd": _constant_pad,
    "mirrored":        _border("reflect"),
    "pad":             _pad,
    "replicated":      _border("replicate"),
}
