"""flambeau under the name of torch: an import finder for `torch` and everything inside it.

Sub-modules are flambeau's own objects under a second name, so `torch.nn.Module` is
`flambeau.nn.Module`. Only the top is a module of its own, because it answers with another version.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any

import flambeau

#: the release of PyTorch whose API flambeau follows; programs that ask get this answer
VERSION = "2.13.0"
#: modules that programs import beside torch, and what to do where they are not installed
NEIGHBOURS = {
    "torchvision": "flambeau.datasets reads MNIST and CIFAR files; models can be built from nn",
    "torchaudio":  "it is part of PyTorch's own installation",
    "torchtext":   "it is part of PyTorch's own installation",
}  # fmt: skip


class Version(str):
    """A version that compares with texts and tuples by its numbers: "2.13" > "2.9"."""

    @staticmethod
    def numbers(version: object) -> tuple[int, ...]:
        parts = version.split("+")[0].split(".") if isinstance(version, str) else version
        found = []
        for part in parts:  # type: ignore[attr-defined]
            digits = str(part)[:len(str(part)) - len(str(part).lstrip("0123456789"))]
            if not digits:
                break
            found.append(int(digits))
        while found and found[-1] == 0:
            found.pop()
        return tuple(found)

    def _compares(self, other: object) -> bool:
        return isinstance(other, (str, tuple, list))

    def __lt__(self, other: Any) -> bool:
        return self.numbers(self) < self.numbers(other) if self._compares(other) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self.numbers(self) <= self.numbers(other) if self._compares(other) \
            else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self.numbers(self) > self.numbers(other) if self._compares(other) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self.numbers(self) >= self.numbers(other) if self._compares(other) \
            else NotImplemented

    def __eq__(self, other: object) -> bool:
        return self._compares(other) and self.numbers(self) == self.numbers(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class Top(types.ModuleType):
    """The module `torch`: flambeau's names, found when first used and then kept."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(flambeau, name)
        except AttributeError:
            raise AttributeError(f"module 'torch' has no attribute '{name}'") from None
        if not hasattr(value, "original"):  # what stands there while a mode is on is soon gone
            setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *dir(flambeau)})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers every import of `torch` and of what lies inside it."""

    def find_spec(self, name: str, path: Sequence[str] | None = None,
                  target: types.ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name != "torch" and not name.startswith("torch."):
            return None
        if not exists(name):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return self.spec(name)

    def spec(self, name: str) -> importlib.machinery.ModuleSpec:
        """What is known of a module: programs look at it to see whether torch is there."""
        spec = importlib.machinery.ModuleSpec(name, self, origin=flambeau.__file__, is_package=True)
        spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = top() if name == "torch" else parts_of(name)


def parts_of(name: str) -> types.ModuleType:
    """The module for a dotted name below torch."""
    if name == "torch.version":
        return versions()
    if name == "torch.torch_version":
        return versions(TorchVersion=Version)
    return importlib.import_module(name.replace("torch", "flambeau", 1))


def top() -> Top:
    module = Top("torch", flambeau.__doc__)
    module.__version__ = Version(VERSION)  # type: ignore[attr-defined]
    module.__path__ = []
    module.__all__ = flambeau.__all__  # type: ignore[attr-defined]
    module.__file__ = flambeau.__file__
    module.torch = module  # type: ignore[attr-defined]  # there, too, it imports itself
    module.version = versions()  # type: ignore[attr-defined]
    module.torch_version = versions(TorchVersion=Version)  # type: ignore[attr-defined]
    return module


def versions(**more: object) -> types.ModuleType:
    """What `torch.version` is."""
    module = types.ModuleType("torch.version", "The release of PyTorch that flambeau follows.")
    told = {"__version__": Version(VERSION), "cuda": None, "hip": None, "xpu": None,
            "debug": False, "git_version": f"flambeau {flambeau.__version__}"}
    vars(module).update(told, **more)
    return module


def exists(name: str) -> bool:
    """Whether flambeau has a module for this name of torch's."""
    if name in ("torch", "torch.version", "torch.torch_version"):
        return True
    own = name.replace("torch", "flambeau", 1)
    if own.startswith(("flambeau.cli", "flambeau.core", "flambeau.engine", "flambeau.ops",
                       "flambeau.devices", "flambeau.datasets", "flambeau.assemble")):
        return False  # flambeau's own rooms are no names of torch's
    try:
        return importlib.util.find_spec(own) is not None
    except ModuleNotFoundError:
        return False


def install(name: str = "torch") -> None:
    """From now on `import torch` means flambeau, in place of whatever it meant before."""
    finder = next((each for each in sys.meta_path if isinstance(each, Finder)), None)
    if finder is None:
        finder = Finder()
        sys.meta_path.insert(0, finder)
    if not isinstance(sys.modules.get(name), Top):
        for loaded in [each for each in sys.modules if each.startswith(f"{name}.")]:
            del sys.modules[loaded]
        sys.modules[name] = top()
        sys.modules[name].__spec__ = finder.spec(name)


def remove() -> None:
    """Undo `install`."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
    for name in [each for each in sys.modules if each == "torch" or each.startswith("torch.")]:
        del sys.modules[name]
