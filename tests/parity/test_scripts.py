"""The scripts for torch print the same, run by PyTorch and by `flambeau run`: line by line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "scripts_for_torch"
# what depends on the clock, and the last digits of sums
TIMES = re.compile(r"time: +[\d.]+s|, [\d.]+s$", re.M)
NUMBER = re.compile(r"-?\d+\.\d+")

WAYS = ["gpt_trainer.py --max_iters 8", "names.py --type gru --steps 10", "vae.py --epochs 2",
        "gan.py", "word_lstm.py --lr 2 --nlayers 1 --epochs 2", "cnn_zoo.py --model mobilenet",
        "unet.py", "detection.py", "diffusion.py", "graphs.py", "llama.py", "policy_gradient.py",
        "translation.py", "years_ago.py"]


def output(command, folder):
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    folder.mkdir()
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return TIMES.sub("", done.stdout)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_output(way, tmp_path):
    name, *arguments = way.split()
    script = [str(SCRIPTS / name), *arguments]
    theirs = output([sys.executable, *script], tmp_path / "torch")
    ours = output([sys.executable, "-m", "flambeau", "run", *script], tmp_path / "flambeau")
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
    found = [float(x) for x in NUMBER.findall(ours)]
    assert found == pytest.approx([float(x) for x in NUMBER.findall(theirs)], rel=2e-3, abs=2e-3)
