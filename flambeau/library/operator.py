"""An op that a program has defined: its schema, its kernels, and its way back."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.assemble import declarations
from flambeau.autograd import Function
from flambeau.autograd.graph import increment_version
from flambeau.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from .schema import Schema

namespace, Packet = declarations.namespaces.namespace, declarations.namespaces.Packet

#: dispatch key -> where its kernels run: a device, or how gradients are found
KEYS = {
    "CPU": "cpu", "CUDA": "cuda", "XPU": "xpu", "MPS": "mps", "Meta": "meta",
    "CompositeExplicitAutograd": "default", "CompositeExplicitAutogradNonFunctional": "default",
    "CompositeImplicitAutograd": "composite", "": "composite", "Autograd": "autograd",
    "AutogradCPU": "autograd", "AutogradMeta": "autograd",
}


class _Below(threading.local):
    """Whether a thread is inside the kernel that stands for going back."""

    autograd = False


below = _Below()


@contextlib.contextmanager
def below_autograd():
    """Inside, ops run the kernels of their device."""
    before, below.autograd = below.autograd, True
    try:
        yield
    finally:
        below.autograd = before


class OpOverload:
    """torch.ops.mylib.f.default"""

    def __init__(self, schema: Schema, tags: Any = ()):
        self._schema, self.tags = schema, tags
        self._overloadname = schema.overload_name or "default"
        self.namespace, self.__name__ = schema.space, f"{schema.base}.{self._overloadname}"
        self.__module__ = f"torch.ops.{schema.space}"
        self.kernels: dict[str, Callable] = {}
        self.disabled: set[str] = set()
        self.casts: dict[str, Any] = {}
        self.custom: Any = None  # the CustomOpDef of this op, if it was made by one
        self.step: type[Function] | None = None

    # -- what it is ------------------------------------------------------------------------------

    def name(self) -> str:
        return self._schema.name + (
            f".{self._schema.overload_name}" if self._schema.overload_name else "")

    @property
    def overloadpacket(self) -> Any:
        return getattr(namespace(self.namespace), self._schema.base)

    def __repr__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    __str__ = __repr__

    def fits(self, args: tuple, kwargs: dict) -> bool:
        """Whether these arguments are for this overload."""
        try:
            self._schema.bind(args, kwargs)
        except RuntimeError:
            return False
        return True

    # -- what it does ----------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any):
        args, kwargs = self._schema.bind(args, kwargs)
        if self.casts:
            cast = self._cast(args)
            if cast is not None:
                with flambeau.autocast(cast[1], enabled=False):
                    return self(*cast[0], **kwargs)
        if "autograd" in self.kernels and not below.autograd:
            return self.kernels["autograd"](*args, **kwargs)
        if self.step is None or below.autograd:
            return self.compute(args, kwargs)
        leaves, spec = tree_flatten((args, kwargs))
        return self.step.apply(spec, *leaves)

    def compute(self, args: tuple, kwargs: dict):
        """The kernel for where the arguments are."""
        result = self._kernel(args, kwargs)(*args, **kwargs)
        if self.custom is not None and not self._schema.is_mutable:
            self._check_fresh(result, args, kwargs)
        if self._schema.is_mutable:
            for argument, value in zip(self._schema.positional, args, strict=False):
                if argument.mutated:
                    for x in tree_leaves(value):
                        if isinstance(x, Tensor):
                            increment_version(x)
        return result

    def _kernel(self, args: tuple, kwargs: dict) -> Callable:
        places = [x.device.type for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        where = places[0] if places else getattr(kwargs.get("device"), "type", "cpu")
        if "meta" in places:
            where = "meta"
            if self.custom is not None and "meta" not in self.kernels:
                raise RuntimeError(
                    f"There was no fake impl registered for {self.custom}. This is necessary for "
                    "torch.compile/export/fx tracing to work. Please use "
                    f"`{self.custom._init_fn.__name__}.register_fake` to add an fake impl.")
        if where in self.disabled:
            where = "default"
        for key in (where, "default", "composite"):
            if key in self.kernels:
                return self.kernels[key]
        there = [key for key, kind in KEYS.items() if key and kind in self.kernels]
        raise NotImplementedError(
            f"Could not run '{self.name()}' with arguments from the '{where.upper()}' backend. "
            f"'{self.name()}' is only available for these backends: [{', '.join(there)}].")

    def _check_fresh(self, result: Any, args: tuple, kwargs: dict) -> None:
        """Results with memory of their own."""
        def tensors(structure: Any) -> list[Any]:
            return [x for x in tree_leaves(structure) if isinstance(x, Tensor)]

        known = {id(x.mem) for x in tensors((args, kwargs))}
        for x in tensors(result):
            if x.device.type == "meta":
                continue
            if id(x.mem) in known:
                raise RuntimeError(
                    f"{self._schema.base} (with implementation in "
                    f"{inspect.getmodule(self.custom._init_fn)}): The output of this custom "
                    "operator (1) must not also be an input to this custom operator and (2) may "
                    "not alias any inputs to this custom operator or other returns. The most "
                    "common way to trigger this error is if we have y = custom_op(x) and y and x "
                    "are the same Tensor. Please instead return a clone of the offending output "
                    "tensor(s) (e.g. return x.clone()) or refactor the custom operator to not "
                    "return y.")
            known.add(id(x.mem))

    def _cast(self, args: tuple):
        """(arguments in the dtype that autocast wants, the device), where it is on."""
        for where, dtype in self.casts.items():
            if flambeau.is_autocast_enabled(where):
                return tree_map(lambda a: a.to(dtype) if isinstance(a, Tensor)  # noqa: B023
                                and a.is_floating_point() else a, args), where
        return None

    # -- going back ------------------------------------------------------------------------------

    def differentiate(self, backward: Callable | None, setup_context: Callable | None) -> None:
        """Go back by these; without them, say so when somebody tries."""
        self.step = _step(self, backward, setup_context)


def _step(op: OpOverload, backward: Callable | None, setup: Callable | None) -> type[Function]:
    """The Function that stands for an op in the graph; lists of tensors are its arguments too."""

    class Step(Function):
        @staticmethod
        def forward(ctx: Any, spec: Any, *leaves: Any):
            args, kwargs = tree_unflatten(list(leaves), spec)
            with below_autograd():
                result = op.compute(args, kwargs)
            args, kwargs = op._schema.filled(args, kwargs)
            ctx._spec = spec
            if setup is not None:
                given = {"keyword_only_inputs": kwargs} if kwargs else {}
                setup(ctx=ctx, inputs=args, output=result, **given)
            return tuple(result) if isinstance(result, list) else result

        @staticmethod
        def backward(ctx: Any, *grads: Any):
            if backward is None:
                raise RuntimeError(f"Trying to backward through {op} but no autograd formula was "
                                   "registered. Please use register_autograd to add one.")
            found = backward(ctx, *grads)
            return (None, *_gradients(op, ctx._spec, found))

    name = f"GeneratedBackwardFor_{op.namespace}_{op.__name__}"
    Step.__name__ = Step.__qualname__ = name.replace(".", "_")
    return Step


def _gradients(op: OpOverload, spec: Any, found: Any) -> list:
    """One gradient for each leaf of the arguments, from one for each argument."""
    count = spec.children_specs[0].num_children
    found = found if isinstance(found, tuple) else (found,)
    if len(found) < count:
        raise RuntimeError(f"{op}: expected {count} gradients from the backward that was "
                           f"registered, got {len(found)}")
    leaves: list = []
    for part, g in zip(spec.children_specs[0].children_specs, found, strict=False):
        leaves += [g] if part.is_leaf() else list(g) if g is not None else [None] * part.num_leaves
    return leaves + [None] * spec.children_specs[1].num_leaves


# -- finding ---------------------------------------------------------------------------------------


def parse_name(qualname: str) -> tuple[str, str]:
    space, mark, name = qualname.partition("::")
    if not mark or "::" in name or not space or not name:
        raise ValueError(f"Expected `qualname` to be of the form \"namespace::name\", but got "
                         f"{qualname}. The qualname passed to the torch.library API must consist "
                         "of a namespace and a name, e.g. aten::sin")
    return space, name


def add(op: OpOverload) -> OpOverload:
    """Let torch.ops find an op."""
    schema = op._schema
    packets = namespace(schema.space)._packets
    packet = packets.setdefault(schema.base, Packet(schema.space, schema.base))
    packet._overloads[op._overloadname] = op
    op.kernels |= _waiting.pop(op.name(), {})
    return op


def exists(op: OpOverload) -> bool:
    """Whether torch.ops has an op of this name already."""
    packet = namespace(op.namespace)._packets.get(op._schema.base)
    return packet is not None and op._overloadname in packet._overloads


_waiting: dict[str, dict] = {}  # kernels of ops that are yet to be defined


def kernels_of(name: str) -> dict[str, Callable]:
    """The kernels of an op, which may be defined later."""
    try:
        return find(name).kernels
    except RuntimeError:
        return _waiting.setdefault(name, {})


def find(named: Any) -> OpOverload:
    """An op by its name, by its packet, or itself."""
    if isinstance(named, OpOverload):
        return named
    if hasattr(named, "_opoverload"):
        return named._opoverload
    if isinstance(named, Packet):
        return named.default
    space, name = parse_name(named)
    base, _, overload = name.partition(".")
    packet = namespace(space)._packets.get(base)
    found: Any = packet and packet._overloads.get(overload or "default")
    if found is None:
        raise RuntimeError(f"operator {named} does not exist")
    return found


def remove(op: OpOverload) -> None:
    """Let torch.ops forget an op."""
    packets = namespace(op.namespace)._packets
    packet = packets.get(op._schema.base)
    if packet is not None and packet._overloads.get(op._overloadname) is op:
        del packet._overloads[op._overloadname]
        if not packet._overloads:
            del packets[op._schema.base]
