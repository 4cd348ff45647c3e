"""Write docs/names.md: the public names of PyTorch, space by space, and which are missing here.

It asks both libraries, so torch must be installed: pip install flambeau[parity].
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

SPACES = (
    "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils",
    "torch.nn.utils.rnn", "torch.nn.utils.parametrizations", "torch.nn.attention", "torch.optim",
    "torch.optim.lr_scheduler", "torch.optim.swa_utils", "torch.autograd",
    "torch.autograd.functional", "torch.autograd.graph", "torch.autograd.forward_ad",
    "torch.overrides", "torch.library", "torch.futures", "torch.utils.data",
    "torch.utils.checkpoint", "torch.linalg", "torch.fft", "torch.special", "torch.signal.windows",
    "torch.distributions", "torch.amp", "torch.func", "torch.compiler", "torch.profiler",
    "torch.jit", "torch.fx", "torch.onnx", "torch.export", "torch.sparse", "torch.nested",
    "torch.masked", "torch.quantization", "torch.distributed", "torch.multiprocessing",
    "torch.cuda", "torch.backends", "torch.hub", "torch.random", "torch.testing",
)
#: classes of PyTorch's C++ that users are told of; the others are its compiler's own
TOLD = {"Event", "Generator", "Size", "Stream", "Tag", "Tensor", "device", "dtype", "finfo",
        "iinfo", "layout", "memory_format"}
OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "names.md"


def space(name: str):
    """A module or a class by its dotted name; None where there is none."""
    try:
        return importlib.import_module(name)
    except ImportError:
        above, _, last = name.rpartition(".")
        return getattr(space(above), last, None) if above else None


def public(value, name: str) -> set[str]:
    """Names for users: what `__all__` says, or what does not begin with an underscore."""
    if isinstance(value, type):
        return {each for each in dir(value) if not each.startswith("_")}
    listed = getattr(value, "__all__", None)
    if listed is None:
        listed = [each for each in dir(value) if belongs(getattr(value, each, None), name)]
    inner = getattr(space("torch"), "_C", None)
    return {each for each in listed if not each.startswith("_") and (
        each in TOLD or not isinstance(getattr(inner, each, None), type))}


def belongs(value, name: str) -> bool:
    """Whether a name of a space without `__all__` is its own: a function or class made there."""
    home = getattr(value, "__module__", None) or ""
    return callable(value) and (home.startswith(name) or home.startswith("torch._C")
                                or (not home and not isinstance(value, types.ModuleType)))


def compare() -> list[tuple[str, int, list[str]]]:
    """(space, how many names it has, those that are missing)."""
    rows = []
    for name in SPACES:
        theirs, ours = space(name), space(name.replace("torch", "flambeau", 1))
        if theirs is None:
            continue
        names = sorted(public(theirs, name))
        missing = [each for each in names if ours is None or not hasattr(ours, each)]
        rows.append((name, len(names), missing))
    return rows


def page(rows, version: str) -> str:
    total = sum(count for _, count, _ in rows)
    absent = sum(len(missing) for _, _, missing in rows)
    lines = ["# Names", "",
             f"The public names of PyTorch {version}, and whether flambeau has them; made by",
             "`python tools/compare_names.py`, which asks both libraries. Having a name does not",
             "say that every use of it works: that is compared by tests and `./run parity`.", "",
             f"**{total - absent:,} of {total:,} names are here.**", "",
             "| space | names | here | missing |", "|---|---|---|---|"]
    for name, count, missing in rows:
        told = ", ".join(f"`{each}`" for each in missing) if len(missing) < count \
            else "all of it" if missing else ""
        lines.append(f"| `{name}` | {count} | {count - len(missing)} | {told} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    if space("torch") is None:
        print("compare_names: torch is not installed", file=sys.stderr)
        return 1
    OUTPUT.write_text(page(compare(), space("torch").__version__.split("+")[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
