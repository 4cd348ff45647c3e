"""A graph module as a package: its code in a file that can be read, and its weights beside it."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import flambeau
from flambeau.fx._naming import GIVEN

_HEAD = """{imports}

HERE = Path(__file__).parent


class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
"""


def write_package(module: Any, folder: Path, name: str) -> None:
    """Write a folder that imports as a package, with a module under a name in it."""
    folder.mkdir(parents=True, exist_ok=True)
    code = module.graph.python_code("self")
    made = [*_children(module, folder), *_tensors(module), *_specs(module, folder)]
    flambeau.save(module.state_dict(), folder / "state_dict.pt")
    made.append("self.load_state_dict(torch.load(HERE / 'state_dict.pt'))")
    text = _HEAD.format(imports="\n".join(_imports(code.globals)), name=name)
    text += "".join(f"        {line}\n" for line in made)
    body = code.src[code.src.index("def forward"):].rstrip()
    text += "\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    (folder / "module.py").write_text(text, encoding="utf-8")
    (folder / "__init__.py").write_text(f"from .module import {name}\n", encoding="utf-8")


def _imports(names: dict[str, Any]) -> list[str]:
    """Lines that give names of the code their meanings."""
    lines = ["from math import inf, nan", "from pathlib import Path", "",
             "import flambeau as torch", "from flambeau import device"]
    for name, value in names.items():
        if name in GIVEN:
            continue
        if isinstance(value, types.ModuleType):
            lines.append(f"import {value.__name__} as {name}")
        elif value.__module__ != "builtins":
            lines.append(f"from {value.__module__} import {value.__name__} as {name}")
    return [*lines, "", "NoneType = type(None)"]


def _children(module: Any, folder: Path) -> list[str]:
    for name, child in module.named_children():
        flambeau.save(child, folder / f"{name}.pt")
    return [f"self.add_module({name!r}, torch.load(HERE / '{name}.pt', weights_only=False))"
            for name, _ in module.named_children()]


def _tensors(module: Any) -> list[str]:
    lines = []
    for name, value in module.named_parameters(recurse=False):
        made = f"torch.empty({list(value.shape)}, dtype={value.dtype})"
        lines.append(f"self.{name} = torch.nn.Parameter({made}, {value.requires_grad})")
    for name, value in module.named_buffers(recurse=False):
        made = f"torch.empty({list(value.shape)}, dtype={value.dtype})"
        lines.append(f"self.register_buffer({name!r}, {made})")
    return lines


def _specs(module: Any, folder: Path) -> list[str]:
    """How arguments are taken apart, where they are."""
    names = [name for name in ("_in_spec", "_out_spec") if name in vars(module)]
    for name in names:
        flambeau.save(getattr(module, name), folder / f"{name}.pt")
    return [f"self.{name} = torch.load(HERE / '{name}.pt', weights_only=False)" for name in names]
