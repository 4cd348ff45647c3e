"""Run the same measurement in alternating processes of two libraries, and compare.

A benchmark is a file with `cases(torch)` that yields (name, function, calls per timing); no calls
means that the very first run is what counts. Each process times every case several times and
reports its best; processes alternate, so that a busy
machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path


def best_of(function, calls: int, repeats: int) -> float:
    """Seconds per call, the best of several timings."""
    best = math.inf
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - began) / calls)
    return best


def measure(module, library: str, threads: int, repeats: int) -> dict[str, float]:
    """Time every case of a benchmark in this process."""
    torch = __import__(library)
    torch.set_num_threads(threads)
    found = {}
    for name, function, calls in module.cases(torch):
        if calls:
            function()
        gc.collect()
        found[name] = best_of(function, calls or 1, repeats if calls else 1)
    return found


def child(path: str, library: str, threads: int, repeats: int) -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    command = [sys.executable, path, "--library", library, "--threads", str(threads),
               "--repeats", str(repeats)]
    out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def compare(path: str, threads: int, rounds: int, repeats: int) -> dict[str, tuple[float, float]]:
    """name -> (seconds in torch, seconds in flambeau), each the best over alternating processes."""
    best: dict[str, list[float]] = {}
    for _ in range(rounds):
        for position, library in enumerate(("torch", "flambeau")):
            for name, seconds in child(path, library, threads, repeats).items():
                pair = best.setdefault(name, [math.inf, math.inf])
                pair[position] = min(pair[position], seconds)
    return {name: (pair[0], pair[1]) for name, pair in best.items()}


def table(results: dict[str, tuple[float, float]]) -> str:
    width = max(map(len, results))
    lines = [f"{'':<{width}}  {'torch us':>10}  {'flambeau us':>11}  {'ratio':>6}"]
    lines += [f"{name:<{width}}  {a * 1e6:>10.2f}  {b * 1e6:>11.2f}  {a / b:>6.2f}"
              for name, (a, b) in results.items()]
    return "\n".join(lines)


def geometric_mean(values) -> float:
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def main(module, path: str) -> int:
    parser = argparse.ArgumentParser(description=module.__doc__.splitlines()[0])
    parser.add_argument("--library", help="measure this one here and print JSON")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    if options.library:
        sys.path.insert(0, str(Path(path).resolve().parent.parent))
        print(json.dumps(measure(module, options.library, options.threads, options.repeats)))
        return 0
    results = compare(path, options.threads, options.rounds, options.repeats)
    print(table(results))
    return module.verdict({name: a / b for name, (a, b) in results.items()})
