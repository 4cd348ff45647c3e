"""Parity compares with torch; the conformance harness joins in where there is one.

It stands beside the repository, or where FLAMBEAU_CONFORMANCE says; without it, its tests are not
collected and the others run all the same.
"""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "conformance"
HARNESS = Path(os.environ.get("FLAMBEAU_CONFORMANCE", BESIDE)).resolve()

collect_ignore = [] if (HARNESS / "__main__.py").exists() else [
    "test_conformance.py", "test_compiled_conformance.py"]


@pytest.fixture(scope="session")
def harness():
    return HARNESS
