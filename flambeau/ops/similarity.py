"""How alike vectors are: cosines and distances."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import shape as sh
from .declare import composite, engine, registry
from .distance import vector_norm
from .loss import clamped_through


@composite(where="nn.functional")
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine between vectors along `dim`."""
    if x1.dtype.kind in "biu" and x2.dtype.kind in "biu":
        raise RuntimeError("cosine_similarity: expected common dtype to be floating point, yet "
                           f"common dtype is {x1.dtype}")
    shape = sh.broadcast("cosine_similarity", tuple(x1.shape), tuple(x2.shape))
    common = dt.promote(x1.dtype, x2.dtype)
    parts = []
    for x in (x1, x2):
        x = engine.cast(registry["expand"](x, shape), common)
        length = clamped_through(vector_norm(x, 2, dim, True), low=float(eps))
        parts.append(x / length)
    return registry["sum"](parts[0] * parts[1], dim)


@composite(where="nn.functional", backward="NormBackward1")
def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of x1 - x2 + eps along the last dimension."""
    apart = x1 - x2 + eps
    return vector_norm(apart, p, -1 if apart.dim() else None, keepdim)
