"""Matrix products: the special ranks, and what is made of them."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from ..core import dtype as dt
from ..core import shape as sh
from .declare import SAME, T, composite, engine, library, registry
from .refusal import spoken

HALF = (dt.float16, dt.bfloat16)


def product_shape(x, w, name: str = "matmul") -> tuple[int, ...]:
    """The shape of x @ w, or torch's error."""
    if not x.rank or not w.rank:
        raise RuntimeError(f"{name}: both arguments to matmul need to be at least 1D, but they are "
                           f"{x.rank}D and {w.rank}D")
    *left, depth = x.shape
    *right, inner, last = w.shape if w.rank > 1 else (*w.shape, 1)
    if depth != inner:
        raise RuntimeError(_mismatch(name, x, w, depth, inner))
    if x.dtype is not w.dtype:
        raise RuntimeError(f"{name}: expected m1 and m2 to have the same dtype, but got: "
                           f"{dt.short_name(x.dtype)} != {dt.short_name(w.dtype)}")
    columns = (last,) if w.rank > 1 else ()
    if not right:
        return (*left, *columns)
    return (*sh.broadcast(name, tuple(left[:-1]), tuple(right)), *left[-1:], *columns)


def _mismatch(name: str, x, w, have: int, want: int) -> str:
    hint = "; did you mean x @ w.mT?" if w.rank > 1 and w.shape[-1] == have else ""
    return (f"{name}: mat1 and mat2 shapes cannot be multiplied ({_dims(x)} and {_dims(w)}): inner "
            f"sizes {have} and {want} differ{hint}")


def _dims(sig) -> str:
    return "x".join(map(str, sig.shape))


@library(SAME)
def matmul(input: T, other: T):
    """The matrix product of vectors, matrices, or batches of matrices."""
    return product_shape(input, other)


@library(SAME)
def mm(input: T, mat2: T):
    """The product of two matrices."""
    for name, x in (("self", input), ("mat2", mat2)):
        if x.rank != 2:
            raise RuntimeError(f"mm: {name} must be a matrix, but it is {x.rank}-D")
    return product_shape(input, mat2, "mm")


@library(SAME)
def bmm(input: T, mat2: T):
    """Products of corresponding matrices of two batches."""
    for name, x in (("batch1", input), ("batch2", mat2)):
        if x.rank != 3:
            raise RuntimeError(f"bmm: {name} must be a 3D tensor, but it is {x.rank}-D")
    if input.shape[0] != mat2.shape[0] or input.shape[2] != mat2.shape[1]:
        raise RuntimeError(
            "bmm: Expected size for first two dimensions of batch2 tensor to be: "
            f"[{input.shape[0]}, {input.shape[2]}] but got: [{mat2.shape[0]}, {mat2.shape[1]}].")
    return product_shape(input, mat2, "bmm")


@library(SAME)
def mv(input: T, vec: T):
    """The product of a matrix and a vector."""
    if input.rank != 2 or vec.rank != 1:
        raise RuntimeError("mv: vector + matrix @ vector expected, got "
                           f"{vec.rank}, {input.rank}, {vec.rank}")
    if input.shape[1] != vec.shape[0]:
        raise RuntimeError(f"mv: size mismatch, got input ({input.shape[0]}), mat "
                           f"({input.shape[0]}x{input.shape[1]}), vec ({vec.shape[0]})")
    return product_shape(input, vec, "mv")


@library(SAME)
def dot(input: T, tensor: T):
    """The sum of the products of two vectors."""
    if input.rank != 1 or tensor.rank != 1:
        raise RuntimeError(f"dot: 1D tensors expected, but got {input.rank}D and {tensor.rank}D "
                           "tensors")
    if input.dtype is not tensor.dtype:
        raise RuntimeError("dot : expected both vectors to have same dtype, but found "
                           f"{input.dtype.name} and {tensor.dtype.name}")
    if input.shape != tensor.shape:
        raise RuntimeError(f"dot: inconsistent tensor size, expected tensor [{input.shape[0]}] and "
                           f"src [{tensor.shape[0]}] to have the same number of elements, but got "
                           f"{input.shape[0]} and {tensor.shape[0]} elements respectively")
    return product_shape(input, tensor, "dot")


