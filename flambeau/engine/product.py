"""Plans and fronts of matrix products: matmul and its special ranks, and linear.

A plan is what pointwise plans are (see Plan there), and native fronts run it: the kernel takes the
address of words that describe the product. Real operands are read where they lie, whatever their
strides; complex ones are where BLAS can read them.
"""

from __future__ import annotations

import ctypes
import math
from math import prod

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import CPU, META
from ..core.lazily import np
from ..devices.cpu import dots, gemm
from ..devices.cpu.bounds import within
from ..devices.cpu.compile import ADDRESSES
from ..devices.cpu.matmul import front as real
from ..devices.cpu.matmul.product import SUMS, Matrix, Product
from ..ops.declare import Op, engine, registry
from ..ops.product import product_shape
from ..ops.refusal import no_kernel
from . import affine, native
from .eager import compile_front, new_table, same_place
from .fresh import empty
from .interception import intercepted
from .modes import modes
from .node import edge_of, fronts, kept_values, new_node
from .storage import checkers
from .tensor import Signature, Tensor, make, signature
from .written_out import run_into

#: work up to which a native front runs a product while it holds the GIL: about 0.1 ms
HELD_WORK = 1 << 18


#: dtypes whose vectors have a product of their own
_DOTS = (dt.float32, dt.float64)


def _nothing(*_) -> None:
    """Runs where there is nothing to compute."""


def _orientation(rows: int, cols: int, strides) -> tuple[int, int] | None:
    """(flag, leading dimension) under which BLAS reads a matrix, or None if it cannot."""
    down, right = strides
    if (right == 1 or cols == 1) and (down >= max(1, cols) or rows == 1):
        return gemm.PLAIN, max(1, cols) if rows == 1 else down
    if (down == 1 or rows == 1) and (right >= max(1, rows) or cols == 1):
        return gemm.TRANSPOSED, max(1, rows) if cols == 1 else right
    return None


def transposed(sig: Signature) -> Signature:
    """The signature of the transposed matrix or matrices; a vector stays as it is."""
    if sig.rank < 2:
        return sig
    shape, strides = tuple(sig.shape), sig.strides
    return signature(sig.dtype, (*shape[:-2], shape[-1], shape[-2]),
                     (*strides[:-2], strides[-1], strides[-2]), sig.device, sig.tag)


class Side:
    """One operand as a batch of matrices."""

    def __init__(self, sig: Signature, left: bool):
        shape, strides = tuple(sig.shape), tuple(sig.strides)
        if sig.rank == 1:
            shape, strides = ((1, *shape), (0, *strides)) if left else ((*shape, 1), (*strides, 0))
        self.batch, self.steps = shape[:-2], strides[:-2]
        self.rows, self.cols = shape[-2:]
        self.strides, self.regular = strides[-2:], sig.regular

    def folded(self) -> Side:
        """All but the last dimension as rows, if they lie evenly."""
        if not self.batch:
            return self
        shape = (*self.batch, self.rows)
        rows, down = prod(shape), self.strides[0]
        if not self.regular or not rows:
            sizes, merged = sh.coalesce(shape, [(*self.steps, down)])
            if len(sizes) > 1 or not rows:
                return self
            down = merged[0][0] if sizes else down
        self.batch, self.steps = (), ()
        self.rows, self.strides = rows, (down if rows > 1 else 1, self.strides[1])
        return self


def plan(x: Signature, w: Signature, back=None, biased: bool = False) -> tuple:
    """The plan of x @ w; a slow one where there is no code for the dtype or an operand."""
    shape = product_shape(x, w)
    where = META if META in (x.device, w.device) else CPU
    out = signature(x.dtype, shape, None, where)
    if where is META or out.numel == 0:
        return _plan(out, _nothing, back)
    if x.shape[-1] == 0:
        return _plan(out, lambda to, *_: ctypes.memset(to, 0, out.nbytes), back)
    if x.rank == w.rank == 1 and x.contiguous and w.contiguous and x.dtype in _DOTS:
        return _plan(out, dots.function(x.dtype.name), back, dots.Length(x.numel))
    a, b = Side(x, True), Side(w, False)
    if not b.batch:
        a = a.folded()
    if x.dtype.name in SUMS:
        return _plan(out, real.product_function(x.dtype.name, biased), back,
                     real_words(a, b, x.dtype, (0, 1) if biased else None))
    words = _complex_words(a, b, x.dtype) if x.dtype.name in gemm.LETTERS else None
    if words is None:
        return _slow(back)
    return _plan(out, gemm.product_function(x.dtype.name, biased), back, words)


