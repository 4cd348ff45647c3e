"""Norms and condition numbers of matrices, and products of vectors along a dimension."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import shape as sh
from .declare import T, composite, engine, registry
from .decompose import require_floating
from .product import conjugate, require_matrix
from .solve import inv_ex
from .spectrum import svdvals

INF = float("inf")


@composite(where="linalg")
def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """A norm of matrices, which lie along two dimensions."""
    _check_norm("linalg.matrix_norm", A, dtype)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {list(dims)}")
    if A.dim() < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 "
                           f"dimensions, but it has {A.dim()}.")
    rows, cols = (sh.wrap_dim(d, A.dim(), "linalg.matrix_norm") for d in dims)
    if rows == cols:
        raise RuntimeError("linalg.matrix_norm: dims must be different. Got "
                           f"({dims[0]}, {dims[1]})")
    A = A if dtype is None else engine.cast(A, dtype)
    if isinstance(ord, str):
        if ord == "fro":
            return registry["linalg.vector_norm"](A, 2, (rows, cols), keepdim)
        if ord == "nuc":
            return _placed(_singular(A, rows, cols).sum(-1), A, rows, cols, keepdim)
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    if abs(ord) == 2:
        S = _singular(A, rows, cols)
        return _placed(_largest(S, -1, False) if ord > 0 else S.amin(-1), A, rows, cols, keepdim)
    if abs(ord) not in (1, INF):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    summed, chosen = (rows, cols) if abs(ord) == 1 else (cols, rows)
    sums = registry["linalg.vector_norm"](A, 1, summed, True)
    out = _largest(sums, chosen, True) if ord > 0 else sums.amin((chosen,), True)
    return out if keepdim else out.squeeze((rows, cols))


def _largest(x, dim: int, keepdim: bool):
    """The largest along a dimension; of nothing, 0."""
    return x.amax(dim, keepdim) if x.shape[dim] else x.sum(dim, keepdim)


def _singular(A, rows: int, cols: int):
    return svdvals(A.movedim((rows, cols), (-2, -1)))


def _placed(values, A, rows: int, cols: int, keepdim: bool):
    if not keepdim:
        return values
    shape = tuple(1 if d in (rows, cols) else n for d, n in enumerate(A.shape))
    return values.reshape(shape)


def _check_norm(name: str, A, dtype) -> None:
    if A.dtype.kind not in "fc":
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got "
                           f"{A.dtype.name}")
    if dtype is not None:
        if dtype.kind not in "fc" or (dtype.kind == "c") != (A.dtype.kind == "c"):
            raise RuntimeError(f"{name}: dtype should be floating-point or complex and of the kind "
                               f"of the input, but got {dtype} for {A.dtype}")
        if dt.promote(A.dtype, dtype) is not dtype:
            raise RuntimeError(f"{name}: the dtype of the input ({A.dtype}) should be convertible "
                               f"without narrowing to the specified dtype ({dtype})")


@composite(where="linalg")
def norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    """A norm of vectors or matrices, as the number of dimensions and `ord` say."""
    dims = None if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    if dims is not None and len(dims) > 2 and ord is not None:
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got "
                           f"{list(dims)}")
    if dims is None and ord is not None and A.dim() not in (1, 2):
        raise RuntimeError("linalg.norm: If dim is not specified but ord is, the input must be 1D "
                           f"or 2D. Got {A.dim()}D.")
    if ord is not None and ((dims is not None and len(dims) == 2)
                            or (dims is None and A.dim() == 2)):
        return matrix_norm(A, ord, dims or (0, 1), keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise RuntimeError(f"linalg.norm: Order {ord} needs matrices, along two dimensions")
    return registry["linalg.vector_norm"](A, 2 if ord is None else ord, dims, keepdim, dtype=dtype)


@composite(method=False)
def frobenius_norm(input, dim=(-2, -1), keepdim=False):
    """The root of the sum of squares."""
    return registry["linalg.vector_norm"](input, 2, dim, keepdim)


@composite(method=False)
def nuclear_norm(input, dim=(-2, -1), keepdim=False):
    """The sum of the singular values."""
    return matrix_norm(input, "nuc", dim, keepdim)


@composite(where="linalg")
def cond(A, p=None):
    """The condition number of a matrix in a norm."""
    require_matrix("linalg.cond", A)
    require_floating("linalg.cond", A)
    if p is None or (not isinstance(p, str) and abs(p) == 2):
        S = svdvals(A)
        if not A.numel():
            return engine.full(tuple(A.shape[:-2]), 0.0, S.dtype)
        small, large = S.amin(-1), S.amax(-1)
        return small / large if p == -2 else large / small
    if p not in ("fro", "nuc", 1, -1, INF, -INF):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if A.shape[-1] != A.shape[-2]:
        raise RuntimeError("linalg.cond: A must be batches of square matrices, but they are "
                           f"{A.shape[-2]} by {A.shape[-1]} matrices")
    if not A.numel():
        return engine.full(tuple(A.shape[:-2]), 0.0, A.dtype.to_real())
    inverse, info = inv_ex(A)
    found = matrix_norm(A, p) * matrix_norm(inverse, p)
    return registry["where"](info != 0, engine.full((), INF, found.dtype), found)


@composite(where="linalg")
def vecdot(x, y, *, dim=-1):
    """Sums of products along one dimension, the first operand conjugated."""
    if x.dtype.kind not in "fc" or y.dtype.kind not in "fc":
        raise RuntimeError(f"linalg.vecdot: Expected floating point or complex tensors as input. "
                           f"Got {x.dtype.name} and {y.dtype.name}")
    return (conjugate(x) * y).sum(dim)


@composite(name="vecdot", method=False)
def plain_vecdot(x, y, *, dim=-1):
    """Sums of products along one dimension, the first operand conjugated."""
    return vecdot(x, y, dim=dim)


@composite(where="linalg", backward="LinalgCrossBackward0")
def cross(input, other, *, dim=-1):
    """The vector product of vectors of three elements."""
    if input.dim() != other.dim():
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions, but got "
                           f"{input.dim()} and {other.dim()}")
    shape = sh.broadcast("linalg.cross", tuple(input.shape), tuple(other.shape))
    d = sh.wrap_dim(dim, len(shape), "linalg.cross")
    if input.shape[d] != 3 or other.shape[d] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got "
                           f"{input.shape[d]} and {other.shape[d]}")

    # What is wanted at i is this at i + 1: three tensors are turned, not four.
    return (input * other.roll(-1, d) - input.roll(-1, d) * other).roll(-1, d)


@composite(name="cross")
def tensor_cross(input, other, dim=None):
    """The vector product along `dim`, or the first dimension of size 3."""
    if dim is None:
        found = [d for d, n in enumerate(input.shape) if n == 3]
        if not found:
            raise RuntimeError("no dimension of size 3 in input")
        dim = found[0]
    return cross(input, other, dim=dim)


@composite(where="linalg")
def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """The diagonals of matrices."""
    return A.diagonal(offset, dim1, dim2)


@composite(where="linalg")
def vander(x, N=None):
    """Powers of x: 1, x, x^2 ... along a new last dimension."""
    if not x.dim():
        if N is None:
            raise RuntimeError("linalg.vander: N must be given for a tensor without dimensions")
        return vander(x.unsqueeze(0), N)
    n = x.shape[-1] if N is None else N
    if n < 1:
        raise RuntimeError(f"linalg.vander: N must be greater than 1, got {n}")
    first = engine.full((*x.shape, 1), 1, x.dtype)
    if n == 1:
        return first
    rest = registry["expand"](x.unsqueeze(-1), (*x.shape, n - 1)).cumprod(-1)
    return engine.cat([engine.cast(first, rest.dtype), rest], -1)


@composite(name="vander", method=False)
def plain_vander(x, N=None, increasing=False):
    """Powers of a vector's elements, the highest first unless told."""
    if x.dim() != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    if not n:
        return engine.full((x.shape[0], 0), 0, x.dtype)
    found = vander(x, n)
    return found if increasing else found.flip((-1,))


