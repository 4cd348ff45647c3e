"""The examples run, in tiny configurations, and say what they should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

#: example and its arguments -> something that its output must match
EXPECTED = {
    "autograd.py": r"backward: dL/da=64.0, dL/db=32.0",
    "cnn_digits.py 2": r"epoch  2 .* test accuracy (9\d|8\d)\.\d%",
    "char_gpt.py 10": r"step 10  loss [23]\.\d+",
    "checkpoint_resume.py": r"the same to the last bit: True",
    "compile.py": r"same numbers: True\n(.|\n)*tensor\(\[2., 2.\]\) tensor\(\[-2., -2.\]\)",
    "custom_function.py": r"differences: True True\n(.|\n)*\[\[0.5, -1.25, 2.0\]\]",
    "data_loader.py": r"batches: 4 sizes",
    "data_pipeline.py": r"1797 examples in 3 files\n(.|\n)*'image': \(50, 1, 8, 8\)",
    "gan.py 40": r"step    40  D [\d.]+  G [\d.]+",
    "house_prices.py": r"Epoch  50 \| Train Loss",
    "house_prices_by_hand.py": r"Final model: price =",
    "lstm_text.py 12": r"step   12  loss [23]\.\d+",
    "mlp.py": r"epoch 4: loss [\d.]+, accuracy (0\.[89]|1\.0)",
    "reinforce.py 16": r"episode   16  steps balanced lately",
    "tensors.py": r"do not broadcast",
    "transfer.py": r"<All keys matched successfully>\n(.|\n)*all of it: +9\d",
    "tree_network.py 24": r"step    24  loss [\d.]+",
    "vae.py 3": r"epoch  3  loss [23]\d\.",
}


def test_every_example_is_tested():
    assert {each.split()[0] for each in EXPECTED} == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("command", EXPECTED)
def test_example(command, tmp_path):
    name, *arguments = command.split()
    settings = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, EXAMPLES / name, *arguments], cwd=tmp_path, text=True,
                          env=settings, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert re.search(EXPECTED[command], done.stdout), done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves files behind"
