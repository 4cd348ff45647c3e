"""copy_: the elements of one tensor put into another."""

from __future__ import annotations

from ..core import shape as sh
from ..core.device import META
from .again import native_forms
from .eager import engine, new_table, pointwise_into
from .front_text import INSTEAD
from .history import is_free, replace_history
from .interception import PLAIN, tracers
from .modes import modes
from .node import edge_of, new_node
from .pointwise import UNUSUAL, plan
from .tensor import Signature, Tensor
from .writing import changed, check_writable, demand_apart, overlaps


def copy_into(target: Tensor, source: Tensor) -> None:
    """Copy elements, converting dtype and broadcasting; nothing is recorded."""
    if not target.sig.numel or target.sig.device is META:
        return
    if source.mem is not target.mem and not tracers:
        found = _copy_plan(target.sig, source.sig)
        if found is not UNUSUAL:
            found[2](target.ptr, source.ptr, found[3])
            return
    if source.sig is not target.sig:
        sh.broadcast("copy_", target.sig.shape, source.sig.shape)
    pointwise_into(engine.identity, target, (source,), {})


def _check_fits(target: Signature, source: Signature) -> None:
    wide = sh.broadcast("copy_", target.shape, source.shape)
    if tuple(wide) != tuple(target.shape):
        raise RuntimeError(f"copy_: output with shape {list(target.shape)} doesn't match the "
                           f"broadcast shape {list(wide)}")


def copy_(x: Tensor, source, non_blocking: bool = False) -> Tensor:
    """Copy another tensor's elements into x."""
    check_writable(x, "copy_")
    if not isinstance(source, Tensor):
        source = engine.tensor(source)
    recording = modes.grad and (source.node is not None or x.node is not None)
    parents = (edge_of(x) if x.node is not None else None,
               edge_of(source) if source.node is not None else None)
    if x.sig.device is META or source.sig.device is META:
        return x
    demand_apart(source, x)
    if not x.sig.numel:  # nothing is copied, and nothing is refused on the way
        _check_fits(x.sig, source.sig)
    safe = source if not overlaps(source, x) else engine.clone(source.detach())
    copy_into(x, safe)
    changed(x)
    if recording and x.sig.dtype.kind in "fc":
        node = new_node(CopyBack(source.sig), parents, (), (x.sig,))
        replace_history(x, node)
    return x


class _Copy:
    """copy_, as traces and subclasses see it."""

    name = "copy_"
    run = staticmethod(copy_)


COPY = _Copy()


def replace_values(tensors, values) -> None:
    """copy_ of each value into its tensor, in one go where they are plain and no step is recorded.

    Small statistics that follow every batch cost far less to copy than to be asked about.
    """
    line = None
    for x, new in zip(tensors, values, strict=True):
        if not copy_plainly(x, new):
            copy_(x, new)
        elif line is None:
            changed(x)
            line = x.mem.changed
        else:
            x.mem.version += 1
            x.mem.changed = line


#: plans of copies: signature of what is written, of what is read -> plan
_copies = new_table()


def copy_plainly(x: Tensor, source) -> bool:
    """Copy a tensor, if no step is recorded and nobody has to be asked."""
    if (type(x) not in PLAIN or not isinstance(source, Tensor) or type(source) not in PLAIN
            or x.mem is source.mem or x.mem.version < 0 or tracers):
        return False
    if modes.grad and (x.node is not None or source.node is not None or not is_free(x)):
        return False
    found = _copy_plan(x.sig, source.sig)
    if found is UNUSUAL:
        return False
    found[2](x.ptr, source.ptr, found[3])
    return True


def _copy_plan(target: Signature, source: Signature):
    """The plan of a copy, made once."""
    table = _copies.get(target)
    if table is None:
        table = _copies[target] = {}
    found = table.get(source)
    if found is None:
        found = table[source] = _prepared_copy(target, source)
    return found


def _prepared_copy(target: Signature, source: Signature):
    """The plan of a copy that converts and broadcasts; UNUSUAL if it is not plain."""
    if any([s.tag is not None or s.device is META or not s.numel for s in (target, source)]):
        return UNUSUAL
    sh.broadcast("copy_", target.shape, source.shape)
    return plan(engine.identity, (source,), (), target)


def install_copy(form) -> None:
    """Give tensors their `copy_`, of which `form` does what is unusual."""
    Tensor.copy_, _ = native_forms(form, _copies, INSTEAD, more="source, non_blocking=False")


class CopyBack:
    """Goes back through copy_: nothing to what was there, everything to what was copied."""

    def __init__(self, sig):
        self.sig = sig

    def name(self) -> str:
        return "torch::autograd::CopyBackwards"

    def pull(self, node, g):
        if node.parents[1] is None:
            return [engine.zeros_like(g), None]
        part = engine.sum_to(g, self.sig.shape)
        return [engine.zeros_like(g), engine.cast(part, self.sig.dtype)]


engine.replace_values = replace_values