# -- distances between rows ------------------------------------------------------------------------


#: from more rows than this on, torch takes Euclidean distances from products
_MANY = 25


@composite(method=False, function_form=False, backward="CdistBackward0")
def euclidean_distances(x1: T, x2: T):
    """Distances of rows: the root of |a|^2 + |b|^2 - 2 a b, summed as one product."""
    squares = [(x * x).sum(-1, keepdim=True) for x in (x1, x2)]
    ones = [engine.full(square.shape, 1, square.dtype) for square in squares]
    left = registry["cat"]([x1 * -2, squares[0], ones[0]], -1)
    right = registry["cat"]([x2, ones[1], squares[1]], -1)
    return registry["sqrt"](registry["clamp"](left @ right.mT, 0))


@euclidean_distances.gradient
def euclidean_distances(g, x1, x2, out):
    share = registry["where"](out == 0, 0.0, g / out)
    return (lambda: x1 * share.sum(-1, keepdim=True) - share @ x2,
            lambda: x2 * share.mT.sum(-1, keepdim=True) - share.mT @ x1)


def by_products(x1, x2, p, compute_mode) -> bool:
    """Whether distances are taken from products: those of many rows, unless told otherwise."""
    if compute_mode in (None, "use_mm_for_euclid_dist_if_necessary"):
        wanted = x1.shape[-2] > _MANY or x2.shape[-2] > _MANY
    else:
        wanted = compute_mode == "use_mm_for_euclid_dist"
    return (wanted and p == 2 and x1.dtype is x2.dtype and x1.shape[:-2] == x2.shape[:-2]
            and bool(x1.numel() and x2.numel()))


