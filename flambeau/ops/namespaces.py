"""Ops as torch.ops knows them: a namespace has packets, a packet has overloads.

`flambeau.library` fills them; `aten`, the ops of the library itself, is found by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Namespace:
    """torch.ops.mylib"""

    def __init__(self, name: str):
        self._name = name
        self._packets: dict[str, Packet] = {}
        self._find: Callable[[str], Any] | None = None  # of ops that nobody has registered

    def __getattr__(self, name: str) -> Packet:
        found = self._packets.get(name)
        if found is None and self._find is not None and not name.startswith("__"):
            function = self._find(name)
            if function is not None:
                found = self._packets[name] = Known(self._name, name, function)
        if found is None:
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")
        return found

    def __dir__(self):
        return list(self._packets)

    def __iter__(self):
        return iter(self._packets)

    def __repr__(self) -> str:
        return f"<module 'torch.ops.{self._name}' from 'torch.ops'>"


class Packet:
    """torch.ops.mylib.f: an op with all its overloads."""

    def __init__(self, space: str, name: str):
        self._qualified_op_name, self.__name__ = f"{space}::{name}", name
        self.__module__ = f"torch.ops.{space}"
        self._overloads: dict[str, Any] = {}

    def overloads(self) -> list[str]:
        return list(self._overloads)

    def __getattr__(self, name: str):
        if name.startswith("__") or name not in self._overloads:
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")
        return self._overloads[name]

    def __call__(self, *args: Any, **kwargs: Any):
        failures = []
        for overload in self._overloads.values():
            fits = getattr(overload, "fits", None)
            if fits is None or len(self._overloads) == 1 or fits(args, kwargs):
                return overload(*args, **kwargs)
            failures.append(str(overload._schema))
        raise RuntimeError(f"{self._qualified_op_name}: no overload takes these arguments; there "
                           f"are {'; '.join(failures)}")

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __str__(self) -> str:
        return self._qualified_op_name.replace("::", ".")


class Known(Packet):
    """An op of the library: whatever overload is asked for, it is the one function there is."""

    def __init__(self, space: str, name: str, function: Callable):
        super().__init__(space, name)
        self._function = function

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return self._overloads.setdefault(name, KnownOverload(self, name))

    def __call__(self, *args: Any, **kwargs: Any):
        return self._function(*args, **kwargs)


class KnownOverload:
    """torch.ops.aten.add.Tensor"""

    def __init__(self, packet: Known, name: str):
        self.overloadpacket, self._overloadname = packet, name
        self.__module__ = packet.__module__
        self.__name__, self.namespace = f"{packet.__name__}.{name}", str(packet).split(".")[0]

    through: Callable | None = None  # by whom it is called while modes may listen

    def __call__(self, *args: Any, **kwargs: Any):
        through = KnownOverload.through
        return self.run(args, kwargs) if through is None else through(self, args, kwargs)

    def run(self, args: tuple, kwargs: dict):
        return self.overloadpacket(*args, **kwargs)

    def name(self) -> str:
        end = "" if self._overloadname == "default" else f".{self._overloadname}"
        return f"{self.overloadpacket._qualified_op_name}{end}"

    @property
    def _overloadpacket(self) -> Known:
        return self.overloadpacket

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"{self.overloadpacket}.{self._overloadname}"


_namespaces: dict[str, Namespace] = {}


def namespace(name: str) -> Namespace:
    """The namespace of this name, which may be empty."""
    return _namespaces.setdefault(name, Namespace(name))


def load_library(path) -> None:
    """Ops of a library in C++, of which there are none: refused as files that cannot be loaded."""
    raise OSError(f"load_library: {path}: libraries in C++ are linked against PyTorch and cannot "
                  "be loaded here; an op is a Python function (torch.library.custom_op)")
