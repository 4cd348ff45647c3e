"""Fronts of pooling: one lookup by signature and options, then native code.

Max pooling that is recorded keeps, for each result, one byte: which tap of its window was the
largest. Dtypes without generated code, meta tensors and errors are left to the library's front.
"""

from __future__ import annotations

from math import prod

from ..core import dtype as dt
from ..core import formats as fm
from ..core import spatial as sp
from ..core.device import CPU
from ..core.lazily import np
from ..devices.cpu import pool_plan
from ..devices.cpu.routines import NATIVE
from ..ops.declare import Op, engine, registry
from .convolve import is_channels_last, plain_values
from .eager import new_table
from .formula import FormulaBack, bind, record
from .fresh import empty
from .interception import PLAIN, tracers
from .modes import modes
from .node import kept_values, new_node
from .storage import checkers
from .tensor import LEAF, Signature, Tensor, signature


def has_code(x, n: int) -> bool:
    sig = getattr(x, "sig", None)
    return isinstance(sig, Signature) and sig.tag is None and sig.device is CPU and (
        sig.rank >= n and sig.numel > 0 and pool_plan.fits(sig.dtype.name, sig.shape[-n:]))


def _laid_out(out: Tensor, last: bool) -> Tensor:
    """With channels side by side where the operand had them so."""
    if not last:
        return out
    shape = out.sig.shape
    form = fm.channels_last if len(shape) == 4 else fm.channels_last_3d
    wanted = empty(signature(out.sig.dtype, tuple(shape), fm.strides_of(shape, form)))
    engine.copy_into(wanted, out)
    return wanted


# -- the largest of each window ------------------------------------------------------------------


class _Largest:
    """Max pooling of one signature with one set of options."""

    def __init__(self, op: Op, n: int, x: Signature, options):
        kernel, stride, padding, dilation, ceil_mode = options
        self.n, self.x, self.sizes = n, x, tuple(x.shape[-n:])
        outs = tuple(sp.pooled(*v, ceil_mode) for v in zip(self.sizes, kernel, stride, padding,
                                                           dilation, strict=True))
        lead = tuple(x.shape[:-n])
        self.plan = pool_plan.max_plan(x.dtype.name, prod(lead), self.sizes, outs, kernel, stride,
                                       padding, dilation)
        self.out = signature(x.dtype, (*lead, *outs))
        self.taps = signature(dt.uint8, (*lead, *outs))
        self.places = signature(dt.int64, (*lead, *outs))
        self.back_to = signature(x.dtype, tuple(x.shape))
        self.last, self.plain = is_channels_last(x), x.contiguous
        self.recordable = prod(kernel) <= pool_plan.MOST_TAPS
        self.back = LargestBack(op, self)

    def run(self, x: Tensor, what: str, kept: Signature | None = None):
        """The result, and what is kept if anything."""
        if not self.plain:
            x = plain_values(x, x.sig.dtype)
        out = empty(self.out)
        if kept is None:
            self.plan.run(what, out.ptr, x.ptr)
            return _laid_out(out, self.last)
        beside = empty(kept)
        self.plan.run(what, out.ptr, x.ptr, beside.ptr)
        return _laid_out(out, self.last), beside

    def gradient(self, g: Tensor, taps: Tensor) -> Tensor:
        g, out = plain_values(g, self.x.dtype), empty(self.back_to)
        self.plan.run("back_taps", out.ptr, g.ptr, taps.ptr)
        return _laid_out(out, self.last)

    def places_of(self, taps: Tensor) -> Tensor:
        """Taps as places in their planes."""
        axes = self.plan.axes[3 - self.n:]
        rest, place = engine.to_array(taps).astype(np.int64), 0
        for d in range(self.n - 1, -1, -1):
            a, outs = axes[d], np.arange(self.out.shape[d - self.n])
            at = (outs * a.step - a.pad).reshape(-1, *[1] * (self.n - 1 - d))
            place = place + (at + rest % a.taps * a.apart) * prod(self.sizes[d + 1:])
            rest = rest // a.taps
        return engine.tensor(place, dt.int64)


class LargestBack:
    """Goes back through max pooling: to the tap that was the largest."""

    __slots__ = ("call", "op")

    def __init__(self, op: Op, call: _Largest):
        self.op, self.call = op, call

    def name(self) -> str:
        return self.op.backward_name or ""

    __repr__ = name

    def pull(self, node, g):
        (taps,), call = kept_values(node), self.call
        if not modes.grad:
            return [call.gradient(g, taps)]
        return [registry["scatter_planes"](g, call.places_of(taps), call.sizes)]

    def saved(self, node, name):
        (taps,) = kept_values(node)
        if name == "result1":
            return self.call.places_of(taps)
        raise AttributeError(f"'{self.name()}' object has no attribute '_saved_{name}'")


#: how a call says that it wants no places
_NO_PLACES = ((False,), (("return_indices", False),))


