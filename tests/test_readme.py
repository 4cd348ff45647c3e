"""The README's programs run, and print what it says they print."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(), re.M | re.S)
    return [text for spoken, text in found if spoken == language]


def test_the_training_loop_prints_what_the_readme_says():
    program = blocks("python")[0]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True, cwd=README.parent)
    assert done.stdout in blocks("")


def test_what_is_shown_at_the_prompt():
    sessions = [block for block in blocks("python") if block.startswith(">>>")]
    assert sessions
    for session in sessions:
        test = doctest.DocTestParser().get_doctest(session, {}, "README", str(README), 0)
        assert doctest.DocTestRunner().run(test).failed == 0


def test_the_table_is_what_the_results_say():
    folder = README.parent / "benchmarks"
    done = subprocess.run([sys.executable, "summary.py", "--check"], cwd=folder, check=False)
    assert done.returncode == 0, "python benchmarks/summary.py writes the table anew"
