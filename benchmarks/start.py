"""How long a program waits: importing the library, and its first step of training; and how large
its process is.

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

# A process that trains a small network, and says how large it was at most.
SMALL = """
import {library} as torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(32, 64), torch.arange(32) % 10
def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
for _ in range(40):
    step()
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""

#: figure -> the most it may be, in seconds; what has no limit is there to compare with
LIMITS = {
    "bare python": None,
    "import torch": None,
    "import flambeau": 0.2,
    "first step, warm cache": 1.0,
    "first step, empty cache": 2.5,
}


def settings(folder: str, cache: str) -> dict[str, str]:
    """The environment of a process whose bytecode and kernels are kept in the folder."""
    found = {**os.environ, "FLAMBEAU_CACHE": os.path.join(folder, cache),
             "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
             "PYTHONPYCACHEPREFIX": os.path.join(folder, "bytecode")}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def seconds(code: str, folder: str, cache: str = "warm") -> float:
    """From the start of a process to its end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=settings(folder, cache), check=True)
    return time.perf_counter() - began


def megabytes(library: str) -> float:
    """How large a process is that trains a small network, all code being on disk."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", SMALL.format(library=library)], check=True, text=True,
                env={**settings(folder, "warm"), "OMP_NUM_THREADS": "1"}, capture_output=True)
    return int(done.stdout) / 1024


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
    worst = verdict(summary(measure(parser.parse_args().rounds)))
    for library in ("torch", "flambeau"):
        if find_spec(library):
            print(f"{library:<24} {megabytes(library):6.1f} MB, training a small MLP")
    return worst


if __name__ == "__main__":
    sys.exit(main())
