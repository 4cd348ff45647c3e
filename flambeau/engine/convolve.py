"""Fronts of convolutions: one lookup by signatures and options, then native code.

A `_Call` is what is known of one convolution: its plan, and those of its gradients, made when first
needed. What generated code has no form for (complex and integer dtypes, nothing to compute, meta
tensors) is left to the library's front, as is every error.
"""

from __future__ import annotations

from math import prod

from ..core import dtype as dt
from ..core import formats as fm
from ..core import shape as sh
from ..core import spatial as sp
from ..core.device import CPU
from ..devices.cpu import conv_plan, conv_weight_plan
from ..devices.cpu.conv_windows import ELEMENTS, Plan
from ..ops.declare import Op, engine
from .eager import new_table, same_place
from .formula import FormulaBack
from .fresh import empty
from .interception import intercepted
from .modes import modes
from .node import kept_values, new_node
from .storage import allocate
from .tensor import LEAF, Signature, Tensor, make, signature

#: dtypes whose sums are in single precision
_HALVES = (dt.float16, dt.bfloat16)


class _Run:
    """One native function with its plan, memory for its result, and scratch memory."""

    __slots__ = ("address", "function", "plan", "scratch", "sig", "work")

    def __init__(self, plan: Plan, sig: Signature):
        self.function, self.plan, self.sig = plan.function, plan, sig
        self.address, self.work, self.scratch = plan.address, plan.work, plan.bytes

    def __call__(self, *operands: int) -> Tensor:
        out, scratch = empty(self.sig), allocate(self.scratch)
        self.function(out.ptr, *operands, scratch.address, self.address, self.work)
        return out


