"""Plans and fronts of matrix products: matmul and its special ranks, and linear.

A plan is (signature of the result, where its memory comes from, native function, address of its
words, the words). Operands that BLAS can read where they lie, transposed or not, are not copied.
"""

from __future__ import annotations

import ctypes
from math import prod

import numpy as np

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import CPU, META
from ..devices.cpu import gemm
from ..ops.declare import Op, engine, registry
from ..ops.product import product_shape
from .eager import compile_front, intercepted, new_table, same_place
from .inplace import write_out
from .modes import modes
from .node import Node, kept_values, new_node, next_sequence
from .storage import grow
from .tensor import LEAF, Signature, Tensor, make, new, signature


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


class _Side:
    """One operand as a batch of matrices."""

    def __init__(self, sig: Signature, left: bool):
        shape, strides = tuple(sig.shape), tuple(sig.strides)
        if sig.rank == 1:
            shape, strides = ((1, *shape), (0, *strides)) if left else ((*shape, 1), (*strides, 0))
        self.batch, self.steps = shape[:-2], strides[:-2]
        self.rows, self.cols = shape[-2:]
        self.strides = strides[-2:]

    def folded(self) -> _Side:
        """All but the last dimension as rows, if they lie evenly."""
        if not self.batch:
            return self
        shape = (*self.batch, self.rows)
        steps = (*self.steps, self.strides[0])
        sizes, merged = sh.coalesce(shape, [steps])
        if len(sizes) > 1 or 0 in shape:
            return self
        self.batch, self.steps = (), ()
        self.rows = prod(shape)
        self.strides = (merged[0][0] if sizes else 1, self.strides[1])
        return self


def plan(x: Signature, w: Signature, biased: bool = False):
    """The plan of x @ w; None where an operand must be copied first, or BLAS has no such dtype."""
    shape = product_shape(x, w)
    where = META if META in (x.device, w.device) else CPU
    out = signature(x.dtype, shape, None, where)
    if where is META or out.numel == 0:
        return out, out.pop, _nothing, 0, None
    if x.shape[-1] == 0:
        return out, out.pop, lambda to, *_: ctypes.memset(to, 0, out.nbytes), 0, None
    if x.dtype.name not in gemm.LETTERS:
        return None
    a, b = _Side(x, True), _Side(w, False)
    if not b.batch:
        a = a.folded()
    words = _words(a, b, x.dtype.itemsize)
    if words is None:
        return None
    run = gemm.product_function(x.dtype.name, biased)
    return out, out.pop, run, words.address, words


def _words(a: _Side, b: _Side, itemsize: int) -> gemm.Product | None:
    m, k, n = a.rows, a.cols, b.cols
    one, other = _orientation(m, k, a.strides), _orientation(k, n, b.strides)
    offsets = _offsets(a, b, m * n, itemsize)
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


def _offsets(a: _Side, b: _Side, size: int, itemsize: int) -> np.ndarray:
    """Byte offsets of both operands and the result, one row for each matrix of the batch."""
    batch = sh.broadcast("matmul", a.batch, b.batch)
    rows = np.zeros((prod(batch), 3), np.int64)
    for column, side in enumerate((a, b)):
        steps = sh.expand_strides(side.batch, side.steps, batch)
        total = np.zeros(batch, np.int64)
        for d, step in enumerate(steps):
            total += (np.arange(batch[d]) * step).reshape((-1,) + (1,) * (len(batch) - d - 1))
        rows[:, column] = total.reshape(-1)
    rows[:, 2] = np.arange(len(rows)) * size
    return (rows * itemsize).tolist()


def readable(x: Tensor) -> Tensor:
    """The operand, copied if BLAS cannot read it where it lies."""
    return engine.contiguous(x)


def slow_product(x: Tensor, w: Tensor) -> Tensor:
    """A product BLAS does not have: odd strides, integers, half precision."""
    dtype = x.sig.dtype
    if dtype.name in gemm.LETTERS:
        return bare(readable(x), readable(w))
    if dtype.kind == "f":
        wide = bare(engine.cast(x, dt.float32), engine.cast(w, dt.float32))
        return engine.cast(wide, dtype)
    if dtype.kind == "b":
        raise RuntimeError('matmul: "addmm_impl_cpu_" not implemented for \'Bool\'; convert to an '
                           "integer or floating point dtype first")
    found = np.matmul(engine.to_array(x), engine.to_array(w))
    return engine.tensor(np.asarray(found), dtype)


_plans: dict = new_table()
_turned: dict = {(False, True): new_table(), (True, False): new_table()}


def bare(x: Tensor, w: Tensor) -> Tensor:
    """x @ w, unrecorded."""
    try:
        found = _plans[x.sig][w.sig]
    except KeyError:
        found = _plans.setdefault(x.sig, {})[w.sig] = plan(x.sig, w.sig)
    if found is None:
        return engine.without_grad(slow_product, x, w)
    sig, pop, run, words, _ = found
    try:
        mem = pop()
    except IndexError:
        mem = grow(sig.nbytes)
    run(mem.address, x.ptr, w.ptr, words)
    return make(sig, mem)


