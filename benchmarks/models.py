"""Training steps of whole models beside torch's: ratio of times, equal losses, peak memory.

    python benchmarks/models.py                             all models, eager, 1 and 2 threads
    python benchmarks/models.py --only GPT --threads 1      models whose names hold these words
    python benchmarks/models.py --compile                   torch.compile beside flambeau.compile
    python benchmarks/models.py --compile --memory-only     peaks of compiled steps beside eager's
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duel
import footprint
import model_cases

STEPS = 5  # whose losses are compared
TRIAL = 1.0  # seconds that a way to take a step is tried for, where there is a choice
SETTLED = 20  # steps after which nothing is learnt any more
PEAKS = 3  # processes of which the one that needs least tells a peak: pages are a coarse measure


def faster(steps) -> Callable:
    """Of two ways to take the same step, the one that takes less time here, once it is compiled."""
    best = []
    for step in steps:
        for _ in range(STEPS):
            step()
        times = []
        until = time.perf_counter() + TRIAL
        while len(times) < 3 or time.perf_counter() < until:
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
        best.append(min(times))
    return steps[best.index(min(best))]


def find(name: str):
    """The builder of a case: a model's name, and how its step is run.

    What is compiled here is measured beside the better of torch's eager and compiled step, and its
    losses beside eager ones: torch.compile draws random numbers of its own.
    """
    name, how = name.split(" | ")

    def build(torch):
        torch.manual_seed(0)
        step = model_cases.MODELS[name][0](torch)
        ours = torch.__name__ != "torch"
        if ours and how != "eager":
            step = torch.compile(step, fullgraph=how == "fullgraph")
        first = True

        def run():
            nonlocal first, step
            if not first:
                return step()
            first = False
            torch.manual_seed(1)
            losses = [step().detach() for _ in range(STEPS)]
            if not ours and how != "eager":
                step = faster([step, torch.compile(model_cases.MODELS[name][0](torch))])
            return losses
        return run
    return build


def peak_memory(library: str, name: str, threads: int) -> float:
    """Megabytes that training adds at its peak to a process with the library; inf if it fails."""
    return _peak_of_process("--peak", library, "--only", name, "--threads", str(threads))


def compiled_peaks(name: str, threads: int, how: str, of: str) -> list[float]:
    """Peaks of the eager and of the compiled step, in processes that have the compiler; each the
    least of several, after one that left all machine code on disk.

    And all of Python's: where it has to read source text it leaves a megabyte of idle memory, in
    which much of what is measured would lie unseen.
    of: "step", for tensors and workspace of one step that was compiled before; or "process", for
    all that the process has at most while steps are learnt and taken.
    """
    peaks = []
    for step in ("eager", how):
        asked = ("--peak", "flambeau", "--step", step, "--compile", how, "--only", name,
                 "--of", of, "--threads", str(threads))
        _peak_of_process(*asked)
        peaks.append(min(_peak_of_process(*asked) for _ in range(PEAKS)))
    return peaks


def _peak_of_process(*asked: str) -> float:
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "OMP_NUM_THREADS": asked[-1], "PYTHONPATH": str(root)}
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):
        environment["PYTHONPYCACHEPREFIX"] = str(root / "build" / "bytecode")
    out = subprocess.run([sys.executable, __file__, *asked], env=environment, capture_output=True,
                         text=True)
    return json.loads(out.stdout.splitlines()[-1]) if out.returncode == 0 else math.inf


def measure_peak(library: str, name: str, threads: int, how: str, step_as: str,
                 of: str) -> float:
    """Megabytes that this process needs at most for building a model and four of its steps; or
    those of one step more.

    The compiler's own code is there before, as the library's is, also where a step beside those
    that are compiled is eager; and numpy, which makes the data.
    """
    import numpy.random  # noqa: F401

    torch = __import__(library)
    torch.set_num_threads(threads)
    torch.ones(4).add(1).sum()
    if how != "eager":
        torch.compile(torch.ones, fullgraph=how == "fullgraph")
    (case,) = [m for m in model_cases.MODELS if m == name]
    before = resident()
    torch.manual_seed(0)
    step = model_cases.MODELS[case][0](torch)
    if step_as != "eager":
        step = torch.compile(step, fullgraph=step_as == "fullgraph")
    for _ in range(SETTLED if of == "step" else 4):
        step()
    return footprint.of_step(step) if of == "step" else most() - before


def resident() -> float:
    """Megabytes of memory this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def most() -> float:
    """Megabytes it has had at most. (What getrusage says begins with what its parent had.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def run_models(names, threads: int, options) -> tuple[list, list]:
    how = options.how
    title = f"{how}, {threads} thread{'s' if threads > 1 else ''}"
    beside = BESIDE[how != "eager"]
    print(f"\n{title:<24}{'torch us':>12}{'flambeau us':>12}{'ratio':>8}  loss error"
          + ("" if options.no_memory else f"   peak MB {', '.join(beside)}"), flush=True)
    cases = [(f"{name} | {how}", model_cases.MODELS[name][2]) for name in names]
    results, rows = [], []
    for name, result in zip(names, duel.duel(__file__, cases, threads, options.rounds,
                                             options.seconds, 0.0), strict=True):
        result.name = name
        line = duel.line_of(result, 24)
        if not options.no_memory:
            result.peaks = peaks_of(name, threads, how)
            line += "   " + "  ".join(f"{mb:.2f}" for mb in result.peaks)
            rows.append(memory_row(f"{title}: {name}", result.peaks, beside))
        print(line, flush=True)
        results.append(result)
    return results, rows


#: whose peaks are compared: the libraries', or those of two ways to take a step
BESIDE = (("torch", "flambeau"), ("eager", "compiled"))


def peaks_of(name: str, threads: int, how: str, of: str = "process") -> list[float]:
    """Two peaks, that of torch's or of the eager step first."""
    if how != "eager":
        return compiled_peaks(name, threads, how, of)
    return [peak_memory(library, name, threads) for library in duel.LIBRARIES]


