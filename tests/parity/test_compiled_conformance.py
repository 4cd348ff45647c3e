"""The conformance harness on flambeau with every call compiled: as good as without, on a sample."""

import json
import os
import subprocess
import sys

import pytest

# suite -> entries that pass whole in eager
SAMPLE = {
    "ops":     "^(add|mul|where|sum|softmax|matmul|cumsum|gather|sort|cat|index_put|"
               "as_strided_copy|nn.functional.(layer_norm|conv2d|linear|gelu|max_pool2d))$",
    "grads":   "^(add|div|amax|logsumexp|bmm|index_select|pow|split|nn.functional.(conv1d|"
               "batch_norm|triplet_margin_with_distance_loss))$",
    "modules": "^nn.(Linear|BatchNorm1d|GRUCell|Conv1d|LayerNorm|BCELoss)$",
}  # fmt: skip


@pytest.mark.parametrize("suite", SAMPLE)
def test_compiled_conformance(suite, harness, root, tmp_path):
    outcome = tmp_path / "outcome.json"
    command = [sys.executable, "-m", "conformance", "--lib", "through_compile", "--suite", suite,
               "--only", SAMPLE[suite], "--max-samples", "3", "--jobs", "1", "--timeout-per-op",
               "200", "--json", str(outcome)]
    path = [str(harness.parent), str(root), str(root / "tests" / "parity")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
                          capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(outcome.read_text())["suites"][suite]
    failed = {name: [s for s in op["samples"] if s["status"] == "fail"][:1]
              for name, op in result["ops"].items()}
    assert result["ops_total"] > 4
    assert not any(failed.values()), {name: bad for name, bad in failed.items() if bad}