def _max_pool(op: Op, plain):
    """max_pool1d, 2d and 3d, of both namespaces."""
    n, known, tells = int(op.name[8]), new_table(), op.where == "nn.functional"

    def front(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, *places,
              **named):
        if (places or named) and not (tells and (*places, *named.items()) in _NO_PLACES):
            return plain(input, kernel_size, stride, padding, dilation, ceil_mode, *places, **named)
        try:
            key = (input.sig, kernel_size, stride, padding, dilation, ceil_mode)
            found = known.get(key)
        except (AttributeError, TypeError):
            return plain(input, kernel_size, stride, padding, dilation, ceil_mode)
        if found is None:
            if not has_code(input, n):
                return plain(input, kernel_size, stride, padding, dilation, ceil_mode)
            rule, options = _options(op, n, input.sig, key[1:])
            known[key] = found = _Largest(rule, n, input.sig, options)
        node = input.node
        if node is None or not modes.grad:
            return found.run(input, "values")
        if not found.recordable:
            return plain(input, kernel_size, stride, padding, dilation, ceil_mode)
        out, taps = found.run(input, "taps", found.taps)
        out.node = new_node(found.back, (input if node is LEAF else node,), (taps,), (out.sig,))
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _options(op: Op, n: int, sig: Signature, given):
    """The op that has the checks, and options per dimension; its errors where they are wrong."""
    key = f"{op.name.removesuffix('_with_indices')}_with_indices"
    rule = registry.get(key) or registry[f"nn.functional.{key}"]
    kernel, stride, padding, dilation, ceil_mode = given
    rule.body(sig, kernel, stride, padding, dilation, ceil_mode)
    return rule, (*sp.pool_options(n, kernel, stride, padding, dilation), bool(ceil_mode))


def _with_places(op: Op, plain):
    """The op that gives places too; what goes back by them is in its declaration."""
    n, known = int(op.name[8]), new_table()

    def front(*args, **kwargs):
        bound = bind(op, args, kwargs)
        input, *given = (bound[name] for name in op.names)
        if not has_code(input, n):
            return plain(*args, **kwargs)
        rule, options = _options(op, n, input.sig, given)
        found = known.get((input.sig, options))
        if found is None:
            found = known[input.sig, options] = _Largest(rule, n, input.sig, options)
        outs = list(found.run(input, "places", found.places))
        if input.node is not None and modes.grad:
            record(op, bound, outs)
        return engine.named(op, outs)

    return front


def _adaptive_plan(op: Op, n: int, sig: Signature, outs: tuple):
    """(plan, signatures of the results, whether channels come last)."""
    sigs = [signature(dtype, shape) for shape, dtype in op.body(sig, outs)]
    plan = pool_plan.adaptive_plan(sig.dtype.name, prod(sig.shape[:-n]), tuple(sig.shape[-n:]),
                                   outs)
    return plan, sigs, is_channels_last(sig)


def _adaptive(op: Op, plain):
    """The largest of windows that share a plane out, and their places."""
    n, known = int(op.name[17]), new_table()

    def front(*args, **kwargs):
        bound = bind(op, args, kwargs)
        input, outs = bound["input"], tuple(bound["output_size"])
        if not has_code(input, n) or prod(outs) == 0:
            return plain(*args, **kwargs)
        found = known.get((input.sig, outs))
        if found is None:
            found = known[input.sig, outs] = _adaptive_plan(op, n, input.sig, outs)
        plan, sigs, last = found
        values, places = map(empty, sigs)
        seen = plain_values(input, input.sig.dtype)
        plan.run("places", values.ptr, seen.ptr, places.ptr)
        results = [_laid_out(values, last), places]
        if input.node is not None and modes.grad:
            record(op, bound, results)
        return engine.named(op, results)

    return front


def _adaptive_values(op: Op, plain):
    """The same without their places, of one size for all dimensions, where nothing is recorded."""
    if op.where != "nn.functional":
        op.takes_out = True
        return plain
    n, known = int(op.name[17]), new_table()

    def front(input, output_size, return_indices=False):
        if return_indices or type(input) is not Tensor or type(output_size) is not int or (
                tracers or checkers or Tensor not in PLAIN
                or (modes.grad and input.node is not None)):
            return plain(input, output_size, return_indices)
        sig = input.sig
        found = known.get((sig, output_size))
        if found is None:
            result = plain(input, output_size)  # which checks
            if has_code(input, n) and output_size and sig.contiguous:
                rule = registry[f"nn.functional.{op.name}_with_indices"]
                known[sig, output_size] = _adaptive_plan(rule, n, sig, (output_size,) * n)
            return result
        plan, sigs, _ = found
        values, places = map(empty, sigs)
        plan.run("places", values.ptr, input.ptr, places.ptr)
        return values

    front.__name__, front.__doc__ = op.name, op.doc
    return front


