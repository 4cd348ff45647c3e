"""A long compilation shows one line on a terminal, and takes it away; elsewhere it is silent."""

import os
import subprocess
import sys
import textwrap

import pytest

pty = pytest.importorskip("pty")

PROGRAM = """
    import flambeau as torch
    from flambeau.compiler import progress

    progress.PATIENCE_SECONDS = {patience}

    @torch.compile
    def f(x):
        y = x
        for k in range(4):
            y = ((y * (k + 2)).tanh() + k).softmax(0) * x - k
        return y.sum()

    for _ in range(3):
        f(torch.ones(7))
    print("done")
"""


def shown(root, tmp_path, patience: float, **environment) -> str:
    """What a program that compiles writes to the terminal at its standard error."""
    ours, theirs = pty.openpty()
    made = {**os.environ, "PYTHONPATH": str(root), "TERM": "xterm", "FLAMBEAU_CACHE": str(tmp_path),
            **environment}
    try:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM.format(patience=patience))], env=made,
            stdout=subprocess.PIPE, stderr=theirs, stdin=subprocess.DEVNULL, text=True)
        os.close(theirs)
        assert done.stdout == "done\n"
        return _read_all(ours)
    finally:
        os.close(ours)


def _read_all(terminal: int) -> str:
    found = b""
    while True:
        try:
            more = os.read(terminal, 1 << 16)
        except OSError:  # so Linux says that nobody has the other side open any more
            more = b""
        if not more:
            return found.decode()
        found += more


def test_a_line_is_rewritten_and_taken_away(root, tmp_path):
    text = shown(root, tmp_path, 0.0)
    lines = text.split("\r\033[K")
    said = [line for line in lines if line]
    assert said and "\n" not in text
    total = int(said[0].split()[3])
    assert said[:total] == [f"compiling: {k} of {total} kernels" for k in range(1, total + 1)]
    assert lines[-1] == ""


def test_short_compilations_are_silent(root, tmp_path):
    assert shown(root, tmp_path, 60.0) == ""


@pytest.mark.parametrize("environment", [{"FLAMBEAU_PROGRESS": "0"}, {"TERM": "dumb"}])
def test_it_can_be_switched_off(root, tmp_path, environment):
    assert shown(root, tmp_path, 0.0, **environment) == ""


def test_nothing_is_written_where_there_is_no_terminal(root, tmp_path):
    program = textwrap.dedent(PROGRAM.format(patience=0.0))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(root),
                               "FLAMBEAU_CACHE": str(tmp_path)})
    assert (done.stdout, done.stderr) == ("done\n", "")
