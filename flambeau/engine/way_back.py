"""How pointwise ops go back: their gradients are pointwise ops themselves, derived when asked for.

A `Back` serves all shapes of an op on given dtypes; where operands were broadcast, a `FixedBack`
sums their gradients to the shapes they had.
"""

from __future__ import annotations

import itertools
import linecache
from functools import lru_cache

from ..core import dtype as dt
from ..core import expr as ex
from ..ops.declare import Pointwise
from . import native
from .modes import modes
from .node import again, kept_values
from .tensor import Tensor, make


def compile_text(source: str, name: str, scope: dict):
    """Generated Python, visible to debuggers and tracebacks."""
    filename = f"<{name} {next(_texts)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), scope)
    return scope[name]


_texts = itertools.count()


def plug(op: Pointwise) -> None:
    """Gives a derived op its front; the eager path puts its own here."""
    raise RuntimeError("the eager path is not loaded")


def param_dtype(kind: type, compute: dt.dtype) -> dt.dtype:
    """In what dtype a number is handed to a kernel that computes in another."""
    if compute.kind in "fc" and kind is not complex:
        return compute.to_real()
    if kind is complex:
        return compute.to_complex() if compute.kind == "f" else compute
    if kind is float:
        return dt.float64
    return dt.bool_ if kind is bool and compute is dt.bool_ else dt.int64


class Derived(Pointwise):
    """The gradient of a pointwise op with respect to one operand: itself a pointwise op.

    Its operands are those of g, the op's operands and its result that the formula reads.
    """

    rule = dt.SAME
    promoted = ()
    inplace = False
    formula = None
    attributes: list
    baked: frozenset

    def __init__(self, of: Pointwise, i: int, operating, dtypes, out: dt.dtype, target: dt.dtype,
                 used, constants):
        self.name = self.said = f"{of.name}_backward{i}"
        self.of, self.i, self.compute = of, i, operating
        self.dtypes, self.out_dtype, self.written_dtype = dtypes, out, target
        self.used, self.constants = used, constants
        self.attributes, self.defaults, self.baked = of.attributes, of.defaults, of.baked
        self.baked_values = frozenset()
        self.operands = ["g" if k == 0 else "result" if k == -1 else f"x{k}" for k in used]
        self.method = False
        self.doc = f"d {of.name} / d operand {i}"
        self.backward_name = None

    def bakes(self, value) -> bool:
        return False

    def element(self, args, attributes):
        leaves = dict(zip(self.used, args, strict=True))
        return _pulled(self.of, self.i, self.compute, self.dtypes, self.out_dtype, leaves,
                       attributes, self.constants)

    def node(self, *args, **attributes):
        value = self.element(list(args), attributes)
        return ex.make(self, args, tuple(sorted(attributes.items())), value.dtype)


def _pulled(op, i, operating, dtypes, out, leaves, attributes, constants):
    """The gradient expr of operand i; leaves: 0 is g, k+1 operand k, and -1 the result."""
    compute = operating.compute
    args = []
    for k, d in enumerate(dtypes):
        if isinstance(d, tuple):
            args.append(ex.const(d[1], compute))
        else:
            leaf = leaves.get(k + 1)
            if leaf is None:
                leaf = ex.make("state", (), 2000 + k, d.compute if isinstance(d, dt.dtype)
                               else param_dtype(d, compute))
            args.append(ex.cast(leaf, compute) if k in op.promoted else leaf)
    result = leaves.get(-1)
    if result is None:
        result = ex.make("state", (), 3000, out.compute)
    return op.pull(i, leaves[0], tuple(args), result, attributes)


#: (derived op, what it reads) where the result does not move with an operand
ZERO = (None, ())


