"""Functions of tensors that PyTorch writes in Python, where programs look for them."""

from flambeau import (
    Tensor,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    broadcast_shapes,
    broadcast_tensors,
    cartesian_prod,
    cdist,
    chain_matmul,
    einsum,
    istft,
    lu,
    meshgrid,
    norm,
    split,
    stft,
    tensordot,
    unique,
    unique_consecutive,
    unravel_index,
)

__all__ = ["Tensor", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag",
           "broadcast_shapes", "broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul",
           "einsum", "istft", "lu", "meshgrid", "norm", "split", "stft", "tensordot", "unique",
           "unique_consecutive", "unravel_index"]
