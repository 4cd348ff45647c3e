"""Systems, factors and spectra of small matrices by native code; what that does not cover, and
matrices that have no solution, are the routines'."""

from __future__ import annotations

from ..core import dtype as dt
from ..devices.cpu.routines import NATIVE
from ..devices.cpu.systems import (
    qr,
    system,
    words_for_eig,
    words_for_eigh,
    words_for_least,
    words_for_reflections,
    words_for_svd,
)
from ..ops.declare import Op
from .convolve import plain_values
from .eager import engine
from .fresh import empty
from .interception import PLAIN, tracers
from .inverse import has_code
from .modes import modes
from .storage import checkers
from .tensor import Signature, Tensor, signature


def _spare(dtype: dt.dtype, elements: int) -> Tensor:
    return empty(signature(dtype, (elements,)))


def _solve(sigs: tuple[Signature, Signature], bound: dict):
    """The routine of solve_matrices; matrices that are not one for each result are repeated."""
    sig, infos = sigs
    A, B = bound["A"], bound["B"]
    n, m = sig.shape[-2:]
    count = infos.numel
    if not has_code(A.sig) or not sig.numel or A.sig.dtype is not B.sig.dtype or (
            A.sig.numel not in (n * n, count * n * n) or B.sig.numel not in (n * m, sig.numel)):
        return None
    a, b = plain_values(A, sig.dtype), plain_values(B, sig.dtype)
    out, info, spare = empty(sig), empty(infos), _spare(sig.dtype, n * (n + m))
    pivots = _spare(dt.int32, n)
    failed = system("solve", sig.dtype.name)(
        out.ptr, info.ptr, a.ptr, b.ptr, n * n if A.sig.numel > n * n else 0,
        n * m if B.sig.numel > n * m else 0, spare.ptr, pivots.ptr, n, m, count,
        count * n * n * (n + m))
    return None if failed else [out, info]


def _lu(sigs: tuple[Signature, ...], bound: dict):
    """The routine of lu_factor_ex."""
    sig, order, infos = sigs
    if not has_code(sig) or not bound["pivot"]:
        return None
    m, n = sig.shape[-2:]
    x = plain_values(bound["A"], sig.dtype)
    out, pivots, info, spare = empty(sig), empty(order), empty(infos), _spare(sig.dtype, m * n)
    system("lu", sig.dtype.name)(out.ptr, pivots.ptr, info.ptr, x.ptr, spare.ptr, min(m, n), m, n,
                                 infos.numel, sig.numel * min(m, n))
    return [out, pivots, info]


def _least_squares(sigs: tuple[Signature, ...], bound: dict):
    """The routine of least_squares where singular values are not asked for."""
    A, B = bound["A"], bound["B"]
    if bound["values"] or not has_code(A.sig) or not B.sig.numel:
        return None
    sig, ranks, none = sigs
    (m, n), sides, name = A.sig.shape[-2:], B.sig.shape[-1], sig.dtype.name
    a, b = plain_values(A, sig.dtype), plain_values(B, sig.dtype)
    words = words_for_least(name, m, n, sides)
    out, rank, spare = empty(sig), empty(ranks), _spare(
        sig.dtype, m * n + max(m, n) * sides + words + 1)
    order, limit = _spare(dt.int32, n), _spare(sig.dtype, 1)
    engine.fill(limit, bound["rcond"])
    failed = system("least", name)(
        out.ptr, rank.ptr, a.ptr, b.ptr, spare.ptr, order.ptr, limit.ptr, max(m, n), words,
        m, n, sides, ranks.numel, A.sig.numel * (n + sides))
    return None if failed else [out, rank, empty(none)]