class Back:
    """How a pointwise op on given dtypes goes back; shared by all its shapes."""

    __slots__ = ("_entries", "attributes", "dtypes", "keep", "known", "op", "operating", "out",
                 "pull", "waiting")

    def __init__(self, op, operating, dtypes, attributes, out):
        self.op, self.operating, self.dtypes = op, operating, dtypes
        self.attributes, self.out, self.known = attributes, out, False

    def __getattr__(self, name):
        """What recording needs is worked out when something is first recorded."""
        if name == "_entries":
            self._entries = [self._entry(i) for i in range(len(self.dtypes))]
            return self._entries
        if name == "keep":
            self.keep = self._keepers()
            self._announce()
            return self.keep
        if name == "pull":  # straight generated code for the common case
            self.pull = self._direct()
            return self.pull
        if name == "waiting":
            self.waiting = []
            return self.waiting
        raise AttributeError(name)

    def enlist(self, packed) -> None:
        """A plan whose native front wants to know what to keep, once that is known."""
        if not self.known:
            self.waiting.append(packed)
        elif self._keeps_alike():
            native.set_keep(packed, self.keep)

    def _announce(self) -> None:
        self.known = True
        if self._keeps_alike():
            for packed in self.waiting:
                native.set_keep(packed, self.keep)
        self.waiting = []

    def _keeps_alike(self) -> bool:
        """Whether what is kept does not depend on numbers given when it runs."""
        return not self.attributes or all([isinstance(g, tuple) for _, g in self.attributes])

    def name(self) -> str:
        given = self.op.backward_name
        if type(given) is dict:  # by which operands are tensors, and which numbers
            form = "".join("t" if isinstance(d, dt.dtype) else "n" for d in self.dtypes)
            return given.get(form) or default_name(self.op)
        return given or default_name(self.op)

    def __repr__(self) -> str:
        return self.name()

    def _entry(self, i: int):
        """(derived op, what it reads) for operand i, or None if nothing flows there."""
        d = self.dtypes[i]
        if not (isinstance(d, dt.dtype) and d.kind in "fc"):
            return None
        probes = {0: ex.make("state", (), 4000, self.out.compute)}
        for k, d_k in enumerate(self.dtypes):
            if not isinstance(d_k, tuple):
                kind = d_k.compute if isinstance(d_k, dt.dtype) else param_dtype(
                    d_k, self.operating.compute)
                probes[k + 1] = ex.make("state", (), 4001 + k, kind)
        probes[-1] = ex.make("state", (), 4999, self.out.compute)
        values = {name: (given[1] if isinstance(given, tuple) else ex.make(
            "state", (), 5000 + n, param_dtype(given, self.operating.compute)))
            for n, (name, given) in enumerate(self.attributes)}
        pulled = _pulled(self.op, i, self.operating, self.dtypes, self.out, probes, values, None)
        if pulled is None:
            return ZERO
        states = ex.leaves(pulled, "state")
        used = [k for k in sorted(probes) if probes[k].attr in states]
        if 0 not in used:
            return ZERO
        order = [0] + [k for k in used if k != 0]
        if pulled is probes[0] and self.out is d:
            return None, (0,)  # handed on as it is
        derived = Derived(self.op, i, self.operating, self.dtypes, self.out, self.dtypes[i],
                          order, None)
        plug(derived)
        return derived, tuple(order)

    def _keepers(self) -> tuple[int, ...]:
        """For each set of operands that want a gradient (as bits), what to keep (as bits)."""
        n = len(self.dtypes)
        found = []
        for wanting in range(1 << n):
            bits = 0
            for i in range(n):
                if wanting >> i & 1 and self._entries[i] is not None:
                    for k in self._entries[i][1]:
                        if k:
                            bits |= 1 << (n if k == -1 else k - 1)
            found.append(bits)
        return tuple(found)

    def carefully(self, node, g):
        """The same for every case: packed tensors, attributes, derivatives of derivatives."""
        kept = kept_values(node)
        numbers = node.extra["attributes"] if node.extra and "attributes" in node.extra else {}
        results = []
        for i, parent in enumerate(node.parents):
            entry = self._entries[i] if parent is not None else None
            if entry is None:
                results.append(None)
                continue
            derived, order = entry
            if derived is None:
                results.append(again(g) if order else self._zero(i, g))
                continue
            args = [g if k == 0 else self._result(node, kept) if k == -1 else kept[k - 1]
                    for k in order]
            results.append(derived.run(*args, **numbers))
        return results

    def _direct(self):
        """Straight code for this op's gradients, with the checks of what was kept."""
        n = len(self.dtypes)
        if any(not isinstance(given, tuple) for _, given in self.attributes):
            return self.carefully
        lines = ["def pull(node, g):", "    kept = node.kept", "    parents = node.parents",
                 "    versions = node.versions", "    try:"]
        scope: dict = {"carefully": self.carefully, "again": again}
        for i in range(n):
            lines += [f"        {line}" for line in self._direct_part(i, scope)]
        lines += [f"        return {', '.join(f'part{i}' for i in range(n))},",
                  "    except (AttributeError, TypeError):  # nothing kept any more, or packed",
                  "        return carefully(node, g)"]
        return compile_text("\n".join(lines) + "\n", "pull", scope)

    def _direct_part(self, i: int, scope: dict) -> list[str]:
        entry, n = self._entries[i], len(self.dtypes)
        if entry is None:
            return [f"part{i} = None"]
        derived, order = entry
        if entry is ZERO:
            scope["zero"] = self._zero
            return [f"part{i} = zero({i}, g) if parents[{i}] is not None else None"]
        if derived is None:  # handed on; but the same object only once
            before = any(e is not None and e[0] is None and e[1] for e in self._entries[:i])
            value = "(again(g) if part0 is not None else g)" if before else "g"
            return [f"part{i} = {value} if parents[{i}] is not None else None"]
        scope[f"run{i}"] = derived.run
        changed, args = [], ["g"]
        for k in order[1:]:
            at = n if k == -1 else k - 1
            args.append(f"kept[{at}]")
            if k == -1 or isinstance(self.dtypes[k - 1], dt.dtype):
                changed.append(f"kept[{at}].mem.version != versions[{at}]")
        lines = [f"if parents[{i}] is None:", f"    part{i} = None"]
        if changed:
            lines += [f"elif {' or '.join(changed)}:", "    return carefully(node, g)"]
        return [*lines, "else:", f"    part{i} = run{i}({', '.join(args)})"]

    def _zero(self, i: int, g: Tensor) -> Tensor:
        return self.op.engine.full(g.sig.shape, 0, self.dtypes[i], g.sig.device)

    def _result(self, node, kept):
        return reattached(kept[len(self.dtypes)], node)

    def saved(self, node, name):
        kept = kept_values(node)
        names = {**{n: k for k, n in enumerate(self.op.operands)}, "result": len(kept) - 1,
                 "self": 0, "other": min(1, len(kept) - 1)}
        return kept[names[name]]


