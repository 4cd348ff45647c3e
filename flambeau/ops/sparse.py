"""Products whose result is sparse: the engine answers them for sparse matrices, and nothing else
has them.
"""

from __future__ import annotations

from .declare import composite


def _refuse(name: str):
    raise RuntimeError(f"{name}: a matrix of layout torch.sparse_coo is wanted, got a strided "
                       "tensor; call to_sparse() first")


@composite(method=False)
def hspmm(mat1, mat2):
    """A sparse matrix times a strided one: sparse rows, each of them whole."""
    return _refuse("hspmm")


@composite
def smm(input, mat):
    """A sparse matrix times a strided one, as a sparse matrix."""
    return _refuse("smm")


@composite
def sspaddmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta input + alpha mat1 @ mat2 of sparse input and mat1, as a sparse matrix."""
    return _refuse("sspaddmm")
