"""The type stubs say what the registry says, and a type checker can use them."""

import ast
import importlib.util
import inspect
import subprocess
import sys
from importlib.util import find_spec

import pytest

import flambeau


@pytest.fixture(scope="module")
def generator(root):
    path = root / "tools" / "make_stubs.py"
    spec = importlib.util.spec_from_file_location("make_stubs", path)
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.fixture(scope="module")
def main_stub(generator):
    return ast.parse(generator.stub_of("flambeau"))


def names_in(body) -> set[str]:
    named = [n for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    declared = [n.target.id for n in body if isinstance(n, ast.AnnAssign)]
    return {n.name for n in named} | set(declared)


def test_stubs_are_not_stale(generator, root):
    behind = [str(path.relative_to(root)) for path in generator.stale()]
    assert not behind, f"run python tools/make_stubs.py: {', '.join(behind)} changed"


def test_a_stale_stub_is_found(generator, tmp_path, monkeypatch):
    path = tmp_path / "x.pyi"
    monkeypatch.setattr(generator, "stubs", lambda: {path: "def f() -> None: ...\n"})
    assert generator.stale() == [path]
    path.write_text("def f() -> None: ...\n")
    assert generator.stale() == []


def test_every_stub_parses(generator):
    for path, text in generator.stubs().items():
        ast.parse(text, str(path))


def test_every_public_name_is_in_the_stub(main_stub):
    assert set(flambeau.__all__) - names_in(main_stub.body) == set()


def test_every_method_is_in_the_stub(main_stub):
    (tensor,) = (n for n in main_stub.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    methods = {n for n, v in inspect.getmembers_static(flambeau.Tensor)
               if not n.startswith("_") and not inspect.ismemberdescriptor(v)}
    assert methods - names_in(tensor.body) == set()
    assert {"__add__", "__rsub__", "__imul__", "__getitem__", "add_"} <= names_in(tensor.body)


def test_no_function_claims_another_signature(main_stub):
    """A call the stub allows by position is one the function takes."""
    x = flambeau.ones(2, 2)
    stubbed = {n.name: n for n in main_stub.body if isinstance(n, ast.FunctionDef)}
    for name in ("sin", "sum", "softmax", "transpose", "triu", "add"):
        arguments = [a.arg for a in stubbed[name].args.args]
        given = {"input": x, "dim": 0, "dim0": 0, "dim1": 1, "other": x}
        required = arguments[:len(arguments) - len(stubbed[name].args.defaults)]
        result = getattr(flambeau, name)(**{a: given[a] for a in required})
        assert isinstance(result, flambeau.Tensor), name
        assert ast.unparse(stubbed[name].returns) == "Tensor"


PROGRAM = '''
import flambeau as torch
import flambeau.nn.functional as F

x: torch.Tensor = torch.ones(2, 3, dtype=torch.float32)
y: torch.Tensor = (x * 2 + 1 - x).relu().sum(dim=0, keepdim=True).add_(1)
z: torch.Tensor = F.softmax(torch.cat([x, y]), dim=-1) @ x.T
values: torch.Tensor = torch.topk(z, 2).values
rank: int = z.ndim
shape: torch.Size = z.shape
wrong: int = torch.sin(x)
x.no_such_method()
'''


@pytest.mark.skipif(not find_spec("mypy"), reason="mypy is not installed")
def test_a_type_checker_reads_them(root, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports",
               "--cache-dir", str(tmp_path / "cache"), "--config-file", "", str(program)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    found = [line for line in done.stdout.splitlines() if "program.py" in line]
    assert len(found) == 2, done.stdout + done.stderr
    assert "program.py:11" in found[0] and '"int"' in found[0]
    assert "program.py:12" in found[1] and "no_such_method" in found[1]