def _qr(sigs: tuple[Signature, Signature], bound: dict):
    """The routine of qr, where Q has as many columns as the smaller side."""
    wanted, given = sigs[1], bound["A"].sig
    m, n = given.shape[-2:]
    k = min(m, n)
    if bound["mode"] == "r" or wanted.shape[-2] != k or not has_code(given):
        return None
    if max(m, n) > _REFLECTED_ONE_BY_ONE:
        return _qr_by_blocks(*sigs, plain_values(bound["A"], given.dtype))
    run, lanes = qr(given.dtype.name)
    a_step, p_step = -(-n // lanes) * lanes, -(-k // lanes) * lanes
    x, q, r = plain_values(bound["A"], given.dtype), empty(sigs[0]), empty(wanted)
    spare = _spare(given.dtype, m * (a_step + p_step + 1) + k)
    run(q.ptr, r.ptr, x.ptr, spare.ptr, k, m, n, a_step, p_step, given.numel // (m * n),
        given.numel * k)
    return [q, r]


#: rows and columns up to which reflections, made one by one, are sooner done than LAPACK's blocks
_REFLECTED_ONE_BY_ONE = 112


def _qr_by_blocks(q: Signature, r: Signature, x: Tensor):
    k = min(x.sig.shape[-2:])
    found, taus = _reflections((x.sig, signature(q.dtype, (*x.sig.shape[:-2], k))), {"input": x})
    upper = found if found.sig.shape[-2] == k else found.narrow(-2, 0, k)
    return [_rotation(q, found, taus), engine.without_grad(_upper, upper)]


def _upper(x: Tensor) -> Tensor:
    return x.triu()


def _reflections(sigs: tuple[Signature, Signature], bound: dict):
    """The routine of geqrf."""
    sig, factors = sigs
    if not has_code(sig):
        return None
    m, n = sig.shape[-2:]
    words, x = words_for_reflections(n), plain_values(bound["input"], sig.dtype)
    out, taus, spare = empty(sig), empty(factors), _spare(sig.dtype, m * n + words)
    system("geqrf", sig.dtype.name)(
        out.ptr, taus.ptr, x.ptr, spare.ptr, min(m, n), words, m, n, sig.numel // (m * n),
        4 * sig.numel * n)
    return [out, taus]


def _rotation(sig: Signature, x: Tensor, taus: Tensor) -> Tensor:
    """The first columns of products of reflections, of tensors that lie in order."""
    m, n = sig.shape[-2:]
    words, out = words_for_reflections(n), empty(sig)
    spare = _spare(sig.dtype, m * n + words)
    system("orgqr", sig.dtype.name)(
        out.ptr, taus.ptr, x.ptr, spare.ptr, taus.sig.shape[-1], words, m, n, x.sig.shape[-1],
        sig.numel // (m * n), 4 * sig.numel * n)
    return out


def _reflect(x: Signature, taus: Signature) -> bool:
    """Whether there is code for products of these reflections."""
    plain = taus.tag is None and x.contiguous and taus.contiguous and x.dtype is taus.dtype
    return (plain and x.rank == taus.rank + 1 > 1 and has_code(x) and taus.numel > 0
            and x.shape[-2] >= x.shape[-1] >= taus.shape[-1] and x.shape[:-2] == taus.shape[:-1])


def _householder(op: Op, otherwise):
    """householder_product, where nothing is recorded."""
    op.takes_out = True

    def front(*args, **named):
        if named or len(args) != 2 or tracers or checkers or Tensor not in PLAIN:
            return otherwise(*args, **named)
        x, taus = args
        if type(x) is not Tensor or type(taus) is not Tensor or (
                modes.grad and (x.node is not None or taus.node is not None)):
            return otherwise(x, taus)
        if not _reflect(x.sig, taus.sig):
            return otherwise(x, taus)
        return _rotation(x.sig, x, taus)

    front.__name__, front.__doc__ = op.name, op.doc
    return front


FRONTS = {"householder_product": _householder}


def _permutations(sig: Signature, bound: dict):
    """The routine of permutation_of_pivots."""
    given, rows = bound["pivots"].sig, bound["rows"]
    if given.dtype is not dt.int32 or not given.numel:
        return None
    k = given.shape[-1]
    out, order = empty(sig), _spare(dt.int64, rows)
    pivots = plain_values(bound["pivots"], dt.int32)
    system("exchanges", sig.dtype.name)(out.ptr, pivots.ptr, order.ptr, k, rows, given.numel // k,
                                        sig.numel)
    return out


def _eigh(sigs: tuple[Signature, Signature], bound: dict):
    """The routine of eigh."""
    if not has_code(sigs[1]):
        return None
    w, v = map(empty, sigs)
    return [w, v] if _symmetric(bound, w, v, "V") else None


def _symmetric_values(sig: Signature, bound: dict):
    """The routine of symmetric_values."""
    if not has_code(bound["A"].sig):
        return None
    w = empty(sig)
    return w if _symmetric(bound, w, w, "N") else None


def _symmetric(bound: dict, w: Tensor, v: Tensor, job: str) -> bool:
    """Whether a batch of symmetric matrices was decomposed."""
    sig = bound["A"].sig
    n = sig.shape[-1]
    words, numbers = words_for_eigh(n)
    x = plain_values(bound["A"], sig.dtype)
    spare, order = _spare(sig.dtype, n * n + words), _spare(dt.int32, numbers)
    return not system("eigh", sig.dtype.name)(
        w.ptr, v.ptr, x.ptr, spare.ptr, order.ptr, ord(job), int(bound["UPLO"] in "Uu"), words,
        numbers, n, sig.numel // (n * n), 10 * sig.numel * n)


def _eig(sigs: tuple[Signature, Signature], bound: dict):
    """The routine of eig."""
    if not has_code(bound["A"].sig):
        return None
    w, v = map(empty, sigs)
    return [w, v] if _spectrum(bound["A"], w, v, "V") else None


def _eigenvalues(sig: Signature, bound: dict):
    """The routine of eigenvalues."""
    if not has_code(bound["A"].sig):
        return None
    w = empty(sig)
    return w if _spectrum(bound["A"], w, w, "N") else None


def _spectrum(A: Tensor, w: Tensor, v: Tensor, job: str) -> bool:
    """Whether a batch of real matrices was decomposed, all of whose elements are finite."""
    sig = A.sig
    n = sig.shape[-1]
    words, x = words_for_eig(n), plain_values(A, sig.dtype)
    if not engine.without_grad(_finite, x):
        return False
    spare = _spare(sig.dtype, 2 * n * n + 2 * n + words)
    return not system("eig", sig.dtype.name)(
        w.ptr, v.ptr, x.ptr, spare.ptr, ord(job), words, n, sig.numel // (n * n),
        25 * sig.numel * n)


def _finite(x: Tensor) -> bool:
    return bool(x.isfinite().all())


def _svd(sigs: tuple[Signature, ...], bound: dict):
    """The routine of svd."""
    given = bound["A"].sig
    if not has_code(given):
        return None
    u, s, v = map(empty, sigs)
    done = _singular(bound["A"], s, u, v, "A" if bound["full_matrices"] else "S")
    return [u, s, v] if done else None


def _singular_values(sig: Signature, bound: dict):
    """The routine of singular_values."""
    if not has_code(bound["A"].sig):
        return None
    s = empty(sig)
    return s if _singular(bound["A"], s, s, s, "N") else None


def _singular(A: Tensor, s: Tensor, u: Tensor, v: Tensor, job: str) -> bool:
    """Whether a batch of matrices was decomposed."""
    dtype, (m, n) = A.sig.dtype, A.sig.shape[-2:]
    k = min(m, n)
    left, right = {"A": (m, n), "S": (k, k), "N": (1, 1)}[job]
    words = words_for_svd(dtype.name, job, m, n)
    x, spare = plain_values(A, dtype), _spare(dtype, m * n + m * left + right * n + words)
    order = _spare(dt.int32, 8 * k)
    return not system("svd", dtype.name)(
        u.ptr, s.ptr, v.ptr, x.ptr, spare.ptr, order.ptr, ord(job), words, left,
        right, k, m, n, A.sig.numel // (m * n), 10 * A.sig.numel * k)


NATIVE.update(solve_matrices=_solve, lu_factor_ex=_lu, permutation_of_pivots=_permutations,
              least_squares=_least_squares, qr=_qr, eigh=_eigh, eig=_eig, svd=_svd,
              singular_values=_singular_values, symmetric_values=_symmetric_values,
              eigenvalues=_eigenvalues, geqrf=_reflections)
