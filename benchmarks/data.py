"""Loading data: batches of tensors, workers, the memory they take, and files; beside PyTorch.

Run it: `python benchmarks/data.py`. Each figure is taken in processes of its own that alternate
between the two libraries; times are the best of several, memory is that of the last.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEGABYTE = 1 << 20
WORDS = 220_000  # texts in the list; as lists of words, about a gigabyte

#: figure -> (what it must reach, torch / flambeau)
LIMITS = {
    "tensors, in order": 10.0,
    "tensors, shuffled": 10.0,
    "python, 2 workers": 1.2,
    "arrays, 2 workers": None,
    "list of texts, memory": 2.0,
    "list of lists, memory": 2.0,
    "save": 1.0,
    "load": 1.0,
}


def best_epoch(loader, repeats: int) -> float:
    """Seconds of the fastest of several epochs."""
    best = math.inf
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in loader:
            pass
        best = min(best, time.perf_counter() - began)
    return best


def tensors(torch, shuffle: bool) -> float:
    rows = torch.utils.data.TensorDataset(
        torch.randn(60_000, 784), torch.randint(0, 10, (60_000,)))
    return best_epoch(torch.utils.data.DataLoader(rows, 64, shuffle=shuffle), 5)


class Heavy:
    """Samples that take Python some work: a text is counted letter by letter."""

    def __init__(self, torch):
        self.torch = torch

    def __len__(self):
        return 4_000

    def __getitem__(self, index):
        counts = [0.0] * 26
        for letter in f"sample number {index} of a text that is counted" * 4:
            if "a" <= letter <= "z":
                counts[ord(letter) - 97] += 1.0
        return self.torch.tensor(counts), index % 10


class Arrays:
    """Samples that cost little to make and much to move: 48 KB each."""

    def __init__(self, torch):
        import numpy

        self.pictures = numpy.random.default_rng(0).random((64, 3, 64, 64), numpy.float32)

    def __len__(self):
        return 4_096

    def __getitem__(self, index):
        return self.pictures[index % 64], index


def workers(torch, kind) -> float:
    loader = torch.utils.data.DataLoader(
        kind(torch), 32, num_workers=2, persistent_workers=True, multiprocessing_context="fork")
    return best_epoch(loader, 5)


class Listed:
    """A list in memory, walked through by workers."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return sum(map(len, self.items[index]))


def descendants(root: int) -> list[int]:
    """All processes that a process has started, and those that they have."""
    found, parents = [], {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry)] = int(fields[1])
    waiting = [root]
    while waiting:
        current = waiting.pop()
        children = [pid for pid, parent in parents.items() if parent == current]
        found += children
        waiting += children
    return found


def proportional_megabytes() -> float:
    """Memory of this process and all that came from it, shared pages counted once."""
    total = 0
    for pid in [os.getpid(), *descendants(os.getpid())]:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def memory(torch, make) -> float:
    """Megabytes that two workers add while they walk through a list of about a gigabyte."""
    loader = torch.utils.data.DataLoader(
        Listed([make(i) for i in range(WORDS)]), 64, shuffle=True, num_workers=2,
        persistent_workers=True, multiprocessing_context="fork")
    before, most = proportional_megabytes(), 0.0
    for i, _ in enumerate(loader):
        if i % 200 == 199:
            most = max(most, proportional_megabytes())
    return max(most, proportional_megabytes()) - before


def text(index: int) -> str:
    return f"{index:07} " * 600


def lists(index: int) -> list:
    return [f"{index + k:07}" for k in range(80)]


def files(torch, writes: bool) -> float:
    """Seconds to save, or to load, 200 MB in ten tensors."""
    state = {f"layer {i}": torch.randn(20 * MEGABYTE // 4) for i in range(10)}
    best = math.inf
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.pt")
        torch.save(state, path)
        for _ in range(5):
            began = time.perf_counter()
            torch.save(state, path) if writes else torch.load(path)
            best = min(best, time.perf_counter() - began)
    return best


FIGURES = {
    "tensors, in order": lambda torch: tensors(torch, False),
    "tensors, shuffled": lambda torch: tensors(torch, True),
    "python, 2 workers": lambda torch: workers(torch, Heavy),
    "arrays, 2 workers": lambda torch: workers(torch, Arrays),
    "list of texts, memory": lambda torch: memory(torch, text),
    "list of lists, memory": lambda torch: memory(torch, lists),
    "save": lambda torch: files(torch, True),
    "load": lambda torch: files(torch, False),
}


def child(library: str, figure: str) -> float:
    """One figure, in a process of its own."""
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, __file__, "--library", library, "--only", figure]
    out = subprocess.run(command, env=settings, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def compare(figure: str, rounds: int) -> tuple[float, float]:
    """The figure in torch and in flambeau, the best of alternating processes."""
    best = [math.inf, math.inf]
    for _ in range(rounds):
        for position, library in enumerate(("torch", "flambeau")):
            best[position] = min(best[position], child(library, figure))
    return best[0], best[1]


def report(figure: str, theirs: float, ours: float) -> bool:
    """Print a line; whether the figure is what it must be."""
    unit, scale = ("MB", 1.0) if "memory" in figure else ("ms", 1e3)
    ratio, limit = theirs / max(ours, 1e-9), LIMITS[figure]
    told = "" if limit is None else f"  (at least {limit})"
    print(f"{figure:<24} torch {theirs * scale:9.1f} {unit}   flambeau {ours * scale:9.1f} {unit}"
          f"   ratio {ratio:6.2f}{told}", flush=True)
    return limit is None or ratio >= limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", help="measure this one here and print the figure")
    parser.add_argument("--only", choices=FIGURES, help="this figure alone")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.library:
        torch = __import__(options.library)
        torch.set_num_threads(1)
        print(json.dumps(FIGURES[options.only](torch)))
        multiprocessing.active_children()
        return 0
    figures = [options.only] if options.only else list(FIGURES)
    rounds = {figure: 1 if "memory" in figure else options.rounds for figure in figures}
    good = [report(figure, *compare(figure, rounds[figure])) for figure in figures]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
