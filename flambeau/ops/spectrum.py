"""Eigenvalues and singular values, and their derivatives."""

from __future__ import annotations

from .declare import T, composite, engine, library, registry
from .decompose import require_floating
from .orthonormal import diagonal_matrix, diagonal_of
from .product import conjugate, matmul, mH, require_matrix, require_square


def skew(x):
    return x - mH(x)


def like_input(g, meta):
    """A gradient that was computed in complex numbers, of an input that is real."""
    return registry["real"](g) if g.dtype.is_complex and meta.dtype.kind == "f" else g


def _differences(w, v, at_diagonal: float):
    """1 / (v_j - w_i), with a chosen number on the diagonal."""
    n = w.shape[-1]
    eye = engine.eye(n, dtype=w.dtype)
    E = v.unsqueeze(-2) - w.unsqueeze(-1)
    return (1 - eye) / (E + eye) + at_diagonal * eye


@library(where="linalg")
def eigh(A: T, UPLO="L"):
    """(eigenvalues, eigenvectors) of a symmetric or hermitian matrix, read from one triangle."""
    require_square("linalg.eigh", A)
    require_floating("linalg.eigh", A)
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise RuntimeError("Expected UPLO argument in linalg.eigh to be 'L' or 'U', but got "
                           f"{UPLO}")
    return [(tuple(A.shape[:-1]), A.dtype.to_real()), (tuple(A.shape), A.dtype)]


@eigh.gradient
def eigh(g, out):
    (gw, gV), (w, V) = g, out
    if gV is None:
        if gw is None:
            return None
        return matmul(V * engine.cast(gw, V.dtype).unsqueeze(-2), mH(V))
    core = matmul(mH(V), gV) * _differences(w, w, 0.0)
    if gw is not None:
        core = core + diagonal_matrix(engine.cast(gw, V.dtype))
    return matmul(V, matmul(core, mH(V)))


@library(method=False, function_form=False, backward="LinalgEighBackward0")
def symmetric_values(A: T, UPLO):
    """The eigenvalues of a symmetric or hermitian matrix, without their vectors."""
    return eigh.body(A, UPLO)[0]


@symmetric_values.gradient
def symmetric_values(g, A, UPLO):
    V = eigh(A, UPLO)[1]
    return matmul(V * engine.cast(g, V.dtype).unsqueeze(-2), mH(V))


@composite(where="linalg")
def eigvalsh(A, UPLO="L"):
    """The eigenvalues of a symmetric or hermitian matrix."""
    return eigh(A, UPLO)[0] if engine.tracked(A) else symmetric_values(A, UPLO)


@library(where="linalg")
def eig(A: T):
    """(eigenvalues, eigenvectors) of a square matrix, complex."""
    require_square("linalg.eig", A)
    require_floating("linalg.eig", A)
    kind = A.dtype.to_complex()
    return [(tuple(A.shape[:-1]), kind), (tuple(A.shape), kind)]


@eig.gradient
def eig(g, out, A_meta):
    (gL, gV), (L, V) = g, out
    if gV is None and gL is None:
        return None
    VH = mH(V)
    if gV is None:
        core = diagonal_matrix(gL)
    else:
        found = matmul(VH, gV)
        # Eigenvectors have length 1: what would change it does not count.
        straight = matmul(VH, V * engine.cast(registry["real"](diagonal_of(found)),
                                              V.dtype).unsqueeze(-2))
        core = (found - straight) * conjugate(_differences(L, L, 0.0))
        core = core if gL is None else core + diagonal_matrix(gL)
    return like_input(registry["linalg.solve"](VH, matmul(core, VH)), A_meta)


@library(method=False, function_form=False, backward="LinalgEigBackward0")
def eigenvalues(A: T):
    """The eigenvalues of a square matrix, complex, without their vectors."""
    return eig.body(A)[0]


@eigenvalues.gradient
def eigenvalues(g, A, A_meta):
    VH = mH(eig(A)[1])
    return like_input(registry["linalg.solve"](VH, matmul(diagonal_matrix(g), VH)), A_meta)


@composite(where="linalg")
def eigvals(A):
    """The eigenvalues of a square matrix, complex."""
    return eig(A)[0] if engine.tracked(A) else eigenvalues(A)


