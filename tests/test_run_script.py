"""./run: its commands, when it installs and when it need not, and what it says when it cannot."""

import importlib.machinery
import importlib.util
import io
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "run"

PYPROJECT = """
[build-system]
requires = []
[project]
name = "flambeau"
dependencies = ["numpy"]
[project.optional-dependencies]
test = ["pytest"]
lint = ["ruff"]
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The script as a module, at work in an empty repository; pip calls are recorded, not made."""
    loader = importlib.machinery.SourceFileLoader("run_script", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_script", loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    for name in ("PYTHON", "STAMPS", "VENV", "ROOT"):
        moved = tmp_path / getattr(module, name).relative_to(SCRIPT.parent)
        monkeypatch.setattr(module, name, moved)
    module.calls = []

    def record(command, complaint, progress=None):
        module.calls.append(command)
        module.PYTHON.parent.mkdir(parents=True, exist_ok=True)
        module.PYTHON.touch()

    monkeypatch.setattr(module, "checked", record)
    return module


def installs(run):
    """What each recorded pip was asked to install."""
    return [command[-1] for command in run.calls if "pip" in command]


def test_help_tells_every_command_from_any_folder(tmp_path):
    command = [sys.executable, str(SCRIPT), "help"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 0
    commands = [line.split()[0] for line in told.stdout.splitlines() if line.startswith("  ")]
    assert commands == ["demo", "test", "bench", "docs", "lint", "parity", "help"]
    assert not list(tmp_path.iterdir())


def test_unknown_command(run, capsys):
    assert run.main(["tset"]) == 2
    assert "no command 'tset'; did you mean 'test'?" in capsys.readouterr().err
    assert not run.calls


def test_installs_once(run):
    run.prepare(("test",))
    assert installs(run) == [".[test]"]
    run.prepare(("test",))
    run.prepare(())
    assert installs(run) == [".[test]"]
    run.prepare(("test", "lint"))
    assert installs(run) == [".[test]", ".[lint]"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"pytest"', '"pytest>=8"', [".[test]"]),
        ('"numpy"', '"numpy>=2"', ["."]),
        ('"ruff"', '"ruff>=1"', []),
        ("requires = []", "requires = []\n[tool.ruff]\nline-length = 90", []),
    ],
)
def test_installs_again_when_requirements_change(run, old, new, expected):
    run.prepare(("test",))
    run.calls.clear()
    (run.ROOT / "pyproject.toml").write_text(PYPROJECT.replace(old, new))
    run.prepare(("test",))
    assert installs(run) == expected


def test_a_venv_made_for_another_folder_or_python_is_made_anew(run):
    run.prepare(("test",))
    (run.VENV / "owner").write_text("elsewhere")
    (run.STAMPS / "test").write_text("another key")
    run.calls.clear()
    run.prepare(("test",))
    assert "venv" in run.calls[0]
    assert installs(run) == [".[test]"]


def test_a_failed_install_leaves_no_stamp_and_is_explained(run, monkeypatch, capsys):
    def fail(command, complaint, progress=None):
        if "pip" in command:
            raise run.Failure(run.explain(complaint, ["Collecting numpy", "ERROR: No space left"]))
        run.PYTHON.parent.mkdir(parents=True, exist_ok=True)
        run.PYTHON.touch()

    monkeypatch.setattr(run, "checked", fail)
    assert run.main(["test"]) == 1
    told = capsys.readouterr().err
    assert "No space left" in told and "hint: the disk is full." in told
    assert "Collecting" not in told
    assert not run.is_installed("") and not run.is_installed("test")


def test_arguments_are_forwarded(run, monkeypatch):
    asked = []
    monkeypatch.setattr(run, "python", lambda *arguments: asked.append(arguments) or 7)
    assert run.main(["test", "tests/test_house.py", "-x"]) == 7
    assert asked == [("-m", "pytest", "-q", "tests/test_house.py", "-x")]


def test_bench_chooses_a_file(run, monkeypatch, capsys):
    (run.ROOT / "benchmarks").mkdir()
    for name in ("all", "matmul"):
        (run.ROOT / "benchmarks" / f"{name}.py").touch()
    asked = []
    monkeypatch.setattr(run, "prepare", lambda extras: None)
    monkeypatch.setattr(run, "python", lambda path, *rest: asked.append((path.name, *rest)) or 0)
    assert [run.main(["bench", *rest]) for rest in ([], ["--quick"], ["matmul", "3"])] == [0, 0, 0]
    assert asked == [("all.py",), ("all.py", "--quick"), ("matmul.py", "3")]
    assert run.main(["bench", "nothing"]) == 1
    assert "there are: all, matmul" in capsys.readouterr().err


def test_lint_fails_if_either_check_does(run, monkeypatch):
    for ruff, mypy in ((0, 1), (1, 0), (0, 0)):
        codes = iter((ruff, mypy))
        monkeypatch.setattr(run, "python", lambda *arguments, codes=codes: next(codes))
        assert run.lint([]) == (ruff or mypy)
        assert next(codes, None) is None, "both always run"


def test_old_pythons_are_turned_away(run):
    assert run.check_python((3, 11, 0)) is None
    assert run.check_python((4, 0, 0)) is None
    assert "needs Python 3.11 or newer; this is 3.9" in run.check_python((3, 9, 18))


def test_progress_is_plain_lines_without_a_terminal(run):
    told = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with run.Progress("installing numpy", told) as progress:
        progress.step = "Collecting nümpy"
    told.seek(0)
    first, last = told.read().splitlines()
    assert first == "installing numpy ..."
    assert last.startswith("installing numpy: done in ")


def test_a_real_failure_shows_what_was_printed(run, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(run.Failure, match=r"could not: *\n *ERROR: bad"):
        run.checked([sys.executable, "-c", "print('ERROR: bad'); exit(3)"], "could not")