class FixedBack(Back):
    """The same where operands were broadcast: their gradients are summed to their shapes."""

    __slots__ = ("fix", "shared")

    def __init__(self, shared: Back, fix):
        super().__init__(shared.op, shared.operating, shared.dtypes, shared.attributes, shared.out)
        self.shared, self.fix = shared, fix
        if shared.known:
            self.keep, self.known = shared.keep, True

    def __getattr__(self, name):
        if name in ("_entries", "keep"):
            value = getattr(self.shared, name)
            setattr(self, name, value)
            if name == "keep":
                self._announce()
            return value
        return super().__getattr__(name)

    def _direct(self):
        spread = self.shared.pull
        return lambda node, g: self._summed(spread(node, g))

    def carefully(self, node, g):
        return self._summed(self.shared.carefully(node, g))

    def _summed(self, parts) -> list:
        sum_to = self.op.engine.sum_to
        return [part if part is None or shape is None else sum_to(part, shape)
                for part, shape in zip(parts, self.fix, strict=True)]


def reattached(out: Tensor, node) -> Tensor:
    """A kept result as part of the graph again, for derivatives of derivatives."""
    if not modes.grad:
        return out
    same = make(out.sig, out.mem, out.ptr)
    same.node = node
    return same


@lru_cache(maxsize=8192)
def shared_back(op, operating, dtypes, attributes, out: dt.dtype) -> Back:
    """The one Back of an op on these dtypes."""
    return Back(op, operating, dtypes, attributes, out)


def backward_name(op) -> str:
    return getattr(op, "backward_name", None) or default_name(op)


def default_name(op) -> str:
    # The way back to an operand is an op that is named after it by number; its own has none.
    name = op.name.replace("_backward0", "_backward").replace("_backward1", "_backward")
    words = name.split("_") if getattr(op, "where", "") != "linalg" else [
        "linalg", *name.split("_")]
    return "".join(word[:1].upper() + word[1:] for word in words) + "Backward0"
