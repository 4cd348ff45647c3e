"""One step of the autograd graph, and the walk back through it.

Nodes are walked by falling sequence number: whatever used a node's result was recorded later,
so its gradient is complete when its turn comes. No recursion, no counting of dependencies.
A leaf is not a node: an edge that ends in a leaf holds the tensor itself.
"""

from __future__ import annotations

import sys
import weakref
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter
from typing import Any

from . import native
from .modes import Native, modes
from .tensor import LEAF, Signature, Tensor, make

_BY_TIME = attrgetter("seq")


class Node:
    """What was done (`back` knows how to go back), on what (parents), and what was kept."""

    __slots__ = ("__weakref__", "back", "extra", "kept", "parents", "seq", "sigs", "versions")

    back: Any          # answers name() and pull(node, g) -> gradients, one per parent
    parents: tuple     # of Node, Edge, Tensor (a leaf) or None
    kept: tuple
    versions: tuple    # of the kept tensors' storages, when they were kept
    seq: int
    sigs: tuple        # signatures of the results, one or several
    extra: Any  # None, or a dict: hooks, attributes and whatever else few steps have

    def name(self) -> str:
        """What torch calls this step."""
        found = self.back.name()
        return found if isinstance(found, str) else found(self)

    def __repr__(self) -> str:
        return f"<{type(named(self)).__name__} object at {id(self):#x}>"

    @property
    def next_functions(self) -> tuple:
        """((node, number of its result), ...): where gradients go."""
        label, parents = getattr(self.back, "label", None), self.parents
        if label is not None and len(parents) == 1 and isinstance(parents[0], Node) and (
                parents[0].back.name() == label):
            parents = parents[0].parents  # a loss that is reduced is one step of torch's
        return tuple(_described(parent) for parent in parents)

    def __call__(self, *grads):
        """The gradients of what this step was given, from those of its results."""
        g = grads[0] if len(self.sigs) == 1 else list(grads)
        pull = getattr(self.back, "carefully", None) if modes.grad else None
        found = tuple((pull or self.back.pull)(self, g))
        return found[0] if len(found) == 1 else found

    def more(self, name: str) -> dict:
        """A table of this step's own, made when first asked for."""
        if self.extra is None:
            self.extra = {}
        return self.extra.setdefault(name, {})

    @property
    def metadata(self) -> dict:
        return self.more("metadata")

    def register_hook(self, hook):
        """Call hook(grad_inputs, grad_outputs) after this step has gone back."""
        return Handle(self.more("post"), hook)

    def register_prehook(self, hook):
        """Call hook(grad_outputs) before this step goes back."""
        return Handle(self.more("pre"), hook)

    def _sequence_nr(self) -> int:
        return self.seq

    def __getattr__(self, name):
        if name.startswith("_saved_"):
            return self.back.saved(self, name.removeprefix("_saved_"))
        own = getattr(self.back, "ctx", None)  # a custom function's context is its step
        found = getattr(own, name, Node) if own is not None else Node
        if found is not Node:  # asked once: reading saved tensors may unpack them
            return found
        raise AttributeError(f"'{self.name()}' object has no attribute '{name}'")


class SeveralResults(Node):
    """A step with more than one result."""

    __slots__ = ()


_classes: dict[tuple[type, str], type] = {}


def named(node: Any) -> Any:
    """A step that somebody looks at: from now on its class has the name that torch gives it.

    Steps are made by the million and hardly ever looked at, so none is made with such a class.
    """
    kind = type(node)
    if kind is Node or kind is SeveralResults:
        name = node.name().rpartition("::")[2]
        if (kind, name) not in _classes:
            _classes[kind, name] = type(name, (kind,), {"__slots__": (), "__module__": "builtins"})
        node.__class__ = _classes[kind, name]
    return node


fronts = native.Fronts(Node)
next_sequence = fronts.next_sequence  # one count for steps recorded natively and in Python
Native.inferring = fronts.inferring
Native.off_count, Native.off_ident = fronts.word("off_count"), fronts.word("off_ident")
Native.special = fronts.word("special")


class Hooked:
    """Whether any leaf has ever been given a hook: if not, none needs to be asked."""

    leaves = False