def real_words(a: Side, b: Side, dtype: dt.dtype, added=None, addend=(), alpha=1.0,
                beta=1.0) -> Product:
    """The words of a product, with D of strides `added` and steps `addend` along the batch."""
    m, k, n = a.rows, a.cols, b.cols
    offsets = _offsets(a, b, m * n, dtype.itemsize, addend)
    return Product(dtype.name, m, n, k, Matrix(*a.strides), Matrix(*b.strides), n, offsets, added,
                   alpha, beta)


def _slow(back) -> tuple:
    """The plan of what has no native code: it has no signature."""
    return (None, None, None, 0, back, None, None, (), None)


def _plan(out: Signature, run, back, words=None) -> tuple:
    """A plan with what a native front reads of it; long products are left to the Python front."""
    packed = free = None
    if words is not None and words.work <= HELD_WORK:
        packed, free = native.pack(ADDRESSES[run], words.address, 0), out.pop.__self__
        native.set_keep(packed, (0, 2, 1, 3))  # x is kept if w wants a gradient, and w if x does
    last = 0 if words is None else words.address
    return out, out.pop, run, last, back, packed, free, (out,), words


def _complex_words(a: Side, b: Side, dtype: dt.dtype) -> gemm.Product | None:
    m, k, n = a.rows, a.cols, b.cols
    one, other = _orientation(m, k, a.strides), _orientation(k, n, b.strides)
    if one is None and other is None:
        return None
    offsets = [row[:3] for row in _offsets(a, b, m * n, dtype.itemsize)]
    if n == 1 and one is not None and b.strides[0] > 0:
        flag, ld = one
        rows, cols = (m, k) if flag == gemm.PLAIN else (k, m)
        return gemm.Product(gemm.LEFT, flag, 0, m, n, k, ld, b.strides[0], 1, rows, cols, offsets)
    if m == 1 and other is not None and a.strides[1] > 0:
        flag, ld = other
        rows, cols = (k, n) if flag == gemm.PLAIN else (n, k)
        back = gemm.TRANSPOSED if flag == gemm.PLAIN else gemm.PLAIN
        return gemm.Product(gemm.RIGHT, 0, back, m, n, k, a.strides[1], ld, 1, rows, cols, offsets)
    if one is None or other is None:
        return None
    return gemm.Product(gemm.MATRIX, one[0], other[0], m, n, k, one[1], other[1], max(1, n), 0, 0,
                        offsets)


def _offsets(a: Side, b: Side, size: int, itemsize: int, addend=()) -> list:
    """Byte offsets of both operands, the result and an addend with steps along the batch.

    One row for each matrix of the batch.
    """
    if not a.batch and not b.batch:
        return [(0, 0, 0, 0)]
    batch = sh.broadcast("matmul", a.batch, b.batch)
    count = prod(batch)
    return list(zip(sh.offsets(batch, sh.expand_strides(a.batch, a.steps, batch), itemsize),
                    sh.offsets(batch, sh.expand_strides(b.batch, b.steps, batch), itemsize),
                    range(0, count * size * itemsize, size * itemsize),
                    sh.offsets(batch, addend, itemsize) if addend else [0] * count, strict=True))


def _readable(x: Tensor, left: bool) -> Tensor:
    """An operand, copied if BLAS cannot read it where it lies."""
    side = Side(x.sig, left)
    known = _orientation(side.rows, side.cols, side.strides) is not None
    return x if known else engine.contiguous(x)


#: what torch names when it has no code for a dtype, by the ranks of the operands
_KERNELS = {(1, 1): "dot", (2, 1): "addmv_impl_cpu", (1, 2): "addmv_impl_cpu",
            (2, 2): "addmm_impl_cpu_"}


