"""What programs reach for behind `compile`: its switches and `reset`, under PyTorch's names."""

import flambeau

from . import config
from .eval_frame import OptimizedModule

__all__ = ["OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable",
           "explain", "graph_break", "is_compiling", "list_backends", "mark_dynamic", "mark_static",
           "mark_static_address", "optimize", "reset", "set_stance", "substitute_in_graph"]

allow_in_graph = flambeau.compiler.allow_in_graph
assume_constant_result = flambeau.compiler.assume_constant_result
list_backends = flambeau.compiler.list_backends
set_stance = flambeau.compiler.set_stance
substitute_in_graph = flambeau.compiler.substitute_in_graph
disable = flambeau.compiler.disable
explain = flambeau.compiler.explain
is_compiling = flambeau.compiler.is_compiling
reset = flambeau.compiler.reset


def graph_break(msg: str = "") -> None:
    """Ends a graph in PyTorch. Here real Python runs between ops anyway, so nothing ends."""


def mark_dynamic(t, index, *, hint_override=None, min=None, max=None, specialize_on=None) -> None:
    """Says that sizes along a dimension will change: a program is made for every size met."""
    for d in (index,) if isinstance(index, int) else index:
        t.size(d)  # refuses a dimension that is not there


def mark_static_address(t, guard=True) -> None:
    """Says that a tensor stays where it is. Programs look up where tensors are in every call."""
    if not isinstance(t, flambeau.Tensor):
        raise TypeError(f"mark_static_address expects a tensor but received {type(t)}")


def mark_static(t, index=None) -> None:
    """Says that sizes do not change: a program is made for every size met anyway."""


def optimize(backend="inductor", *, nopython=False, **options):
    """`compile` as a decorator, as it was called before there was `compile`."""
    return lambda fn: flambeau.compile(fn, fullgraph=nopython)
