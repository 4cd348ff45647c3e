"""Which of torch's names a program asks for, and where: read from its source."""

from __future__ import annotations

import ast
import difflib
import importlib
import types
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import flambeau
from flambeau.cli import standin


@dataclass
class Survey:
    """torch's names, each with the places where it stands."""

    places: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))

    def read(self, path: Path) -> None:
        """Add the names of one file; a file that is no Python has none."""
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        except (OSError, SyntaxError, ValueError):
            return
        for name, line in names_in(tree):
            self.places[name].append((shown(path), line))

    def missing(self) -> list[str]:
        return sorted(name for name in self.places if not known(name))

    def report(self) -> str:
        """What `--report` prints: names used, and names that are missing with their places."""
        missing = self.missing()
        used = len(self.places) - len(missing)
        lines = [f"torch names used: {used}; missing from flambeau {flambeau.__version__}: "
                 f"{len(missing)}"]
        width = max(map(len, self.places), default=0)
        for name in sorted(self.places):
            file, line = self.places[name][0]
            more = len(self.places[name]) - 1
            others = f" and {more} more" if more else ""
            mark = "MISSING  " if name in missing else "         "
            lines.append(f"{mark}{name:<{width}}  {file}:{line}{others}")
        return "\n".join(lines)


def shown(path: Path) -> str:
    """A path as short as it can be told."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def local_files(script: Path) -> list[Path]:
    """The script and the files beside it that it imports, directly or not."""
    waiting, found = [script.resolve()], []
    while waiting:
        path = waiting.pop()
        if path in found or not path.is_file():
            continue
        found.append(path)
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                names = [base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)]
            else:
                continue
            for name in filter(None, names):
                beside = script.parent.joinpath(*name.split("."))
                waiting += [beside.with_suffix(".py").resolve(),
                            (beside / "__init__.py").resolve()]
    return found


def names_in(tree: ast.AST) -> list[tuple[str, int]]:
    """(torch's dotted name, line) for each import from torch and each use of what was imported."""
    meanings: dict[str, str] = {}
    found: list[tuple[str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if is_torch(alias.name):
                    meanings[alias.asname or "torch"] = alias.name if alias.asname else "torch"
                    found.append((alias.name, node.lineno))
        elif isinstance(node, ast.ImportFrom) and not node.level and is_torch(node.module or ""):
            for alias in node.names:
                name = f"{node.module}.{alias.name}" if alias.name != "*" else str(node.module)
                meanings[alias.asname or alias.name] = name
                found.append((name, node.lineno))
    seen_inside: set[ast.AST] = set()
    for node in ast.walk(tree):  # breadth first: a chain is met before its parts
        if isinstance(node, ast.Attribute) and node not in seen_inside:
            parts, at = chain(node, seen_inside)
            if parts and parts[0] in meanings:
                full = ".".join([meanings[parts[0]], *parts[1:]])
                found.append((stem(full), at))
    return found


def is_torch(name: str) -> bool:
    return name == "torch" or name.startswith("torch.")


def chain(node: ast.Attribute, seen_inside: set[ast.AST]) -> tuple[list[str], int]:
    """The names of `a.b.c`, and its line; none if it does not begin with a name."""
    names: list[str] = []
    current: ast.expr = node
    while isinstance(current, ast.Attribute):
        seen_inside.add(current)
        names.append(current.attr)
        current = current.value
    if not isinstance(current, ast.Name):
        return [], node.lineno
    return [current.id, *reversed(names)], node.lineno


def stem(name: str) -> str:
    """The name as far as torch has it: what follows a class or a value is not told apart."""
    parts = name.split(".")
    for count in range(1, len(parts)):
        value = find(".".join(parts[:count]))
        if value is not None and not isinstance(value, (types.ModuleType, type)):
            return ".".join(parts[:count])
    return name


def find(name: str) -> object | None:
    """What torch's name means here, or None."""
    value: object = standin.top()
    path = "flambeau"
    for part in name.split(".")[1:]:
        path += f".{part}"
        try:
            value = getattr(value, part)
        except AttributeError:
            if not isinstance(value, types.ModuleType):
                return None
            try:
                value = importlib.import_module(path)
            except ImportError:
                return None
    return value


def known(name: str) -> bool:
    """Whether flambeau has what torch calls so."""
    if find(name) is not None:
        return True
    above, _, last = name.rpartition(".")
    holder = find(above) if above else None
    return holder is not None and hasattr(holder, last)


def nearest(name: str) -> str | None:
    """A name close to one that is missing."""
    above, _, last = name.rpartition(".")
    holder = find(above)
    if holder is None:
        return None
    close = difflib.get_close_matches(last, [n for n in dir(holder) if not n.startswith("_")], 1)
    return f"{above}.{close[0]}" if close else None