def slow_product(x: Tensor, w: Tensor) -> Tensor:
    """A product that has no code: of integers, or of complex numbers with odd strides."""
    dtype = x.sig.dtype
    if dtype.name in gemm.LETTERS:
        return bare(_readable(x, True), _readable(w, False))
    if dtype.kind == "b":
        raise no_kernel(_KERNELS.get((x.sig.rank, w.sig.rank), "bmm"), dtype)
    wide = dt.float64
    if _fit_floats(x, w):
        found = engine.without_grad(registry["matmul"].run, engine.cast(x, wide),
                                    engine.cast(w, wide))
        return engine.cast(engine.cast(found, dt.int64), dtype)
    return engine.tensor(np.asarray(np.matmul(engine.to_array(x), engine.to_array(w))), dtype)


def _fit_floats(x: Tensor, w: Tensor) -> bool:
    """Whether a product of integers, and all its sums, are exact in float64."""
    bound = math.isqrt((1 << 53) // x.sig.shape[-1])
    for t in (x, w):
        dtype = t.sig.dtype
        if dtype.itemsize < 4 and 1 << 8 * dtype.itemsize <= bound:
            continue
        if dtype not in (dt.int64, dt.int32) or checkers or not within(dtype.name)(
                engine.contiguous(t).ptr, t.sig.numel, -bound, bound + 1):
            return False
    return True


def execute(found: tuple, x: Tensor, w: Tensor, *bias: int) -> Tensor:
    """Run a plan, unrecorded."""
    sig, _, run, last = found[:4]
    if sig is None:
        return engine.without_grad(slow_product, x, w)
    out = empty(sig)
    run(out.ptr, x.ptr, w.ptr, *bias, last)
    return out


def _turned_front(name: str, first: bool, second: bool):
    """x @ w with operands transposed as said, unrecorded and without making views."""
    plans = new_table()

    def front(x: Tensor, w: Tensor) -> Tensor:
        table = plans.setdefault(x.sig, {})
        found = table.get(w.sig)
        if found is None:
            found = plan(transposed(x.sig) if first else x.sig,
                         transposed(w.sig) if second else w.sig)
            table[w.sig] = found
        if found[0] is None:
            x = make(transposed(x.sig), x.mem, x.ptr) if first else x
            w = make(transposed(w.sig), w.mem, w.ptr) if second else w
        return execute(found, x, w)

    return fronts.adopt(front, plans, "2", name, front.__doc__ or name)[0]


bare = _turned_front("product", False, False)
by_transposed = _turned_front("product_nt", False, True)
transposed_by = _turned_front("product_tn", True, False)


# -- the way back --------------------------------------------------------------------------------


def adjoint(x: Tensor) -> Tensor:
    """Transposed, and conjugated if complex."""
    if x.sig.rank > 1:
        x = registry["transpose"].run(x, -2, -1)
    return conjugate(x)


def conjugate(x: Tensor) -> Tensor:
    return registry["conj"].run(x) if x.sig.dtype.kind == "c" else x


def times_adjoint(g: Tensor, w: Tensor) -> Tensor:
    """g @ w^H"""
    if modes.grad or w.sig.dtype.kind == "c":
        return matmul(g, adjoint(w))
    return by_transposed(g, w)


def adjoint_times(x: Tensor, g: Tensor) -> Tensor:
    """x^H @ g"""
    if modes.grad or x.sig.dtype.kind == "c":
        return matmul(adjoint(x), g)
    return transposed_by(x, g)


def rows_of(x: Tensor) -> Tensor:
    """All but the last dimension as one."""
    shape = x.sig.shape
    return x if x.sig.rank == 2 else engine.reshape(x, (prod(shape[:-1]), shape[-1]))


def _left_gradient(g: Tensor, w: Tensor, x: Signature) -> Tensor:
    if w.sig.rank == 1:
        column = registry["unsqueeze"].run(g, -1) if x.rank > 1 else g
        return registry["mul"].run(column, conjugate(w))
    if x.rank == 1:
        part = times_adjoint(registry["unsqueeze"].run(g, -2), w)
        return engine.reshape(engine.sum_to(part, (1, x.shape[0])), tuple(x.shape))
    if w.sig.rank == 2 and x.rank > 2:
        return engine.reshape(times_adjoint(rows_of(g), w), tuple(x.shape))
    return engine.sum_to(times_adjoint(g, w), tuple(x.shape))


def _right_gradient(g: Tensor, x: Tensor, w: Signature) -> Tensor:
    if x.sig.rank == 1:
        if w.rank == 1:
            return registry["mul"].run(g, conjugate(x))
        column = registry["unsqueeze"].run(conjugate(x), -1)
        part = registry["mul"].run(column, registry["unsqueeze"].run(g, -2))
        return engine.sum_to(part, tuple(w.shape))
    if w.rank == 1:
        column = engine.reshape(g, (g.sig.numel, 1))
        return engine.reshape(adjoint_times(rows_of(x), column), tuple(w.shape))
    if w.rank == 2:
        return adjoint_times(rows_of(x), rows_of(g))
    return engine.sum_to(adjoint_times(x, g), tuple(w.shape))


_NAMES = {(1, 1): "DotBackward0", (2, 1): "MvBackward0", (1, 2): "SqueezeBackward4",
          (2, 2): "MmBackward0", (2, 3): "CloneBackward0", (2, 4): "CloneBackward0"}


class ProductBack:
    """Goes back through x @ w."""

    __slots__ = ("op", "w", "x")

    def __init__(self, op: Op, x: Signature, w: Signature):
        self.op, self.x, self.w = op, x, w

    def name(self) -> str:
        if self.op.name == "bmm":
            return "BmmBackward0"
        return _NAMES.get((self.x.rank, self.w.rank), "UnsafeViewBackward0")

    __repr__ = name

    def pull(self, node, g):
        x, w, _ = kept_values(node)
        return [None if node.parents[0] is None else _left_gradient(g, w, self.x),
                None if node.parents[1] is None else _right_gradient(g, x, self.w)]

    def saved(self, node, name):
        return kept_values(node)[{"self": 0, "mat2": 1, "other": 1, "vec": 1}[name]]


def _record(out: Tensor, back, x: Tensor, w: Tensor, *bias: Tensor) -> Tensor:
    """Attach a step if an operand wants a gradient."""
    operands = (x, w, *bias)
    if modes.grad and out.sig.dtype.kind in "fc" and any(t.node is not None for t in operands):
        parents = tuple(None if t.node is None else edge_of(t) for t in operands)
        kept = (x if w.node is not None else None, w if x.node is not None else None, None)
        out.node = new_node(back, parents, kept, (out.sig,))
    return out


# -- fronts ----------------------------------------------------------------------------------------


def _require_tensors(op: Op, given) -> None:
    for position, (name, value) in enumerate(zip(op.names, given, strict=False)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{op.name}(): argument '{name}' (position {position + 1}) must be "
                            f"Tensor, not {type(value).__name__}")


PYTHON_FRONT = '''
def {name}({x}, {w}, *, out=None):
    if out is not None:
        return run_into("{name}", {name}, ({x}, {w}), {{}}, out)
    return call({x}, {w})
'''


def _front(op: Op):
    """The front of a product of two operands; `op.body` checks what this op allows."""
    plans = new_table()

    def call(x, w):
        found = intercepted(op, (x, w), {})
        if found is not None:
            return found[0]
        _require_tensors(op, (x, w))
        table = plans.setdefault(x.sig, {})
        found = table.get(w.sig)
        if found is None:
            same_place(op, (x, w))
            op.body(x.sig, w.sig)
            found = table[w.sig] = plan(x.sig, w.sig, ProductBack(op, x.sig, w.sig))
        return _record(execute(found, x, w), found[4], x, w)

    scope = {"call": call, "run_into": run_into}
    text = PYTHON_FRONT.format(name=op.name, x=op.names[0], w=op.names[1])
    return _adopted(op, _named(compile_front(text, op.name, scope), op), plans)


def _adopted(op: Op, front, plans):
    """The native function and method that run what is known, with the Python front behind."""
    run, context = fronts.adopt(front, plans, "2", op.name, op.doc, op=op)
    if op.method and not op.where:
        op.method_form = fronts.method(context, "2", op.name, op.doc)
    return run


def _named(front, op: Op):
    front.__name__ = front.__qualname__ = op.name
    front.__doc__ = op.doc
    op.takes_out = True
    return front


def matmul(x: Tensor, w: Tensor) -> Tensor:
    return registry["matmul"].run(x, w)


#: (whether x has more than rows, whether there is a bias) -> what torch calls the step
_LINEAR_NAMES = {(False, False): "MmBackward0",         (False, True): "AddmmBackward0",
                 (True, False):  "UnsafeViewBackward0", (True, True):  "ViewBackward0"}


class LinearBack:
    """Goes back through x @ w.T + bias."""

    __slots__ = ("biased", "x")

    def __init__(self, x: Signature, biased: bool):
        self.x, self.biased = x, biased

    def name(self) -> str:
        return _LINEAR_NAMES[self.x.rank > 2, self.biased]

    __repr__ = name

    def pull(self, node, g):
        x, w, _ = kept_values(node)
        to_x, to_w, *to_bias = node.parents
        flat = None if to_w is None and self.x.rank < 3 else rows_of(g)
        return [None if to_x is None else self._input(g, flat, w),
                None if to_w is None else transposed_product(flat, rows_of(x)),
                *[None if to is None else engine.sum_to(g, (g.sig.shape[-1],)) for to in to_bias]]

    def _input(self, g, flat, w):
        if self.x.rank < 3:
            return matmul(g, conjugate(w))
        return engine.reshape(matmul(flat, conjugate(w)), tuple(self.x.shape))

    def saved(self, node, name):
        return kept_values(node)[{"self": 0, "mat1": 0, "mat2": 1, "weight": 1}[name]]


def transposed_product(g: Tensor, x: Tensor) -> Tensor:
    """g^T @ conj(x)"""
    if modes.grad or x.sig.dtype.kind == "c":
        return matmul(registry["transpose"].run(g, -2, -1), conjugate(x))
    return transposed_by(g, x)


def _linear_front(op: Op):
    """Two native fronts, with and without a bias, and Python behind them."""
    plans, biased = new_table(), new_table()

    def call(given):
        found = intercepted(op, given, {})
        if found is not None:
            return found[0]
        _require_tensors(op, given)
        x, w, *bias = [t.sig for t in given]
        table = biased.setdefault(x, {}).setdefault(w, {}) if bias else plans.setdefault(x, {})
        key = bias[0] if bias else w
        found = table.get(key)
        if found is None:
            op.body(*[t.sig for t in given])
            same_place(op, given)
            found = _linear_plan(x, w, *bias)
            if found is None:  # vectors and odd strides: few, and not worth a plan of their own
                return _plain_linear(*given)
            table[key] = found
        out = execute(found, given[0], given[1], *[t.ptr for t in given[2:]])
        return _record(out, found[4], *given)

    unbiased, _ = fronts.adopt(lambda *given: call(given), plans, "2", op.name, op.doc, op=op)

    def linear(input, weight, bias=None):
        if bias is None:
            return unbiased(input, weight)
        return call((input, weight, bias))

    return affine.adopt(_named(linear, op), biased, op)


def _linear_plan(x: Signature, w: Signature, b: Signature | None = None):
    if w.rank != 2 or x.rank < 2 or (b is not None and not (
            b.rank == 1 and b.contiguous and x.shape[-1])):
        return None
    found = plan(x, transposed(w), LinearBack(x, b is not None), b is not None)
    return None if found[0] is None else found


def _plain_linear(x: Tensor, w: Tensor, *bias: Tensor) -> Tensor:
    out = matmul(x, registry["transpose"].run(w, -2, -1) if w.sig.rank > 1 else w)
    return registry["add"].run(out, bias[0]) if bias else out


#: ops with fronts of their own
FRONTS = {"matmul": _front, "mm": _front, "bmm": _front, "mv": _front, "dot": _front,
          "linear": _linear_front}

__all__ = ["FRONTS", "Side", "bare", "matmul", "plan", "real_words"]