def is_channels_last(sig: Signature) -> bool:
    """Whether torch would say that a tensor's channels lie side by side."""
    order = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}.get(sig.rank)
    if order is None or sig.contiguous:
        return False
    least, strides, shape = 0, sig.strides, sig.shape
    if strides[1] == 0:
        return False
    for d in order:
        if shape[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * max(shape[d], 1)
    return True


def plain_values(x: Tensor, dtype: dt.dtype) -> Tensor:
    """A tensor's values, unrecorded, in a dtype and one after the other."""
    sig = x.sig
    if sig.contiguous and sig.dtype is dtype:
        return x
    return engine.without_grad(_converted, make(sig, x.mem, x.ptr), dtype)


def _converted(x: Tensor, dtype: dt.dtype) -> Tensor:
    x = x if x.sig.dtype is dtype else engine.cast(x, dtype)
    return x if x.sig.contiguous else engine.contiguous(x)


class _Call:
    """A convolution of known operands: how to compute it and its gradients."""

    def __init__(self, op: Op, x: Signature, w: Signature, b: Signature | None, options, outs,
                 transposed: bool, groups: int):
        self.x, self.w, self.b, self.groups, self.transposed = x, w, b, groups, transposed
        self.options, self.given = options, x.dtype
        self.dtype = dt.float32 if x.dtype in _HALVES else x.dtype
        self.element = ELEMENTS[self.dtype.name]
        self.kernel = tuple(w.shape[2:])
        #: channels of a group on either side of the weights
        self.many, self.few = w.shape[0] // groups, w.shape[1]
        rows = self.few if transposed else self.many
        self.out = (x.shape[0], rows * groups, *outs)
        self.last = is_channels_last(x) or is_channels_last(w)
        self.direct = not self.last and self.dtype is x.dtype
        self.run = self._result(tuple(x.shape), x.strides if self.direct else None, rows, outs,
                                b is not None, transposed)
        self.plain_weights = w.contiguous and self.dtype is w.dtype
        self.to_data: _Run | None = None
        self.to_weight: _Run | None = None
        self.to_bias: _Run | None = None
        self.back = ConvolutionBack(op, self)

    def _result(self, shape, strides, rows, outs, biased, transposed) -> _Run:
        sig = signature(self.dtype, (shape[0], rows * self.groups, *outs))
        plan = conv_plan.result_plan(
            self.element, self.dtype.itemsize, shape, strides or sh.contiguous_strides(shape),
            self.kernel, rows, self.options, self.groups, tuple(outs), sig.strides, biased,
            transposed)
        return _Run(plan, sig)

    def result(self, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        if not self.direct:
            x = plain_values(x, self.dtype)
        if not self.plain_weights:
            w = plain_values(w, self.dtype)
        if b is not None and not (b.sig.contiguous and b.sig.dtype is self.dtype):
            b = plain_values(b, self.dtype)
        out = self.run(x.ptr, w.ptr, 0 if b is None else b.ptr)
        return out if self.direct else self._finished(out, self.given)

    def _finished(self, out: Tensor, dtype: dt.dtype) -> Tensor:
        """In the dtype and the memory format of the operands."""
        if dtype is not self.dtype:
            out = engine.without_grad(engine.cast, out, dtype)
        if not self.last:
            return out
        form = fm.channels_last if out.sig.rank == 4 else fm.channels_last_3d
        wanted = empty(signature(dtype, tuple(out.sig.shape),
                                 fm.strides_of(out.sig.shape, form)))
        engine.copy_into(wanted, out)
        return wanted

    # -- gradients ---------------------------------------------------------------------------------

    def data_gradient(self, g: Tensor, w: Tensor) -> Tensor:
        found = self.to_data
        if found is None:
            rows = self.many if self.transposed else self.few
            found = self.to_data = self._result(self.out, None, rows, tuple(self.x.shape[2:]),
                                                False, not self.transposed)
        plain = plain_values(w, self.dtype)  # held while it is read
        out = found(g.ptr, plain.ptr, 0)
        return self._finished(out, self.given)

    def weight_gradient(self, x: Tensor, g: Tensor) -> Tensor:
        x = x if self.direct and not self.transposed else plain_values(x, self.dtype)
        data, result = (g, x) if self.transposed else (x, g)
        found = self.to_weight
        if found is None:
            plan = conv_weight_plan.weight_plan(
                self.element, self.dtype.itemsize, tuple(data.sig.shape), data.sig.strides,
                self.kernel, self.many, self.options, self.groups, tuple(result.sig.shape[2:]))
            sig = signature(self.dtype, tuple(self.w.shape))
            found = self.to_weight = _Run(plan, sig)
        out = found(data.ptr, result.ptr)
        return out if self.given is self.dtype else engine.cast(out, self.given)

    def bias_gradient(self, g: Tensor) -> Tensor:
        found = self.to_bias
        if found is None:
            plan = conv_weight_plan.sums_plan(self.element, self.dtype.itemsize, self.out)
            found = self.to_bias = _Run(plan, signature(self.dtype, self.out[1:2]))
        out = found(g.ptr)
        return out if self.given is self.dtype else engine.cast(out, self.given)


class ConvolutionBack(FormulaBack):
    """Goes back by native code; by the formula where gradients are recorded themselves."""

    def __init__(self, op: Op, call: _Call):
        super().__init__(op)
        self.call = call

    def pull(self, node, g):
        if modes.grad:
            return super().pull(node, g)
        kept, call = kept_values(node), self.call
        to_x, to_w, to_b = node.parents
        g = plain_values(g, call.dtype)
        return [None if to_x is None else call.data_gradient(g, kept[2]),
                None if to_w is None else call.weight_gradient(kept[1], g),
                None if to_b is None else call.bias_gradient(g)]


def _record(out: Tensor, found: tuple, x: Tensor, w: Tensor, b: Tensor | None) -> None:
    call, options = found
    parents = tuple([None if t is None else t if t.node is LEAF else t.node for t in (x, w, b)])
    out.node = new_node(call.back, parents, (None, x, w, call.b, *options), (out.sig,))


def _run(found: tuple, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    out = found[0].result(x, w, b)
    if modes.grad and (x.node is not None or w.node is not None
                       or (b is not None and b.node is not None)):
        _record(out, found, x, w, b)
    return out


# -- the form of all convolutions ----------------------------------------------------------------


_calls = new_table()


def _native(*sigs: Signature | None) -> bool:
    return all(s is None or (s.device is CPU and s.tag is None and s.numel > 0 and (
        s.dtype.name in ELEMENTS or s.dtype in _HALVES)) for s in sigs)


def convolution_front(op: Op, plain):
    def front(*args, **kwargs):
        if kwargs or len(args) != len(op.names):
            return plain(*args, **kwargs)
        answered = intercepted(op, args, kwargs)
        if answered is not None:
            return answered[0]
        x, w, b, *options = args
        if not all(isinstance(t, Tensor) for t in (x, w)) or not isinstance(b, Tensor | None):
            return plain(*args)
        key = (x.sig, w.sig, None if b is None else b.sig, *map(_hashable, options))
        found = _calls.get(key)
        if found is None:
            found = _plan(op, args, key)
            if found is None:
                return plain(*args)
            _calls[key] = found
        return _run(found, x, w, b)

    return front


def _hashable(value):
    return tuple(value) if isinstance(value, list) else value


def _plan(op: Op, args, key) -> tuple | None:
    """(call, options) of operands that were met for the first time; errors as the op has them."""
    x, w, b, stride, padding, dilation, transposed, more, groups = key
    if not _native(x, w, b):
        return None
    same_place(op, args[:3])
    shape = op.body(x, w, b, stride, padding, dilation, transposed, more, groups)
    if prod(shape) == 0:
        return None
    options = tuple(map(tuple, (stride, padding, dilation)))
    return _Call(op, x, w, b, options, tuple(shape[2:]), bool(transposed), groups), key[3:]


def convolution_weight_front(op: Op, plain):
    """The weights of a convolution as an op of its own, for gradients of gradients."""
    def front(data, result, kernel_size, stride, padding, dilation, groups):
        tensors = isinstance(data, Tensor) and isinstance(result, Tensor)
        if not tensors or not _native(data.sig, result.sig) or data.sig.dtype in _HALVES or (
                modes.grad and (data.node is not None or result.node is not None)):
            return plain(data, result, kernel_size, stride, padding, dilation, groups)
        sig, y = data.sig, plain_values(result, result.sig.dtype)
        element = ELEMENTS[sig.dtype.name]
        plan = conv_weight_plan.weight_plan(
            element, sig.dtype.itemsize, tuple(sig.shape), sig.strides, tuple(kernel_size),
            y.sig.shape[1] // groups, tuple(map(tuple, (stride, padding, dilation))), groups,
            tuple(y.sig.shape[2:]))
        shape = op.body(sig, y.sig, kernel_size, stride, padding, dilation, groups)
        return _Run(plan, signature(sig.dtype, shape))(data.ptr, y.ptr)

    return front


# -- in one, two and three dimensions --------------------------------------------------------------


def _straight(op: Op, plain):
    """conv1d, conv2d and conv3d: a table of their own, by the arguments as they are given."""
    n, known = int(op.name[4]), new_table()

    def front(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        try:
            key = (input.sig, weight.sig, bias if bias is None else bias.sig, stride, padding,
                   dilation, groups)
            found = known.get(key)
        except (AttributeError, TypeError):
            return plain(input, weight, bias, stride, padding, dilation, groups)
        if found is not None:
            return _run(found, input, weight, bias)
        out = plain(input, weight, bias, stride, padding, dilation, groups)
        if type(out) is Tensor and input.sig.rank == n + 2 and not isinstance(padding, str):
            steps, around, apart = (sp.each(op.name, "", v, n) for v in (stride, padding, dilation))
            found = _calls.get((*key[:3], steps, around, apart, False, (0,) * n, groups))
            if found is not None:
                known[key] = found
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _transposed(op: Op, plain):
    n, known = int(op.name[14]), new_table()

    def front(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1,
              dilation=1):
        given = (stride, padding, output_padding, groups, dilation)
        try:
            key = (input.sig, weight.sig, bias if bias is None else bias.sig, *given)
            found = known.get(key)
        except (AttributeError, TypeError):
            return plain(input, weight, bias, *given)
        if found is not None:
            return _run(found, input, weight, bias)
        out = plain(input, weight, bias, *given)
        if type(out) is Tensor and input.sig.rank == n + 2:
            steps, around, more, apart = (sp.each(op.name, "", v, n) for v in (
                stride, padding, output_padding, dilation))
            found = _calls.get((*key[:3], steps, around, apart, True, more, groups))
            if found is not None:
                known[key] = found
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


#: ops whose fronts are put in front of the usual ones
FRONTS = {
    "convolution":        convolution_front,
    "convolution_weight": convolution_weight_front,
    **{f"conv{n}d": _straight for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _transposed for n in (1, 2, 3)},
}  # fmt: skip