@library(SAME, where="nn.functional")
def linear(input: T, weight: T, bias: T = None):
    """input @ weight.T + bias"""
    if not weight.rank or weight.rank > 2:
        raise RuntimeError("linear: weight must be a vector or a matrix, but it is "
                           f"{weight.rank}-D")
    if not input.rank:
        raise RuntimeError("linear: both arguments to linear need to be at least 1D, but they are "
                           f"{input.rank}D and {weight.rank}D")
    inner, wanted = input.shape[-1], weight.shape[-1]
    if inner != wanted:
        raise RuntimeError(f"linear: mat1 and mat2 shapes cannot be multiplied ({_dims(input)} and "
                           f"{'x'.join(map(str, reversed(weight.shape)))}): the input has {inner} "
                           f"features, the weight wants {wanted}")
    if input.dtype is not weight.dtype or (bias is not None and bias.dtype is not input.dtype):
        raise RuntimeError("linear: mat1 and mat2 must have the same dtype, but got "
                           f"{spoken(input.dtype)} and {spoken(weight.dtype)}")
    return (*input.shape[:-1], *weight.shape[:-1])


def mT(x):
    """Matrices transposed."""
    return x.transpose(-2, -1)


def mH(x):
    """Matrices transposed and conjugated."""
    return conjugate(x.transpose(-2, -1))


def conjugate(x):
    return x.conj() if x.dtype.is_complex else x


def require_matrix(name: str, x, argument: str = "A") -> None:
    if x.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {argument} must have at least 2 dimensions, "
                           f"but it has {x.ndim}.")


def require_square(name: str, x, argument: str = "A") -> None:
    """torch's errors for what must be a square matrix or a batch of them."""
    require_matrix(name, x, argument)
    if x.shape[-1] != x.shape[-2]:
        raise RuntimeError(f"{name}: {argument} must be batches of square matrices, but they are "
                           f"{x.shape[-2]} by {x.shape[-1]} matrices")


def identity_like(x):
    """Identity matrices of the same shape as a batch of square ones."""
    eye = engine.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return engine.clone(registry["expand"](eye, tuple(x.shape)))


@composite
def vdot(input, other):
    """The sum of the products of two vectors, the first conjugated."""
    return dot(conjugate(input), other)


@composite
def outer(input, vec2):
    """Every product of an element of one vector with an element of another."""
    if input.dim() != 1 or vec2.dim() != 1:
        raise RuntimeError(f"outer: Expected 1-D arguments, but got {input.dim()}-D and "
                           f"{vec2.dim()}-D")
    return input.unsqueeze(1) * vec2


@composite
def inner(input, other):
    """Sums of products over the last dimension of both."""
    if not input.dim() or not other.dim():
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError("inner() the last dimension must match on both input tensors but got "
                           f"shapes {list(input.shape)} and {list(other.shape)}")
    if input.dim() == 1 and other.dim() == 1:
        return dot(input, other)
    rows = other.reshape(-1, other.shape[-1])
    products = mm(input.reshape(-1, input.shape[-1]), rows.transpose(0, 1))
    return products.reshape(tuple(input.shape[:-1]) + tuple(other.shape[:-1]))


# -- products added to something ---------------------------------------------------------------


def _combined(name: str, input, product, beta, alpha):
    """beta * input + alpha * product; beta = 0 ignores even a nan in the input."""
    shape = tuple(product.shape)
    if product.dtype.kind in "biu":
        beta, alpha = int(beta), int(alpha)
    if tuple(sh.broadcast(name, tuple(input.shape), shape)) != shape:
        raise RuntimeError(f"{name}: expand: the input of shape {list(input.shape)} does not "
                           f"expand to the product's shape {list(shape)}")
    if input.dtype is not product.dtype:
        raise RuntimeError(f"{name}: self and mat2 must have the same dtype, but got "
                           f"{spoken(input.dtype)} and {spoken(product.dtype)}")
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return (input if beta == 1 else input * beta) + product


def _in_float(op, input, *others, **numbers):
    """Half precision: everything in float32, rounded once at the end."""
    wide = [engine.cast(x, dt.float32) for x in (input, *others)]
    return engine.cast(op(*wide, **numbers), input.dtype)


def _scaled(g, factor):
    """g times a number whose conjugate belongs there."""
    factor = factor.conjugate() if isinstance(factor, complex) else factor
    return g if factor == 1 else g * factor


@composite(inplace=True)
def addmm(input: T, mat1: T, mat2: T, *, beta=1, alpha=1):
    """beta * input + alpha * (mat1 @ mat2)"""
    if input.dtype in HALF and mat1.dtype is input.dtype:  # rounded once, at the end
        return _in_float(addmm, input, mat1, mat2, beta=beta, alpha=alpha)
    return _combined("addmm", input, mm(mat1, mat2), beta, alpha)


