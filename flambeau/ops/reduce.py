"""Reductions."""

from __future__ import annotations

from .declare import SUM, reduction, registry


@reduction(SUM, start=0)
def sum(total, x):
    """Sum over `dim`, or over everything."""
    return total + x


@sum.gradient
def sum(g, x_meta, dim, keepdim):
    return spread(g, x_meta, dim, keepdim)


def spread(g, meta, dim, keepdim):
    """A gradient of reduced shape seen at the full shape: a view, nothing is copied."""
    if not keepdim and dim is not None and meta.rank:
        dims = sorted(d % meta.rank for d in ((dim,) if isinstance(dim, int) else dim))
        for d in dims:
            g = registry["unsqueeze"](g, d)
    return registry["expand"](g, tuple(meta.shape))