class Edge:
    """One result, other than the only one, of a node."""

    __slots__ = ("node", "number")

    def __init__(self, node: Node, number: int):
        self.node, self.number = node, number


class AccumulateGrad:
    """What `next_functions` shows for a leaf: one object, as long as somebody holds it."""

    _alive: weakref.WeakValueDictionary = weakref.WeakValueDictionary()

    def __new__(cls, variable: Tensor):
        found = cls._alive.get(id(variable))
        if found is None:
            found = cls._alive[id(variable)] = object.__new__(cls)
            found.variable = variable
        return found

    variable: Any

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"

    def __call__(self, grad: Tensor) -> None:
        """Add to the leaf's gradient."""
        have = self.variable.grad
        self.variable.grad = again(grad) if have is None else have + grad

    next_functions = ()

    def register_hook(self, hook):
        def told(leaf: Tensor) -> None:
            hook((), (leaf.grad,))

        return Handle(self.variable.__dict__.setdefault("_accumulated", {}), told)

    def register_prehook(self, hook):
        return Handle(self.variable.__dict__.setdefault("_hooks", {}), lambda g: hook((g,)))

class Handle:
    """What registering a hook returns; `remove()` takes the hook away."""

    _ids = count()

    def __init__(self, table: dict, hook):
        self.id = next(Handle._ids)
        self.hooks_dict_ref = weakref.ref(_Hooks.of(table))
        self._table = table
        table[self.id] = hook
        Hooked.leaves = True

    def remove(self) -> None:
        self._table.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class _Hooks:
    """A weakly referable stand-in for a table of hooks."""

    __slots__ = ("__weakref__", "table")

    @classmethod
    def of(cls, table):
        made = cls()
        made.table = table
        return made


def _described(parent):
    if parent is None:
        return (None, 0)
    if isinstance(parent, Tensor):
        return (AccumulateGrad(parent), 0)
    return (named(parent.node), parent.number) if type(parent) is Edge else (named(parent), 0)


def again(g: Tensor) -> Tensor:
    """Another tensor over the same bytes: whoever owns bytes alone may change them."""
    if not g._has_memory or g.node is LEAF or g.is_sparse:  # a leaf is known by the tensor itself
        return g
    same = make(g.sig, g.mem, g.ptr)
    same.node = g.node
    return same


class _Promised:
    """The step behind a tensor of a compiled function that is not computed yet."""

    number = 0

    def name(self) -> str:
        return "CompiledBackward"


PROMISED: Any = _Promised()


def edge_of(x: Tensor):
    """Where the gradient of a tensor goes."""
    node = x.node
    if node is PROMISED:
        _ = x.mem  # whoever asks for memory gets a real tensor
        node = x.node
    return x if node is LEAF else node


def versions_of(kept) -> tuple:
    found = tuple([t.mem.version if t.__class__ is Tensor or isinstance(t, Tensor) else 0
                   for t in kept])
    if found and min(found) < 0:
        raise RuntimeError("Inference tensors cannot be saved for backward. Please do not save "
                           "Tensors computed in inference mode in computation graph. To work "
                           "around this, you can make a clone to get a normal tensor and use it "
                           "in autograd, or use `torch.no_grad()` instead of "
                           "`torch.inference_mode()`.")
    return found


def attach(out: Tensor, back, parents: tuple, kept: tuple, number: int | None = None) -> Node:
    """Record one step whose only result is `out`."""
    node = new_node(back, parents, kept, (out.sig,))
    out.node = node
    return node


def new_node(back, parents: tuple, kept: tuple, sigs: tuple) -> Node:
    node = object.__new__(Node if len(sigs) == 1 else SeveralResults)
    node.back, node.parents, node.sigs = back, parents, sigs
    node.versions = versions_of(kept)
    node.kept = _packed(kept) if modes.pack else kept
    node.seq = next_sequence()
    node.extra = {"trace": _stack()} if modes.anomaly else None
    return node


def _stack() -> str:
    import traceback

    return "".join(traceback.format_stack(sys._getframe(3)))