@composite(method=False, backward="CdistBackward0")
def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The p-norm distance of every row of one matrix to every row of another."""
    for position, x in enumerate((x1, x2), 1):
        if x.dim() < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, X{position} got: "
                               f"{x.dim()}D")
        if x.dtype.kind != "f":
            raise RuntimeError(f"cdist only supports floating-point dtypes, X{position} got: "
                               f"{x.dtype.name}")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError("X1 and X2 must have the same number of columns. X1: "
                           f"{x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if by_products(x1, x2, p, compute_mode):
        return euclidean_distances(x1, x2)
    return registry["linalg.vector_norm"](x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


@composite(where="nn.functional")
def pdist(input, p=2.0):
    """The p-norm distance of every pair of rows."""
    if input.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.dim()}D")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    n = input.shape[0]
    first, second = registry["triu_indices"](n, n, 1)
    difference = input.index_select(0, first) - input.index_select(0, second)
    return registry["linalg.vector_norm"](difference, p, -1)


@composite(name="pdist", method=False)
def plain_pdist(input, p=2.0):
    """The p-norm distance of every pair of rows."""
    return pdist(input, p)


# -- approximations of low rank --------------------------------------------------------------------


def _basis(A, q: int, niter: int):
    """Orthonormal columns that nearly span A: a random start, and a few powers of A."""
    start = engine.randn(A.shape[-1], q, dtype=A.dtype)
    qr = registry["linalg.qr"]
    Q = qr(A @ start)[0]
    for _ in range(niter):
        Q = qr(A.mH @ Q)[0]
        Q = qr(A @ Q)[0]
    return Q


@composite(method=False)
def svd_lowrank(A, q=6, niter=2, M=None):
    """(U, S, V) of rank q, nearly those of A, or of A - M."""
    q = 6 if q is None else q
    A = A if M is None else A - M
    tall = A.shape[-2] >= A.shape[-1]
    X = A if tall else A.mH
    Q = _basis(X, q, niter)
    U, S, Vh = registry["linalg.svd"](Q.mH @ X, False)
    U, V = Q @ U, Vh.mH
    return (U, S, V) if tall else (V, S, U)


@composite(method=False)
def pca_lowrank(A, q=None, center=True, niter=2):
    """(U, S, V) of rank q of a matrix whose columns are first centred."""
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)="
                         f"{min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, True) if center else A, q, niter)