def turned(x: Tensor, w: Tensor, first: bool, second: bool) -> Tensor:
    """x @ w with operands transposed as said, unrecorded and without making views."""
    table = _turned[first, second]
    try:
        found = table[x.sig][w.sig]
    except KeyError:
        found = table.setdefault(x.sig, {})[w.sig] = plan(
            transposed(x.sig) if first else x.sig, transposed(w.sig) if second else w.sig)
    if found is None:
        x = make(transposed(x.sig), x.mem, x.ptr) if first else x
        w = make(transposed(w.sig), w.mem, w.ptr) if second else w
        return engine.without_grad(slow_product, x, w)
    sig, pop, run, words, _ = found
    try:
        mem = pop()
    except IndexError:
        mem = grow(sig.nbytes)
    run(mem.address, x.ptr, w.ptr, words)
    return make(sig, mem)


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
    return turned(g, w, False, True)


def adjoint_times(x: Tensor, g: Tensor) -> Tensor:
    """x^H @ g"""
    if modes.grad or x.sig.dtype.kind == "c":
        return matmul(adjoint(x), g)
    return turned(x, g, True, False)


def rows_of(x: Tensor) -> Tensor:
    """All but the last dimension as one."""
    return x if x.sig.rank == 2 else engine.reshape(x, (-1, x.sig.shape[-1]))


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
        column = engine.reshape(g, (-1, 1))
        return engine.reshape(adjoint_times(rows_of(x), column), tuple(w.shape))
    if w.rank == 2:
        return adjoint_times(rows_of(x), rows_of(g))
    return engine.sum_to(adjoint_times(x, g), tuple(w.shape))


class ProductBack:
    """Goes back through x @ w; shared by all shapes of two ranks."""

    keep = (0, 2, 1, 3)  # by which operands want a gradient: which are kept

    def __init__(self, name: str):
        self._name = name

    def name(self) -> str:
        return self._name

    __repr__ = name

    def pull(self, node, g):
        x, w, x_sig, w_sig = kept_values(node)
        return [None if node.parents[0] is None else _left_gradient(g, w, x_sig),
                None if node.parents[1] is None else _right_gradient(g, x, w_sig)]

    def saved(self, node, name):
        return kept_values(node)[{"self": 0, "mat2": 1, "other": 1, "vec": 1}[name]]


_BACKS = {(1, 1): ProductBack("DotBackward0"), (2, 1): ProductBack("MvBackward0"),
          (1, 2): ProductBack("SqueezeBackward4"), (2, 2): ProductBack("MmBackward0"),
          (3, 3): ProductBack("BmmBackward0")}
_ANY_BACK = ProductBack("UnsafeViewBackward0")


def _record(out: Tensor, x: Tensor, w: Tensor) -> Tensor:
    if not modes.grad or out.sig.dtype.kind not in "fc":
        return out
    node, after = x.node, w.node
    one, two = x.sig, w.sig
    back = _BACKS.get((one.rank, two.rank), _ANY_BACK)
    parents = (x if node is LEAF else node, w if after is LEAF else after)
    kept = (x if after is not None else None, w if node is not None else None, one, two)
    if modes.pack or modes.anomaly:
        out.node = new_node(back, parents, kept, (out.sig,))
        return out
    made = new(Node)
    made.back, made.parents, made.sigs, made.seq = back, parents, (out.sig,), next_sequence()
    made.kept, made.extra = kept, None
    made.versions = (0 if after is None else x.mem.version, 0 if node is None else w.mem.version,
                     0, 0)
    out.node = made
    return out


# -- fronts ----------------------------------------------------------------------------------------


FRONT = '''
def {name}({x}, {w}, *, out=None):
    try:
        sig, pop, run, words, _ = plans[{x}.sig][{w}.sig]
    except (KeyError, AttributeError):
        sig = None
    if sig is None or out is not None:
        return miss({x}, {w}, out)
    try:
        mem = pop()
    except IndexError:
        mem = grow(sig.nbytes)
    result = new(Tensor)
    result.sig = sig
    result.mem = mem
    result.ptr = ptr = mem.address
    run(ptr, {x}.ptr, {w}.ptr, words)
    result.node = None
    if {x}.node is None and {w}.node is None:
        return result
    return record(result, {x}, {w})
'''