class Packed:
    """A kept tensor in the form a saved-tensor hook gave it, and its place in the graph."""

    __slots__ = ("edge", "packed", "unpack")

    def __init__(self, packed, unpack, edge):
        self.packed, self.unpack, self.edge = packed, unpack, edge

    def value(self) -> Tensor:
        """The tensor again; part of the graph as it was, where derivatives go on from it."""
        found, edge = self.unpack(self.packed), self.edge
        if edge is None or not modes.grad or found is edge or found.node is edge:
            return found
        again = make(found.sig, found.mem, found.ptr)
        again.node = edge if not isinstance(edge, Tensor) else new_node(
            _Same(), (edge,), (), (found.sig,))
        return again


class _Same:
    """Goes back to the leaf that an unpacked tensor stands for."""

    def name(self) -> str:
        return "AliasBackward0"

    def pull(self, node, g):
        return [g]


def _packed(kept: tuple) -> tuple:
    pack, unpack = modes.pack[-1]
    # detached: hooks look at values (t.numpy(), t.tolist()), and the place in the graph is ours
    return tuple(Packed(pack(t.detach()), unpack, edge_of(t)) if isinstance(t, Tensor) else t
                 for t in kept)


def kept_values(node: Node) -> tuple:
    """The kept tensors, checked to be what they were when they were kept."""
    kept = node.kept
    if kept is None:
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors "
            "after they have already been freed). Saved intermediate values of the graph are freed "
            "when you call .backward() or autograd.grad(). Specify retain_graph=True if you need "
            "to backward through the graph a second time or if you need to access saved tensors "
            f"after calling backward. (in {node.name()})")
    for t, version in zip(kept, node.versions):
        if type(t) is Packed:
            return tuple([k.value() if type(k) is Packed else k for k in kept])
        if isinstance(t, Tensor) and t.mem.version != version:
            raise RuntimeError(_changed_message(node, t, version))
    return kept


def _changed_message(node: Node, t: Tensor, version: int) -> str:
    try:
        code, at = t.mem.changed
        line = next(line for start, end, line in code.co_lines() if start <= at < end)
        where = f" It was last changed at {code.co_filename}:{line}, in {code.co_name}."
    except AttributeError:
        where = ""
    kind = f"torch.{'Float' if t.sig.dtype.itemsize == 4 else 'Double'}Tensor"
    return ("one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: [{kind} {list(t.sig.shape)}], which {node.name()} kept, is at version "
            f"{t.mem.version}; expected version {version} instead.{where} Hint: use the "
            "out-of-place form there, or clone() the tensor first.")


# -- going back ----------------------------------------------------------------------------------