@addmm.gradient
def addmm(g, input_meta, mat1, mat2, beta, alpha):
    return (lambda: engine.sum_to(_scaled(g, beta), input_meta.shape),
            lambda: _scaled(mm(g, mH(mat2)), alpha),
            lambda: _scaled(mm(mH(mat1), g), alpha))


@composite(inplace=True)
def addmv(input: T, mat: T, vec: T, *, beta=1, alpha=1):
    """beta * input + alpha * (mat @ vec)"""
    if input.dtype in HALF and mat.dtype is input.dtype:  # rounded once, at the end
        return _in_float(addmv, input, mat, vec, beta=beta, alpha=alpha)
    return _combined("addmv", input, mv(mat, vec), beta, alpha)


@addmv.gradient
def addmv(g, input_meta, mat, vec, beta, alpha):
    return (lambda: engine.sum_to(_scaled(g, beta), input_meta.shape),
            lambda: _scaled(outer(g, conjugate(vec)), alpha),
            lambda: _scaled(mv(mH(mat), g), alpha))


@composite(inplace=True)
def addr(input: T, vec1: T, vec2: T, *, beta=1, alpha=1):
    """beta * input + alpha * outer(vec1, vec2)"""
    for name, vector in (("vec1", vec1), ("vec2", vec2)):
        if vector.dim() != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {vector.dim()}-D")
    if input.dtype in HALF and vec1.dtype is vec2.dtype is input.dtype:
        return _in_float(addr, input, vec1, vec2, beta=beta, alpha=alpha)
    product = outer(vec1, vec2)
    shape = tuple(product.shape)
    if tuple(sh.broadcast("addr", tuple(input.shape), shape)) != shape:
        raise RuntimeError(f"addr: the input of shape {list(input.shape)} does not expand to the "
                           f"product's shape {list(shape)}")
    if product.dtype.kind in "biu" and any(isinstance(n, float) for n in (beta, alpha)):
        raise RuntimeError("addr: For integral input tensors, argument beta and alpha must not be "
                           "floating point numbers.")
    if product.dtype.kind == "b":
        beta, alpha = bool(beta), bool(alpha)
    if alpha != 1:
        product = product * alpha
    if not beta:
        return product
    return (input if beta == 1 else input * beta) + product


@addr.gradient
def addr(g, input_meta, vec1, vec2, beta, alpha):
    return (lambda: engine.sum_to(_scaled(g, beta), input_meta.shape),
            lambda: _scaled(mv(g, conjugate(vec2)), alpha),
            lambda: _scaled(mv(g.transpose(0, 1), conjugate(vec1)), alpha))


@composite(inplace=True)
def baddbmm(input: T, batch1: T, batch2: T, *, beta=1, alpha=1):
    """beta * input + alpha * (batch1 @ batch2), for each matrix of the batches"""
    if input.dtype in HALF and batch1.dtype is input.dtype:  # rounded once, at the end
        return _in_float(baddbmm, input, batch1, batch2, beta=beta, alpha=alpha)
    return _combined("baddbmm", input, bmm(batch1, batch2), beta, alpha)


@baddbmm.gradient
def baddbmm(g, input_meta, batch1, batch2, beta, alpha):
    return (lambda: engine.sum_to(_scaled(g, beta), input_meta.shape),
            lambda: _scaled(bmm(g, mH(batch2)), alpha),
            lambda: _scaled(bmm(mH(batch1), g), alpha))


@composite(inplace=True)
def addbmm(input: T, batch1: T, batch2: T, *, beta=1, alpha=1):
    """beta * input + alpha * the sum of batch1 @ batch2 over the batch"""
    if input.dtype in HALF:
        return _in_float(addbmm, input, batch1, batch2, beta=beta, alpha=alpha)
    product = bmm(batch1, batch2).sum(0)
    return _combined("addbmm", input, engine.cast(product, batch1.dtype), beta, alpha)


@addbmm.gradient
def addbmm(g, input_meta, batch1, batch2, beta, alpha):
    return (lambda: engine.sum_to(_scaled(g, beta), input_meta.shape),
            lambda: _scaled(matmul(g, mH(batch2)), alpha),
            lambda: _scaled(matmul(mH(batch1), g), alpha))


