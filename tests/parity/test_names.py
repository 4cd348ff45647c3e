"""The names that training scripts use: all of those in the list beside the harness exist here."""

import csv
import importlib

import pytest

import flambeau

#: where every name that anybody was seen to use must exist
WHOLE = ("torch.nn.", "torch.optim.", "torch.utils.data.")


def exists(name: str) -> bool:
    found = flambeau
    parts = name.split(".")[1:]
    for k, part in enumerate(parts):
        if not hasattr(found, part):
            try:
                found = importlib.import_module("flambeau." + ".".join(parts[:k + 1]))
            except ImportError:
                return False
        else:
            found = getattr(found, part)
    return True


def test_names_of_training_scripts(harness):
    path = harness.parent / "api-checklist.csv"
    if not path.exists():
        pytest.skip("there is no list of names beside the harness")
    with path.open() as file:
        asked = [row["name"] for row in csv.DictReader(file)
                 if row["tier"] in "ABC" and row["name"].startswith(WHOLE)]
    assert len(asked) > 100
    assert [name for name in asked if not exists(name)] == []
