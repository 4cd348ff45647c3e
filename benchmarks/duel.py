"""Two libraries measured case by case in two processes that take turns, and their results compared.

A benchmark is a file with `find(name)` that gives a case's builder: called with the library, it
returns a function that runs the case once and returns its tensors. Both processes live through a
group of cases; one sleeps while the other measures, so a busy machine disturbs both alike.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy

LIBRARIES = ("torch", "flambeau")
SAMPLE = 20_000  # elements of a result that are compared
# Seconds that a library measures before the other does. On a shared machine neighbours slow a core
# for tens of milliseconds at a time: among many short turns both find quiet ones.
TURN = 0.01
# Seconds before each turn on several threads: those of the other library may go on spinning on the
# cores for some milliseconds after its own.
REST = 0.004


@dataclass
class Result:
    """What one case took in both libraries, in seconds, and how far apart its results are."""

    name: str
    torch: float = math.inf
    flambeau: float = math.inf
    error: float = 0.0
    fault: str = ""
    peaks: list[float] = field(default_factory=list)  # megabytes, in both libraries

    @property
    def ratio(self) -> float:
        return self.torch / self.flambeau


# -- the process that measures ----------------------------------------------------------------


def serve(library: str, threads: int, find) -> None:
    """Answer questions, one JSON line each: a case to build, or seconds to measure it for."""
    torch = __import__(library)
    torch.set_num_threads(threads)
    answers, sys.stdout = sys.stdout, sys.stderr
    run = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "build" in asked:
                run = None
                gc.collect()
                run = find(asked["build"])(torch)
                save(asked["results"], run())
                answer = {"ok": True}
            else:
                answer = {"best": best_within(run, asked["seconds"])}
        except Exception as error:
            answer = {"fault": f"{library}: {type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)


def best_within(run, seconds: float) -> float:
    """Seconds of one call, the best found in about this time; short calls are timed in batches."""
    began = time.perf_counter()
    run()
    once = time.perf_counter() - began
    calls = max(1, min(1000, int(0.002 / max(once, 1e-7))))
    best, until = once, began + seconds
    while True:
        began = time.perf_counter()
        for _ in range(calls):
            run()
        now = time.perf_counter()
        best = min(best, (now - began) / calls)
        if now > until:
            return best


def save(path: str, found) -> None:
    """Write a sample of every tensor among the results."""
    found = found if isinstance(found, (tuple, list)) else (found,)
    arrays = [numpy.asarray(t.detach()).reshape(-1) for t in found if t is not None]
    picked = [a[numpy.linspace(0, a.size - 1, SAMPLE).astype(int)] if a.size > SAMPLE else a
              for a in arrays]
    numpy.savez(path, *picked)


# -- the process that asks --------------------------------------------------------------------


class Peer:
    """A library in a process of its own."""

    def __init__(self, path: str, library: str, threads: int):
        count = str(threads)
        environment = {**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
        root = Path(path).resolve().parent.parent
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{environment.get('PYTHONPATH', '')}"
        self.library, self.threads = library, threads
        self.process = subprocess.Popen(
            [sys.executable, path, "--serve", library, "--threads", count],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        # One core is often slower than another, by what others do beside it: libraries that take
        # turns on one thread do so on the same core.
        if threads == 1 and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.process.pid, {max(os.sched_getaffinity(0))})

    def ask(self, **question) -> dict:
        try:
            print(json.dumps(question), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self.process.wait()
            return {"fault": f"{self.library}: the process ended with code {code}", "ended": True}
        return json.loads(line)

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it may have ended before us
            self.process.stdin.close()
        self.process.wait()


def duel(path: str, cases, threads: int, rounds: int, seconds: float, tolerance: float):
    """Yield the Result of each case (a name, or a name and a tolerance of its own)."""
    peers: dict[str, Peer] = {}
    try:
        for case in cases:
            name, allowed = case if isinstance(case, tuple) else (case, tolerance)
            for library in LIBRARIES:
                peers[library] = peers.get(library) or Peer(path, library, threads)
            result = one_case(peers, name, rounds, seconds, allowed)
            for library in LIBRARIES:
                if peers[library].process.poll() is not None:
                    del peers[library]
            yield result
    finally:
        for peer in peers.values():
            peer.close()


def one_case(peers, name: str, rounds: int, seconds: float, tolerance: float) -> Result:
    result = Result(name)
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{library}.npz") for library in LIBRARIES]
        for library, file in zip(LIBRARIES, files, strict=True):
            answer = peers[library].ask(build=name, results=file)
            if "fault" in answer:
                result.fault = answer["fault"]
                return result
        result.error, result.fault = difference(*files, tolerance)
    spent = turns = 0.0
    while turns < rounds or spent < rounds * seconds:
        turns += 1
        began = time.perf_counter()
        for library in LIBRARIES:
            if peers[library].threads > 1:
                time.sleep(REST)
            answer = peers[library].ask(seconds=min(seconds, TURN))
            if "fault" in answer:
                result.fault = answer["fault"]
                return result
            setattr(result, library, min(getattr(result, library), answer["best"]))
        spent += (time.perf_counter() - began) / len(LIBRARIES)
    return result


def difference(wanted: str, found: str, tolerance: float) -> tuple[float, str]:
    """The largest error beside the largest value of its tensor, and what is wrong, if anything."""
    with numpy.load(wanted) as a, numpy.load(found) as b:
        if a.files != b.files:
            return math.inf, f"{len(a.files)} results in torch, {len(b.files)} in flambeau"
        worst = 0.0
        for name in a.files:
            x, y = a[name], b[name]
            if x.shape != y.shape or x.dtype != y.dtype:
                return math.inf, f"{name}: {x.dtype} {x.shape} and {y.dtype} {y.shape}"
            worst = max(worst, _error(x, y))
    return worst, "" if worst <= tolerance else f"results differ by {worst:.1e}"


def _error(x, y) -> float:
    if x.dtype.kind not in "fc":
        return float(not numpy.array_equal(x, y))
    odd = ~numpy.isfinite(x)
    if not numpy.array_equal(x[odd], y[odd], equal_nan=True):
        return math.inf
    x, y = x[~odd].astype("f8"), y[~odd].astype("f8")
    if not x.size:
        return 0.0
    error = float(numpy.abs(x - y).max() / max(float(numpy.abs(x).max()), 1e-30))
    return math.inf if math.isnan(error) else error


def geometric_mean(values) -> float:
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def line_of(result: Result, width: int) -> str:
    times = (f"{result.torch * 1e6:>12.1f}{result.flambeau * 1e6:>12.1f}{result.ratio:>8.2f}"
             if math.isfinite(result.flambeau) else " " * 32)
    return f"{result.name:<{width}}{times}  {result.fault or f'{result.error:.0e}'}"


def verdict(rows: list[tuple]) -> int:
    """Print what was found beside what was wanted; 1 if anything falls short."""
    print()
    width = max(len(row[0]) for row in rows)
    for what, found, least in rows:
        mark = "" if found >= least else "  SHORT"
        print(f"{what:<{width}}  {found:8.2f}  (at least {least}){mark}")
    return int(any(found < least for _, found, least in rows))