@library(where="linalg")
def svd(A: T, full_matrices=True, *, driver=None):
    """(U, S, Vh) with A = U diag(S) Vh."""
    require_matrix("linalg.svd", A)
    require_floating("linalg.svd", A)
    if driver is not None:
        raise RuntimeError(f"linalg.svd: keyword argument `driver=` is only supported on CUDA "
                           f"inputs with cuSOLVER backend; got driver={driver!r}")
    *batch, m, n = A.shape
    k = min(m, n)
    return [((*batch, m, m if full_matrices else k), A.dtype), ((*batch, k), A.dtype.to_real()),
            ((*batch, n if full_matrices else k, n), A.dtype)]


@svd.gradient
def svd(g, out, A_meta, full_matrices):
    (gU, gS, gVh), (U, S, Vh) = g, out
    if gU is None and gS is None and gVh is None:
        return None
    m, n = A_meta.shape[-2:]
    k = min(m, n)
    if full_matrices and m != n:
        if gU is not None or gVh is not None:
            _refuse_full(gU, gVh, k)
        U, Vh = U.narrow(-1, 0, k), Vh.narrow(-2, 0, k)
        gU = None if gU is None else gU.narrow(-1, 0, k)
        gVh = None if gVh is None else gVh.narrow(-2, 0, k)
    if gU is None and gVh is None:
        return matmul(U * gS.unsqueeze(-2), Vh)
    return _svd_back(gU, gS, gVh, U, S, Vh, m, n, k)


def _refuse_full(gU, gVh, k: int) -> None:
    extra = [x for x in (None if gU is None else gU.narrow(-1, k, gU.shape[-1] - k),
                         None if gVh is None else gVh.narrow(-2, k, gVh.shape[-2] - k))
             if x is not None and x.numel()]
    if any(bool((x != 0).any()) for x in extra):
        raise RuntimeError("svd_backward: The gradients of the additional vectors that "
                           "full_matrices=True computes are not defined; use full_matrices=False")


def _svd_back(gU, gS, gVh, U, S, Vh, m: int, n: int, k: int):
    squares = S * S
    inverse = _differences(squares, squares, 0.0)
    core = diagonal_matrix(engine.cast(gS, U.dtype)) if gS is not None else None

    def added(total, part):
        return part if total is None else total + part

    if gU is not None:
        UhgU = skew(matmul(mH(U), gU))
        core = added(core, UhgU * inverse * S.unsqueeze(-2))
        if U.dtype.is_complex:
            core = core + diagonal_matrix(diagonal_of(UhgU) / (2 * S))
    if gVh is not None:
        VhgV = skew(matmul(Vh, mH(gVh)))
        core = added(core, S.unsqueeze(-1) * (VhgV * inverse))
    out = matmul(matmul(U, core), Vh)
    if gU is not None and m > k:
        scaled = gU / S.unsqueeze(-2)
        out = out + matmul(scaled - matmul(U, matmul(mH(U), scaled)), Vh)
    if gVh is not None and n > k:
        scaled = gVh / S.unsqueeze(-1)
        out = out + matmul(U, scaled - matmul(matmul(scaled, mH(Vh)), Vh))
    return out


@library(method=False, function_form=False, backward="LinalgSvdBackward0")
def singular_values(A: T):
    """The singular values, from the largest, without their vectors."""
    require_matrix("linalg.svd", A)
    require_floating("linalg.svd", A)
    return (*A.shape[:-2], min(A.shape[-2:])), A.dtype.to_real()


@singular_values.gradient
def singular_values(g, A):
    U, _, Vh = svd(A, False)
    return matmul(U * engine.cast(g, U.dtype).unsqueeze(-2), Vh)


@composite(where="linalg")
def svdvals(A, *, driver=None):
    """The singular values, from the largest."""
    wanted = driver is not None or engine.tracked(A)  # what goes back needs the vectors
    return svd(A, False, driver=driver)[1] if wanted else singular_values(A)


@composite(name="svd")
def thin_svd(input, some=True, compute_uv=True):
    """(U, S, V) with input = U diag(S) V^H."""
    U, S, Vh = svd(input, not some)
    V = mH(Vh)
    if not compute_uv:
        m, n = input.shape[-2:]
        batch = tuple(input.shape[:-2])
        U = engine.full((*batch, m, m), 0.0, input.dtype)
        V = engine.full((*batch, n, n), 0.0, input.dtype)
    return engine.named(registry["svd"], (U, S, V))
