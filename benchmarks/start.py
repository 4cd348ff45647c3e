"""How long a program waits: importing the library, and its first step of training.

Each figure is the median of several fresh processes; libraries and states of the kernel cache
alternate, so that a busy machine disturbs all alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A small network on the digits, its data and optimizer, up to the end of the first update.
FIRST_STEP = """
import flambeau
import flambeau.nn.functional as F
from flambeau import nn, optim
from flambeau.datasets import load_digits
flambeau.manual_seed(0)
images, labels = load_digits("train", flat=True)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
                      nn.Linear(64, 10))
optimizer = optim.Adam(model.parameters(), lr=1e-3)
chosen = flambeau.randperm(len(labels)).split(32)[0]
loss = F.cross_entropy(model(images[chosen]), labels[chosen])
optimizer.zero_grad()
loss.backward()
optimizer.step()
assert 2.0 < loss.item() < 3.0, loss
"""

#: figure -> the most it may be, in seconds; what has no limit is there to compare with
LIMITS = {
    "bare python": None,
    "import torch": None,
    "import flambeau": 0.2,
    "first step, warm cache": 1.0,
    "first step, empty cache": 2.5,
}


def seconds(code: str, folder: str, cache: str = "warm") -> float:
    """From the start of a process to its end; bytecode and kernels are kept in the folder."""
    settings = {**os.environ, "FLAMBEAU_CACHE": os.path.join(folder, cache),
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                "PYTHONPYCACHEPREFIX": os.path.join(folder, "bytecode")}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=settings, check=True)
    return time.perf_counter() - began


PROGRAMS = {
    "bare python": "pass",
    "import torch": "import torch",
    "import flambeau": "import flambeau",
    "first step, warm cache": FIRST_STEP,
    "first step, empty cache": FIRST_STEP,
}


def measure(rounds: int) -> dict[str, list[float]]:
    """figure -> its seconds in each round, after one that does not count."""
    programs = {name: code for name, code in PROGRAMS.items()
                if find_spec("torch") or "torch" not in name}
    found: dict[str, list[float]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as folder:
        for code in dict.fromkeys(programs.values()):
            seconds(code, folder)
        for k in range(rounds):
            for name, code in programs.items():
                cache = f"empty {k}" if "empty" in name else "warm"
                found[name].append(seconds(code, folder, cache))
    return found


def summary(found: dict[str, list[float]]) -> dict[str, float]:
    """Medians; an import costs what it adds to a bare Python."""
    medians = {name: statistics.median(times) for name, times in found.items()}
    bare = medians["bare python"]
    return {name: value - bare if name.startswith("import") else value
            for name, value in medians.items()}


def verdict(figures: dict[str, float]) -> int:
    """Say how the figures stand against what is promised; 1 if one is too high."""
    for name, value in figures.items():
        limit = LIMITS[name]
        told = "" if limit is None else f"  (at most {limit})"
        print(f"{name:<24} {value:6.3f} s{told}")
    return int(any(limit is not None and figures[name] > limit for name, limit in LIMITS.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    return verdict(summary(measure(parser.parse_args().rounds)))


if __name__ == "__main__":
    sys.exit(main())
