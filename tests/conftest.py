"""What all tests share: where the repository is, and parity only where torch can be imported."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

#: what tests compile is small, and is to be compiled
os.environ.setdefault("FLAMBEAU_SMALL", "compiled")

collect_ignore = [] if find_spec("torch") else ["parity"]


@pytest.fixture(scope="session")
def root():
    """The repository's folder."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture
def programs(monkeypatch):
    """The programs that are built while a test runs, in order."""
    from flambeau.compiler import segment

    built = []

    class Watched(segment.Program):
        def __init__(self, *args):
            super().__init__(*args)
            built.append(self)

    monkeypatch.setattr(segment, "Program", Watched)
    return built