def _front(op: Op):
    """The front of a product of two operands; `op.body` checks what this op allows."""
    plans = new_table()

    def miss(x, w, out):
        found = intercepted(op, (x, w), {} if out is None else {"out": out})
        if found is not None:
            return found[0]
        if out is not None:
            return write_out(op.name, engine.without_grad(op.run, x, w), (x, w), out)
        for position, (name, value) in enumerate(zip(op.names, (x, w), strict=False)):
            if not isinstance(value, Tensor):
                raise TypeError(f"{op.name}(): argument '{name}' (position {position + 1}) must be "
                                f"Tensor, not {type(value).__name__}")
        same_place(op, (x, w))
        op.body(x.sig, w.sig)
        found = plan(x.sig, w.sig)
        if found is None:
            result = engine.without_grad(slow_product, x, w)
            return _record(result, x, w) if x.node is not None or w.node is not None else result
        plans.setdefault(x.sig, {})[w.sig] = found
        return op.run(x, w)

    scope = {"plans": plans, "grow": grow, "new": new, "Tensor": Tensor, "miss": miss,
             "record": _record}
    return _named(compile_front(FRONT.format(name=op.name, x=op.names[0], w=op.names[1]), op.name,
                                scope), op)


def _named(front, op: Op):
    front.__name__ = front.__qualname__ = op.name
    front.__doc__ = op.doc
    op.takes_out = True
    return front


def matmul(x: Tensor, w: Tensor) -> Tensor:
    return registry["matmul"].run(x, w)


class LinearBack:
    """Goes back through x @ w.T + bias."""

    def __init__(self, name: str):
        self._name = name

    def name(self) -> str:
        return self._name

    __repr__ = name

    def pull(self, node, g):
        x, w, x_sig = kept_values(node)
        to_x, to_w, *to_bias = node.parents
        flat = None if to_w is None and x_sig.rank < 3 else rows_of(g)
        return [None if to_x is None else self._input(g, flat, w, x_sig),
                None if to_w is None else adjoint_times(flat, conjugate(rows_of(x))),
                *[None if to is None else engine.sum_to(g, (g.sig.shape[-1],)) for to in to_bias]]

    @staticmethod
    def _input(g, flat, w, x_sig):
        if x_sig.rank < 3:
            return matmul(g, conjugate(w))
        return engine.reshape(matmul(flat, conjugate(w)), tuple(x_sig.shape))

    def saved(self, node, name):
        return kept_values(node)[{"self": 0, "mat1": 0, "mat2": 1, "weight": 1}[name]]


_LINEAR_BACKS = {(2, True): LinearBack("AddmmBackward0"), (2, False): LinearBack("MmBackward0"),
                 (3, True): LinearBack("ViewBackward0"), (3, False): LinearBack("UnsafeViewBackward0")}


def _linear_front(op: Op):
    plans = new_table()

    def miss(x, w, b):
        found = intercepted(op, (x, w, b), {})
        if found is not None:
            return found[0]
        for position, (name, value) in enumerate(zip(op.names, (x, w, b), strict=True)):
            if not isinstance(value, Tensor) and not (value is None and position == 2):
                raise TypeError(f"linear(): argument '{name}' (position {position + 1}) must be "
                                f"Tensor, not {type(value).__name__}")
        op.body(x.sig, w.sig, None if b is None else b.sig)
        same_place(op, (x, w) if b is None else (x, w, b))
        biased = b is not None
        found = None
        if w.sig.rank == 2 and x.sig.rank > 1 and (
                not biased or (b.sig.rank == 1 and b.sig.contiguous and x.sig.shape[-1])):
            found = plan(x.sig, transposed(w.sig), biased)
        if found is None:  # vectors and odd strides: few, and not worth a plan of their own
            out = matmul(x, registry["transpose"].run(w, -2, -1) if w.sig.rank > 1 else w)
            return out if b is None else registry["add"].run(out, b)
        back = _LINEAR_BACKS[2 if x.sig.rank < 3 else 3, biased]
        plans.setdefault(x.sig, {})[w.sig, b.sig if biased else None] = (*found[:4], back, found[4])
        return front(x, w, b)

    def front(input, weight, bias=None):
        try:
            sig, pop, run, words, back, _ = plans[input.sig][
                weight.sig, None if bias is None else bias.sig]
        except (KeyError, AttributeError):
            sig = None
        if sig is None:
            return miss(input, weight, bias)
        try:
            mem = pop()
        except IndexError:
            mem = grow(sig.nbytes)
        result = new(Tensor)
        result.sig = sig
        result.mem = mem
        result.ptr = ptr = mem.address
        if bias is None:
            run(ptr, input.ptr, weight.ptr, words)
        else:
            run(ptr, input.ptr, weight.ptr, bias.ptr, words)
        result.node = None
        node, after = input.node, weight.node
        if (node is None and after is None and (bias is None or bias.node is None)) or (
                not modes.grad):
            return result
        parents = [input if node is LEAF else node, weight if after is LEAF else after]
        if bias is not None:
            parents.append(bias if bias.node is LEAF else bias.node)
        kept = (None if after is None else input, None if node is None else weight, input.sig)
        result.node = new_node(back, tuple(parents), kept, (sig,))
        return result

    return _named(front, op)


#: ops with fronts of their own
FRONTS = {"matmul": _front, "mm": _front, "bmm": _front, "mv": _front, "dot": _front,
          "linear": _linear_front}

__all__ = ["FRONTS", "bare", "matmul", "plan"]