class Walk:
    """One backward pass: which gradients are pending, which are wanted."""

    roots: list  # where it started

    def __init__(self, ops, retain: bool, create: bool, wanted=None):
        self.ops, self.retain, self.create = ops, retain, create
        self.pending: dict[Node, Any] = {}
        self.heap: list = []
        self.held: dict[int, list] = {}  # leaves with hooks: [tensor, gradient]
        self.expected: dict[int, int] = {}  # how many gradients these are still given
        self.wanted = wanted             # None: accumulate into leaves
        self.found: dict = {}
        self.targets: Any = None         # keys of what is wanted, once restricted
        self.useful: set[int] = set()    # ids of steps that lead to what is wanted
        self.asked: set[int] = set()     # ids of the tensors and steps that are wanted
        self.leads: Any = None           # all of these, once restricted

    def restrict(self, roots) -> None:
        """Walk only what leads to a wanted tensor."""
        targets = self.targets = {key_of(edge_of(t)) for t in self.wanted}
        asked = self.asked = {key if type(key) is int else key[0] for key in targets}
        useful = self.useful
        stack = [node for node in map(_node, roots) if isinstance(node, Node)]
        seen = set(stack)
        while stack:
            for parent in stack.pop().parents:
                kind = type(parent)
                if kind is Edge:
                    parent = parent.node
                elif kind is not Node and not isinstance(parent, Node):
                    continue
                if parent not in seen:
                    seen.add(parent)
                    stack.append(parent)
        for node in sorted(seen, key=_BY_TIME):
            for parent in node.parents:
                if type(parent) is Edge:
                    leads = id(parent.node) in useful or key_of(parent) in targets
                else:
                    leads = id(parent) in useful or id(parent) in targets
                if leads:
                    useful.add(id(node))
                    break
        self.leads = useful | asked

    def give(self, edge, g) -> None:
        """Add to the gradient of what an edge leads to."""
        kind = type(edge)
        if kind is Node or (kind is not Edge and isinstance(edge, Node)
                            and not isinstance(edge, SeveralResults)):  # looked at by somebody
            if self.leads is not None and id(edge) not in self.leads:
                return
            have = self.pending.get(edge)
            if have is None:
                self.pending[edge] = g
                heappush(self.heap, (-edge.seq, id(edge), edge))
            else:
                self.pending[edge] = self.ops.add(have, g)
        elif kind is Edge:
            self._give_numbered(edge.node, edge.number, g)
        elif isinstance(edge, SeveralResults):
            self._give_numbered(edge, 0, g)
        else:
            self._give_leaf(edge, g)

    def _give_numbered(self, node: Node, number: int, g) -> None:
        if self.leads is not None and id(node) not in self.leads:
            return
        grads = self.pending.get(node)
        if grads is None:
            grads = self.pending[node] = [None] * len(node.sigs)
            heappush(self.heap, (-node.seq, id(node), node))
        grads[number] = g if grads[number] is None else self.ops.add(grads[number], g)

    def _give_leaf(self, leaf: Tensor, g) -> None:
        if self.wanted is not None:
            key = key_of(leaf)
            if key in self.targets:
                have = self.found.get(key)
                self.found[key] = g if have is None else self.ops.add(have, g)
        elif _looked_at(leaf):
            slot = self.held.setdefault(id(leaf), [leaf, None])
            slot[1] = g if slot[1] is None else self.ops.add(slot[1], g)
            left = self.expected[id(leaf)] = self.expected.get(id(leaf), 0) - 1
            if left == 0:  # hooks are told as soon as it is whole, while others are computed
                self._deliver(*self.held.pop(id(leaf)))
        else:
            self.ops.accumulate(leaf, g, self.create)

    def run(self) -> None:
        """Go back until nothing is pending; a chain of steps is followed without the heap."""
        heap, pending, retain = self.heap, self.pending, self.retain
        careful, leads, asked = self.create, self.leads, self.asked
        plain = not careful and leads is None and not Hooked.leaves
        if Hooked.leaves and self.wanted is None:
            self._expect()
        while heap:
            node = heappop(heap)[2]
            g = pending.pop(node)
            while node is not None:
                if careful or node.extra is not None or (asked and id(node) in asked):
                    grads = self._careful_step(node, g)
                    if grads is None:
                        break
                else:
                    grads = node.back.pull(node, g)
                g = None  # whoever gets it next may own it alone
                if not retain:
                    node.kept = None
                parents = node.parents
                if not pending and parents and type(parents[0]) is Node and (
                        len(parents) == 1 or (parents[1] is None and len(parents) == 2)) and (
                        leads is None or id(parents[0]) in leads):
                    g = grads[0]  # a chain: the next step is the only one there is
                    node = None if g is None else parents[0]
                    continue
                following = None
                for parent, part in zip(parents, grads):
                    if part is None or parent is None:
                        continue
                    if type(parent) is not Node:
                        if plain and isinstance(parent, Tensor):
                            self.ops.accumulate(parent, part, False)
                        else:
                            self.give(parent, part)
                    elif leads is not None and id(parent) not in leads:
                        continue
                    elif parent is following:
                        g = self.ops.add(g, part)
                    elif parent in pending:
                        pending[parent] = self.ops.add(pending[parent], part)
                    elif following is None:
                        following, g = parent, part
                    else:
                        pending[parent] = part
                        heappush(heap, (-parent.seq, id(parent), parent))
                if following is not None and heap and heap[0][0] < -following.seq:
                    pending[following] = g
                    heappush(heap, (-following.seq, id(following), following))
                    following = None
                node = following
        self._finish()

    def _expect(self) -> None:
        """Count the edges to leaves with hooks; one that is given nothing leaves them for last."""
        seen: set = set()
        stack = list(self.pending)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            for parent in node.parents:
                if isinstance(parent, Tensor):
                    if _looked_at(parent):
                        self.expected[id(parent)] = self.expected.get(id(parent), 0) + 1
                elif parent is not None:
                    stack.append(_node(parent))

    def _careful_step(self, node: Node, g):
        """One step with its hooks, and with what a caller asked to see.

        None where the walk ends: what is behind is kept for another walk.
        """
        if node.extra is not None:
            g = self._before(node, g)
            g = again(g) if isinstance(g, Tensor) else g  # a hook may have held on to it
        if self.wanted is not None:
            self._capture(node, g)
            if id(node) not in self.useful:
                return None
        # Derivatives of derivatives need kept results as part of the graph again.
        pull = getattr(node.back, "carefully", None) or node.back.pull
        grads = pull(node, g)
        return grads if node.extra is None else self._after(node, g, grads)

    def _before(self, node: Node, g):
        """Tensor hooks, retained gradients and pre-hooks of a step."""
        extra = node.extra
        several = len(node.sigs) > 1
        parts = list(g) if several else [g]
        for number, hooks in extra.get("result_hooks", {}).items():
            for hook in list(hooks.values()):
                if parts[number] is not None:
                    changed = hook(parts[number])
                    parts[number] = parts[number] if changed is None else changed
        for number, holder in extra.get("retain", {}).items():
            tensor = holder()
            if tensor is not None and parts[number] is not None and self.wanted is None:
                have = getattr(tensor, "_grad", None)
                part = parts[number]
                tensor._grad = again(part) if have is None else self.ops.add(have, part)
        for hook in list(extra.get("pre", {}).values()):
            changed = hook(tuple(parts))
            parts = parts if changed is None else list(changed)
        return parts if several else parts[0]

    def _after(self, node: Node, g, grads):
        outputs = tuple(g) if len(node.sigs) > 1 else (g,)
        for hook in list(node.extra.get("post", {}).values()):
            changed = hook(tuple(grads), outputs)
            grads = grads if changed is None else tuple(changed)
        if modes.anomaly:
            self.ops.check_anomaly(node, grads)
        return grads

    def _capture(self, node: Node, g) -> None:
        parts = g if len(node.sigs) > 1 else [g]
        for number, part in enumerate(parts):
            key = (id(node), number) if number else id(node)
            if key in self.targets and part is not None:
                self.found[key] = part

    def _finish(self) -> None:
        for leaf, g in list(self.held.values()):
            self._deliver(leaf, g)

    def _deliver(self, leaf: Tensor, g) -> None:
        """The whole gradient of a leaf, by way of its hooks."""
        for hook in list(leaf.__dict__.get("_hooks", {}).values()):
            changed = hook(g)
            g = g if changed is None else changed
        g = again(g)  # a hook may have held on to it
        self.ops.accumulate(leaf, g, self.create)
        for hook in list(leaf.__dict__.get("_accumulated", {}).values()):
            told = hook(leaf)
            if told is not None:
                if not isinstance(told, Tensor):
                    raise TypeError("expected Variable, but hook returned "
                                    f"'{type(told).__name__}'")
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")


def _looked_at(leaf: Tensor) -> bool:
    """Whether a leaf has hooks."""
    own = leaf.__dict__ if Hooked.leaves else {}
    return bool(own.get("_hooks") or own.get("_accumulated"))


def accumulates(edge, g: Tensor) -> bool:
    """Whether a gradient would be added to that of a leaf as it is, with nobody looking on."""
    if not isinstance(edge, Tensor) or edge.node is not LEAF or modes.grad or (
            modes.walk is None or modes.walk.wanted is not None) or (
            g.sig.dtype is not edge.sig.dtype) or g.sig.tag is not None:
        return False
    have = edge.grad
    return (have is None or have.sig is edge.sig) and not _looked_at(edge)


def _node(edge):
    return edge.node if type(edge) is Edge else edge


def key_of(edge):
    """What names a tensor's place in the graph: an id, and which of several results."""
    if type(edge) is Edge:
        return (id(edge.node), edge.number) if edge.number else id(edge.node)
    return id(edge)


def result_meta(x: Tensor) -> Signature:
    return x.sig
