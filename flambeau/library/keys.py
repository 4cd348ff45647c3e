"""torch's dispatch keys by name, and sets of them that are left out for a while."""

from __future__ import annotations

import enum

import flambeau

__all__ = ["DispatchKey", "DispatchKeySet", "ExcludeDispatchKeyGuard"]

DispatchKey = enum.Enum("DispatchKey", [
    "Undefined", "CPU", "CUDA", "XPU", "MPS", "Meta", "SparseCPU", "QuantizedCPU", "BackendSelect",
    "Python", "Functionalize", "ADInplaceOrView", "AutogradOther", "AutogradCPU", "AutogradCUDA",
    "AutogradXPU", "AutogradMPS", "AutogradMeta", "AutocastCPU", "AutocastCUDA", "AutocastXPU",
    "AutocastMPS", "FuncTorchBatched", "FuncTorchVmapMode", "PythonTLSSnapshot",
    "PythonDispatcher", "Autograd", "CompositeImplicitAutograd", "CompositeExplicitAutograd",
])  # fmt: skip


class DispatchKeySet:
    """Some dispatch keys.

    >>> cpu, meta = DispatchKeySet(DispatchKey.CPU), DispatchKeySet(DispatchKey.Meta)
    >>> (cpu | meta).has(DispatchKey.Meta), (cpu & meta).has(DispatchKey.Meta)
    (True, False)
    """

    def __init__(self, *keys) -> None:
        self._keys = frozenset(keys)

    def has(self, key) -> bool:
        return key in self._keys

    def add(self, key) -> DispatchKeySet:
        return DispatchKeySet(*self._keys, key)

    def remove(self, key) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys - {key}))

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys, *other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys & other._keys))

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys - other._keys))

    def __eq__(self, other) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(sorted(key.name for key in self._keys))})"


class ExcludeDispatchKeyGuard:
    """Inside, what keys stand for is left out: casting by autocast, recording for backward."""

    def __init__(self, keys: DispatchKeySet) -> None:
        self._contexts: list = []
        if keys.has(DispatchKey.AutocastCPU):
            self._contexts.append(flambeau.autocast("cpu", enabled=False))
        if keys.has(DispatchKey.AutogradCPU) or keys.has(DispatchKey.Autograd):
            self._contexts.append(flambeau.no_grad())

    def __enter__(self) -> None:
        for each in self._contexts:
            each.__enter__()

    def __exit__(self, *error) -> None:
        for each in reversed(self._contexts):
            each.__exit__(*error)