def memory_row(what: str, peaks: list[float], beside: tuple[str, str]) -> tuple:
    return f"{what}: memory, {' / '.join(beside)}", peaks[0] / peaks[1], 1.0


def run_memory(names, threads: int, how: str) -> list[tuple]:
    """Peaks alone: rows for a verdict."""
    rows = []
    title = f"{how}, {threads} thread{'s' if threads > 1 else ''}"
    beside = BESIDE[how != "eager"]
    measures = ("process",) if how == "eager" else ("step", "process")
    print(f"\n{title:<24}peak MB {', '.join(beside)}, of a {', of a '.join(measures)}", flush=True)
    for name in names:
        line = f"{name:<24}"
        for of in measures:
            peaks = peaks_of(name, threads, how, of)
            line += "  ".join(f"{mb:>9.4f}" if of == "step" else f"{mb:>7.2f}" for mb in peaks)
            rows.append(memory_row(f"{title}: {name}, {of}", peaks, beside))
        print(line, flush=True)
    return rows


def judge(results, threads: int, how: str) -> list[tuple]:
    where = f"{how}, {threads} thread{'s' if threads > 1 else ''}"
    def asked(name: str) -> float:
        if how == "eager":
            return model_cases.MODELS[name][1]
        return model_cases.COMPILED[name][how == "fullgraph"]

    rows = [(f"{where}: {r.name}", r.ratio if math.isfinite(r.flambeau) else 0.0, asked(r.name))
            for r in results]
    rows += [(f"{where}: {r.name}: {r.fault}", -1, 0) for r in results if r.fault]
    large = [r.ratio for r in results
             if model_cases.MODELS[r.name][1] == 1.0 and math.isfinite(r.flambeau)]
    if large:
        rows.append((f"{where}: larger models, geometric mean", duel.geometric_mean(large), 1.3))
    return rows


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="words in the names of models, any of them")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--compile", nargs="?", const="segments", default="eager", dest="how",
                        choices=("segments", "fullgraph"))
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--memory-only", action="store_true")
    parser.add_argument("--output", help="a .json file")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--step", default="eager", help=argparse.SUPPRESS)
    parser.add_argument("--of", default="process", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 6)
    options.seconds = options.seconds or (0.1 if options.quick else 0.4)
    return options


def main() -> int:
    options = parse()
    if options.serve:
        duel.serve(options.serve, int(options.threads), find)
        return 0
    if options.peak:
        print(json.dumps(measure_peak(options.peak, options.only, int(options.threads),
                                      options.how, options.step, options.of)))
        return 0
    words = [word for word in options.only.split(",") if word]
    names = [n for n in model_cases.MODELS if not words or any(word in n for word in words)]
    rows, kept = [], {}
    for threads in map(int, options.threads.split(",")):
        if options.memory_only:
            rows += run_memory(names, threads, options.how)
            continue
        results, memory = run_models(names, threads, options)
        rows += judge(results, threads, options.how) + memory
        kept[threads] = [{**vars(r), "ratio": r.ratio} for r in results]
    failed = duel.verdict(rows)
    if options.output:
        Path(options.output).write_text(json.dumps(kept, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
