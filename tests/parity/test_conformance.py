"""The conformance harness, on the ops that its checklist calls common: how many must pass whole.

Every sample is run by torch and by flambeau and compared; an op passes if all of its samples do.
"""

import csv
import json
import os
import re
import subprocess
import sys

import pytest

# suite -> the least share of entries that pass whole
FLOORS = {
    "ops":      0.95,
    "methods":  0.95,
    "inplace":  0.95,
    "grads":    0.95,
    "gradgrad": 0.95,
    "errors":   0.95,
    "random":   1.00,
}  # fmt: skip

COMMON_TIERS = ("A", "B")
# Areas of the checklist that list tensor ops, and the prefix under which they name them.
OP_NAME = re.compile(r"^torch\.(?:Tensor\.)?(\w+?|nn\.functional\.\w+)_?$")
OP_AREAS = ("torch: ", "functional: ", "Tensor method", "seen in core suites")


def common_ops(checklist):
    """Names of the ops in the tiers that must work, as the harness spells them."""
    with checklist.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["tier"] in COMMON_TIERS]
    found = (OP_NAME.match(row["name"]) for row in rows if row["area"].startswith(OP_AREAS))
    return sorted({match[1] for match in found if match})


def selection(suite, harness):
    """The harness's option that limits a suite to common ops; variants are written op/variant."""
    if suite == "random":
        return []
    names = "|".join(map(re.escape, common_ops(harness.parent / "api-checklist.csv")))
    return ["--only", f"^({names})(/|$)"]


def failures(op):
    return [sample for sample in op["samples"] if sample["status"] == "fail"]


@pytest.mark.parametrize("suite", FLOORS)
def test_conformance(suite, harness, root, tmp_path):
    outcome = tmp_path / "outcome.json"
    command = [sys.executable, "-m", "conformance", "--lib", "flambeau", "--suite", suite,
               "--json", str(outcome), *selection(suite, harness)]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": f"{harness.parent}{os.pathsep}{root}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr

    result = json.loads(outcome.read_text())["suites"][suite]
    passed, total = result["ops_passed"], result["ops_total"]
    told = [f"{name}: {bad[0]}" for name, op in result["ops"].items() if (bad := failures(op))]
    assert total, "nothing was checked"
    assert passed >= FLOORS[suite] * total, f"{passed} of {total} pass\n" + "\n".join(told)
