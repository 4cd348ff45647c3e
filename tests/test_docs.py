"""The documentation runs: every block of Python in docs/, the tour, and the links between pages."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def blocks(path: Path, language: str = "python") -> list[str]:
    """The fenced blocks of a language, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S)
    return [text for spoken, text in found if spoken == language]


def run(*arguments, folder=ROOT):
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *map(str, arguments)], cwd=folder, env=settings,
                          capture_output=True, text=True)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_programs_of_a_page(page, tmp_path):
    """Its blocks, one after the other in one process."""
    programs = [text for text in blocks(page) if not text.startswith(">>>")]
    done = run("-c", "\n".join(programs), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("page", [p for p in PAGES if ">>> " in p.read_text(encoding="utf-8")],
                         ids=lambda p: p.name)
def test_sessions_of_a_page(page):
    session = "\n".join(text for text in blocks(page) if text.startswith(">>>"))
    test = doctest.DocTestParser().get_doctest(session, {}, page.name, str(page), 0)
    assert test.examples
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=told.append)
    assert not told, "".join(told)


def test_the_tour():
    done = run(DOCS / "tour.py")
    assert done.returncode == 0, done.stderr
    for number in range(1, 9):
        assert f"\n{number}. " in done.stdout
    for stage in ("pointwise sigmoid(x)", "((x1 + x1) + cos[](x1))", "operands out float64[1]",
                  "SumBackward0 <- MulBackward0 <- SigmoidBackward0", "fmul contract <",
                  "1 launches from 6 recorded ones", "agree with finite differences"):
        assert stage in done.stdout, stage
    one = run(DOCS / "tour.py", "2")
    assert "2. a gradient" in one.stdout and "3. a kernel" not in one.stdout


def test_the_tour_has_its_page():
    page = (DOCS / "tour.md").read_text()
    titles = re.findall(r"^def chapter_(\d)_(\w+)\(", (DOCS / "tour.py").read_text(), re.M)
    listed = re.findall(r"^(\d)\. (.+)$", page, re.M)
    assert [(n, t.replace("_", " ")) for n, t in titles] == [(n, t.lower()) for n, t in listed]


def test_pages_link_to_pages_that_exist():
    for page in [*PAGES, ROOT / "README.md"]:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_site_has_every_page():
    named = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(named) == sorted(p.relative_to(DOCS).as_posix() for p in PAGES)


def test_the_reference_is_made_of_docstrings():
    hook = load_tool("make_reference")
    page = hook.on_page_markdown("# nn\n\n::: flambeau.nn\n")
    assert "## `Linear(in_features, out_features" in page and ":::" not in page
    assert "## `Tensor" not in page
    tensor = hook.on_page_markdown("::: flambeau.Tensor")
    assert "## `sum(" in tensor or "## `sum" in tensor


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_comparison_hides_nothing():
    tool = load_tool("compare_results")
    suite = {"ops_passed": 1, "ops_total": 2, "samples_passed": 5, "samples_total": 6,
             "ops": {"add": {"samples": [{"status": "pass"}]},
                     "sub": {"samples": [{"status": "fail", "category": "values"}]}}}
    made = tool.section({"suites": {"ops": suite}})
    assert "| results of ops | 1 of 2 | 5 of 6 |" in made and "values: `sub`" in made
    page = (DOCS / "coming-from-pytorch.md").read_text(encoding="utf-8")
    assert tool.BEGIN in page and tool.END in page