#: ops whose fronts are put in front of the usual ones
FRONTS: dict = {
    **{f"max_pool{n}d": _max_pool for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": _with_places for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive_values for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d_with_indices": _adaptive for n in (1, 2, 3)},
}  # fmt: skip


def _by_place(name: str, n: int, sig: Signature, x: Tensor, places: Tensor, volume: int):
    """Elements put to places, or taken from there; None where planes do not go together."""
    small = places.sig.shape
    if not has_code(x, n) or tuple(x.sig.shape[:-n]) != tuple(small[:-n]) or not places.sig.numel:
        return None
    plan = pool_plan.places_plan(sig.dtype.name, prod(small[:-n]), volume, prod(small[-n:]))
    x, places, out = plain_values(x, sig.dtype), plain_values(places, dt.int64), empty(sig)
    plan.run(name, out.ptr, x.ptr, places.ptr)
    return out


def _scatter(sig: Signature, bound: dict):
    x, places, sizes = bound["input"], bound["places"], bound["sizes"]
    return _by_place("scatter", len(sizes), sig, x, places, prod(sizes))


def _gather(sig: Signature, bound: dict):
    x, places, n = bound["input"], bound["places"], bound["n"]
    return _by_place("gather", n, sig, x, places, prod(x.sig.shape[-n:]))


# -- means ---------------------------------------------------------------------------------------


def _mean_of(sig: Signature, sizes, bound: dict) -> pool_plan.Plan:
    kernel, stride, padding, _ = sp.pool_options(len(sizes), bound["kernel_size"], bound["stride"],
                                                 bound["padding"])
    return pool_plan.mean_plan(
        sig.dtype.name, prod(sig.shape[:-len(sizes)]), tuple(sizes), kernel, stride, padding,
        bool(bound["ceil_mode"]), bool(bound["count_include_pad"]), bound.get("divisor_override"))


class _Mean:
    """Average pooling of one signature with one set of options."""

    def __init__(self, op: Op, n: int, x: Signature, bound: dict):
        self.x, self.plain, self.last = x, x.contiguous, is_channels_last(x)
        given = {**bound, "input": x}
        shape = op.body(**given)
        self.out = signature(x.dtype, tuple(shape))
        self.plan = _mean_of(self.out, x.shape[-n:], bound)
        self.back_to = signature(x.dtype, tuple(x.shape))
        kept = {"g": None, "input_meta": x}
        self.kept = tuple([kept[name] if name in kept else bound[name] for name in op.wanted])
        self.back = MeanBack(op, self)

    def run(self, x: Tensor) -> Tensor:
        if not self.plain:
            x = plain_values(x, x.sig.dtype)
        out = empty(self.out)
        self.plan.run("mean", out.ptr, x.ptr)
        return _laid_out(out, self.last)


class MeanBack(FormulaBack):
    """Goes back by native code; by the formula where gradients are recorded themselves."""

    def __init__(self, op: Op, call: _Mean):
        super().__init__(op)
        self.call = call

    def pull(self, node, g):
        if modes.grad:
            return super().pull(node, g)
        kept_values(node)
        call, out = self.call, empty(self.call.back_to)
        given = plain_values(g, call.x.dtype)
        call.plan.run("spread", out.ptr, given.ptr)
        return [_laid_out(out, call.last)]


def _mean_front(op: Op, plain):
    """avg_pool1d, 2d and 3d: one lookup by the arguments as they are given."""
    n, known = int(op.name[8]), new_table()

    def front(*args, **kwargs):
        try:
            key = (args[0].sig, args[1:], *kwargs.items())
            found = known.get(key)
        except (AttributeError, IndexError, TypeError):
            return plain(*args, **kwargs)
        x = args[0]
        if found is None:
            if not has_code(x, n):
                return plain(*args, **kwargs)
            bound = bind(op, args, kwargs)
            if (bound.get("divisor_override") or 1) < 0:
                return plain(*args, **kwargs)
            found = known[key] = _Mean(op, n, x.sig, bound)
        out, node = found.run(x), x.node
        if node is not None and modes.grad:
            out.node = new_node(found.back, (x if node is LEAF else node,), found.kept, (out.sig,))
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


FRONTS.update({f"avg_pool{n}d": _mean_front for n in (1, 2, 3)})


def mean_back(sig: Signature, bound: dict):
    """avg_pool_back as the library calls it: the result's signature and the bound arguments."""
    g, sizes = bound["g"], bound["sizes"]
    if not has_code(g, len(sizes)) or (bound["divisor_override"] or 1) < 0 or prod(sizes) == 0:
        return None
    plan, out = _mean_of(sig, sizes, bound), empty(sig)
    given = plain_values(g, sig.dtype)
    plan.run("spread", out.ptr, given.ptr)
    return _laid_out(out, is_channels_last(g.sig))


NATIVE.update({"avg_pool_back": mean_back, "scatter_planes": _scatter, "gather_planes": _gather})