@composite(where="nn.functional")
def bilinear(input1, input2, weight, bias=None):
    """input1 @ weight[k] @ input2 for every k, plus bias"""
    _check_bilinear(input1, input2, weight, bias)
    count, left, right = weight.shape
    lead = tuple(input1.shape[:-1])
    x, y = input1.reshape(-1, left), input2.reshape(-1, right)
    half = mm(x, weight.permute(1, 0, 2).reshape(left, count * right)).reshape(-1, count, right)
    out = bmm(half, y.unsqueeze(2)).reshape((*lead, count))
    return out if bias is None else out + bias


def _check_bilinear(input1, input2, weight, bias) -> None:
    if input1.dim() != input2.dim() or input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError("bilinear(): input batch dimensions do not match: got "
                           f"{list(input1.shape)} and {list(input2.shape)}")
    for position, x in enumerate((input1, input2), 1):
        if x.shape[-1] != weight.shape[position]:
            raise RuntimeError(f"bilinear(): input{position} size does not match weight size: got "
                               f"{x.shape[-1]} but expected {weight.shape[position]}")
    if bias is not None and bias.shape[0] != weight.shape[0]:
        raise RuntimeError("bilinear(): bias size does not match weight size: got "
                           f"{bias.shape[0]} but expected {weight.shape[0]}")


# -- chains and powers -------------------------------------------------------------------------


def best_split(sizes: list[int]) -> dict:
    """Where to split each run of a chain of matrices so that the least is multiplied."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j))
    return split


@lru_cache(maxsize=256)
def _order(sizes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Which matrices of a chain are multiplied, one product after another; results count on."""
    split, steps = best_split(list(sizes)), []
    count = len(sizes) - 1

    def place(i: int, j: int) -> int:
        if i == j:
            return i
        k = split[i, j]
        steps.append((place(i, k), place(k + 1, j)))
        return count + len(steps) - 1

    place(0, count - 1)
    return tuple(steps)


def _chained(matrices):
    values = list(matrices)
    for i, j in _order((values[0].shape[0], *[m.shape[1] for m in values])):
        values.append(mm(values[i], values[j]))
    return values[-1]


@composite(method=False, function_form=True)
def chain_matmul(*matrices):
    """The product of matrices, in the order that costs least."""
    if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)):
        matrices = matrices[0]
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    return matrices[0] if len(matrices) == 1 else _chained(list(matrices))


@composite(where="linalg")
def multi_dot(tensors):
    """The product of matrices, in the order that costs least; the ends may be vectors."""
    tensors = list(tensors)
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    first, last = tensors[0], tensors[-1]
    _check_chain(tuple([x.shape for x in tensors]), tuple([x.dtype for x in tensors]))
    if first.dim() == last.dim() == 2:
        return _chained(tensors)
    shape = (*first.shape[:-1], *(last.shape[1:]))
    matrices = [first.unsqueeze(0) if first.dim() == 1 else first, *tensors[1:-1],
                last.unsqueeze(1) if last.dim() == 1 else last]
    return _chained(matrices).reshape(shape)


@lru_cache(maxsize=256)
def _check_chain(shapes: tuple, dtypes: tuple) -> None:
    """Whether what has these shapes and dtypes can be multiplied."""
    whole, end = list(shapes), len(shapes) - 1
    for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
        edge = i in (0, end)
        if len(shape) != 2 and not (edge and len(shape) == 1):
            wanted = "1D or 2D" if edge else "2D"
            raise RuntimeError(f"multi_dot(): tensor {i} must be {wanted} but got {len(shape)}D")
        if dtype is not dtypes[0]:
            raise RuntimeError(f"multi_dot(): all tensors must have be the same dtype but tensor 0 "
                               f"is {dtypes[0]} and tensor {i} {dtype}")
    if len(shapes[0]) == 1:
        whole[0] = (1, *shapes[0])
    if len(shapes[-1]) == 1:
        whole[-1] = (*shapes[-1], 1)
    for i, (x, y) in enumerate(pairwise(whole)):
        if x[1] != y[0]:
            raise RuntimeError(f"multi_dot(): tensors {i} and {i + 1} with shapes {list(x)} "
                               f"and {list(y)} cannot be multiplied")


@composite
def matrix_power(input, n):
    """A square matrix multiplied by itself n times; its inverse if n is negative."""
    require_square("linalg.matrix_power", input)
    if n == 0:
        # Chosen everywhere, so that the result is part of the graph, with no gradient.
        return registry["where"](engine.full((), True), identity_like(input), input)
    base = registry["linalg.inv"](input) if n < 0 else input
    n, out = abs(n), None
    while n:
        if n & 1:
            out = base if out is None else matmul(out, base)
        n >>= 1
        if n:
            base = matmul(base, base)
    return out if out is not input else engine.clone(out)
