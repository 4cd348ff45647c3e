"""The shape of the house: imports point down, none closes a cycle, and public names are `__all__`.

Read from the sources, so an import hidden in a function counts as much as one at the top.
"""

import ast
import importlib
import pkgutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Each room, from the ground up, and the rooms it may import beside itself. A module belongs to the
# longest name that leads to it; what is not named here is a package for users ("flambeau.*").

def engine(names: str) -> tuple[str, ...]:
    return tuple(f"flambeau.engine.{name}" for name in names.split())


def floor(rooms: tuple[str, ...], below: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Rooms of one floor may know each other, in no ring, and all that is below."""
    return dict.fromkeys(rooms, (*below, *rooms))


# The floors of the engine; what is not named is on the highest, "flambeau.engine".
MEMORY = engine("layout lazy modes onlookers results storage")
TENSOR = engine("grad_mode tensor")
NODE = engine("fresh front_parts front_text native node")
EAGER = engine(
    "affine by_place caller eager formula interception number_first pointwise way_back writing")
FAMILIES = engine(
    "access again backward convert copying dlpack history indexed inplace join keeping product "
    "reduce restride rows selection views written_out")

CORE = ("flambeau.core",)
DEVICES = (*CORE, "flambeau.devices")
GRAPH = (*DEVICES, *MEMORY, *TENSOR, *NODE)
RUNS = (*GRAPH, "flambeau.ops", *EAGER, *FAMILIES)
COMPILER = (*RUNS, "flambeau.engine", "flambeau.compiler")
ASSEMBLED = (*COMPILER, "flambeau.assemble")
USER = ("flambeau", "flambeau.*", "flambeau.assemble", "flambeau.autograd")
MAY_IMPORT = {
    "flambeau.core":      (),
    "flambeau.ops":       CORE,
    "flambeau.devices":   CORE,
    **floor(MEMORY,       DEVICES),
    **floor(TENSOR,       (*DEVICES, *MEMORY)),
    **floor(NODE,         (*DEVICES, *MEMORY, *TENSOR)),
    **floor(EAGER,        (*GRAPH, "flambeau.ops")),
    **floor(FAMILIES,     (*GRAPH, "flambeau.ops", *EAGER)),
    "flambeau.engine":    RUNS,
    "flambeau.compiler":  (*RUNS, "flambeau.engine"),
    "flambeau.assemble":  COMPILER,
    "flambeau":           ASSEMBLED,
    "flambeau.autograd":  (*ASSEMBLED, *USER),
    "flambeau.*":         USER,
    # What leaves Python is written from ops and programs themselves.
    "flambeau.export":    (*ASSEMBLED, *USER),
    "flambeau.onnx":      (*ASSEMBLED, *USER, "flambeau.export"),
    "flambeau.jit":       (*USER, "flambeau.export"),
    # What ops do with tensors of sparse layouts is said there.
    "flambeau.sparse":    (*ASSEMBLED, *USER),
    # So is what layers of bytes do, and what multiplies them.
    "flambeau.ao":        (*ASSEMBLED, *USER),
    "flambeau.quantization": ("flambeau.ao",),
    # How ops are applied to many examples at once is said of ops.
    "flambeau.func":      (*ASSEMBLED, *USER),
    "flambeau.cli":       (*ASSEMBLED, *USER),
    "flambeau.__main__":  ("flambeau.cli",),
}  # fmt: skip

# core and ops compute from what they are given: no files, no clock, no environment, no machine.
PURE = ("flambeau.core", "flambeau.ops")
IMPURE = {
    "ctypes", "io", "llvmlite", "os", "pathlib", "platform", "shutil", "socket", "subprocess",
    "tempfile", "threading", "time",
}  # fmt: skip


def read_sources(folder: Path) -> dict[str, ast.Module]:
    """Module name -> syntax tree, for every file of the package in `folder`."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        tree.is_package = parts[-1] == "__init__"
        found[name] = tree
    return found


def imports_of(name: str, sources: dict[str, ast.Module]) -> list[tuple[str, int]]:
    """The modules that `name` imports, wherever in the file, each with its line."""
    found = []
    for node in ast.walk(sources[name]):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = origin_of(node, name, sources[name].is_package)
            for alias in node.names:
                submodule = f"{origin}.{alias.name}"
                found.append((submodule if submodule in sources else origin, node.lineno))
        elif isinstance(node, ast.Call) and (target := imported_by_call(node)):
            found.append((target, node.lineno))
    return found


def origin_of(node: ast.ImportFrom, name: str, is_package: bool) -> str:
    """What stands after `from`, with leading dots resolved."""
    if not node.level:
        return node.module
    levels_up = node.level - is_package
    parts = name.split(".")
    parents = parts[: len(parts) - levels_up]
    return ".".join(parents + ([node.module] if node.module else []))


def imported_by_call(node: ast.Call) -> str | None:
    """The name in import_module("...") or __import__("..."), if it is written out."""
    called = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
    literal = node.args and isinstance(node.args[0], ast.Constant)
    if called in ("import_module", "__import__") and literal:
        return node.args[0].value
    return None


def room_of(name: str) -> str:
    if name == "flambeau":
        return name
    rooms = [room for room in MAY_IMPORT if room != "flambeau" and is_inside(name, room)]
    return max(rooms, key=len, default="flambeau.*")


def is_inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def upward_imports(sources: dict[str, ast.Module]) -> list[str]:
    """Each import that the table does not allow, as a sentence."""
    faults = []
    for name in sources:
        room = room_of(name)
        for target, line in imports_of(name, sources):
            if not is_inside(target, "flambeau"):
                continue
            other = room_of(target)
            if other != room and other not in MAY_IMPORT[room]:
                faults.append(f"{name}:{line} imports {target}: {room} may not know {other}")
    return faults


def cycles(sources: dict[str, ast.Module]) -> list[str]:
    """Modules that import each other in a ring; each ring is told once, from where it was met."""
    graph = {
        name: sorted({t for t, _ in imports_of(name, sources) if t in sources and t != name})
        for name in sources
    }
    found, finished = [], set()

    def visit(name, trail):
        if name in trail:
            found.append(" -> ".join([*trail[trail.index(name) :], name]))
        elif name not in finished:
            for target in graph[name]:
                visit(target, [*trail, name])
            finished.add(name)

    for name in graph:
        visit(name, [])
    return found


def tops(tree_imports: list[tuple[str, int]]) -> dict[str, int]:
    return {target.split(".")[0]: line for target, line in tree_imports}


@pytest.fixture(scope="module")
def sources():
    return read_sources(ROOT / "flambeau")


def test_imports_point_down(sources):
    faults = upward_imports(sources)
    assert not faults, "\n".join(faults)


def test_no_import_cycle(sources):
    rings = cycles(sources)
    assert not rings, "\n".join(rings)


def test_no_file_imports_torch(sources):
    guilty = [name for name in sources if "torch" in tops(imports_of(name, sources))]
    assert not guilty


def test_core_and_ops_are_pure(sources):
    faults = [
        f"{name}:{line} imports {top}"
        for name in sources
        if room_of(name) in PURE
        for top, line in tops(imports_of(name, sources)).items()
        if top in IMPURE
    ]
    assert not faults, "\n".join(faults)


def plant(folder: Path, **files: str) -> dict[str, ast.Module]:
    """A small package: keyword `a__b` becomes flambeau/a/b.py."""
    for name, text in files.items():
        path = folder / "flambeau" / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_sources(folder / "flambeau")


@pytest.mark.parametrize(
    ("place", "text", "fault"),
    [
        ("core__shape", "def f():\n    from flambeau.engine import eager\n", "engine.eager"),
        ("core__shape", "import flambeau\n", "flambeau.core may not know flambeau"),
        ("ops__arithmetic", "from ..devices.base import Device\n", "flambeau.devices"),
        ("devices__llvm", "from flambeau.ops.declare import registry\n", "flambeau.ops"),
        ("engine__storage", "from .tensor import Tensor\n", "engine.tensor"),
        ("engine__tensor", "from flambeau.engine.node import Node\n", "engine.node"),
        ("engine__tensor", "import flambeau.ops.declare\n", "flambeau.ops"),
        ("engine__eager", "import flambeau.compiler\n", "flambeau.compiler"),
        ("engine__eager", "from . import views\n", "engine.views"),
        ("engine__views", "from .create import empty\n", "flambeau.engine"),
        ("nn__linear", "from flambeau.engine.tensor import Tensor\n", "engine.tensor"),
        ("nn__linear", "from flambeau.cli import main\n", "flambeau.cli"),
        ("core__shape", "import importlib\nimportlib.import_module('flambeau.nn')\n", "flambeau.*"),
    ],
)  # fmt: skip
def test_upward_imports_are_found(tmp_path, place, text, fault):
    known = {name: "" for name in ("engine__eager", "engine__tensor", "engine__node",
                                   "engine__views", "engine__create")}
    (found,) = upward_imports(plant(tmp_path, **{**known, place: text}))
    assert fault in found


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("ops__arithmetic", "from ..core import shape\nfrom .declare import pointwise\n"),
        ("engine__node", "from .tensor import Tensor\nfrom .storage import Storage\n"),
        ("engine__eager", "from flambeau.ops import declare\nfrom flambeau.engine import node\n"),
        ("engine__create", "from . import eager, views\n"),
        ("engine__product", "from .inplace import overwrite\n"),
        ("nn__linear", "import flambeau\nfrom flambeau.nn import functional as F\nimport numpy\n"),
        ("cli__cache", "from flambeau.devices.cpu import cache\nfrom flambeau import nn\n"),
    ],
)
def test_downward_imports_are_allowed(tmp_path, place, text):
    known = {name: "" for name in ("engine__tensor", "engine__node", "core__shape", "ops__declare")}
    assert not upward_imports(plant(tmp_path, **{**known, place: text}))


def test_cycles_are_found(tmp_path):
    ring = plant(
        tmp_path,
        nn__a="from . import b\n",
        nn__b="def f():\n    import flambeau.nn.c\n",
        nn__c="from flambeau.nn.a import x\n",
        nn__d="from . import a\n",
    )
    assert cycles(ring) == ["flambeau.nn.a -> flambeau.nn.b -> flambeau.nn.c -> flambeau.nn.a"]
    ring.pop("flambeau.nn.b")
    assert not cycles(ring)


def packages() -> list[str]:
    inside = pkgutil.walk_packages([str(ROOT / "flambeau")], "flambeau.")
    return ["flambeau", *(found.name for found in inside if found.ispkg)]


@pytest.mark.parametrize("name", packages())
def test_every_name_in_all_exists(name):
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    assert sorted(set(names)) == sorted(names), "a name stands twice"
    assert not [each for each in names if not hasattr(module, each)]


def test_public_names_are_all():
    flambeau = importlib.import_module("flambeau")
    public = {
        name
        for name, value in vars(flambeau).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public - set(flambeau.__all__) == set(), "public, but not in __all__"


def test_the_version_is_the_packages():
    flambeau = importlib.import_module("flambeau")
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert flambeau.__version__ == tables["project"]["version"]
