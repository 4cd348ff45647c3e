"""Every benchmark, one after the other, and benchmarks/RESULTS.md from what they find.

    ./run bench                    everything: about an hour
    ./run bench --quick            a part of each group: under five minutes
    ./run bench --resume           go on with a run that was stopped (Ctrl-C)
    ./run bench --group models     some groups only; RESULTS.md is not written

Both libraries sit in processes of their own that take turns; results are compared before times are;
a figure is the best of its rounds, and the spread is that of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import data
import duel
import kernel_cases
import model_cases
import peer
import peers
import start
import summary
from ledger import Ledger, Row

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
QUICK_MODELS = ("house MLP", "MNIST MLP", "MNIST CNN", "LSTM", "char GPT", "VAE")
#: what a quick run leaves out of the kernels: other sizes of the same, and what takes long
SMALLER_OR_LARGER = (" 16M", " tall", " 10k", " fb 1M", " nt", " tn", " tt")
LONG = ("2048x2048", "4096x4096", "10000", "1024x1024x1024", "112x112", "10M")
QUICK_PEERS = "house mlp,mnist mlp"
#: torch.compile takes four and seven minutes for these: once is enough
SLOW_TO_COMPILE = ("tree", "200 tiny ops")
QUICK_FIGURES = ("tensors, in order", "tensors, shuffled", "load")
#: the group whose figures are both flambeau's: eager steps beside compiled ones
COMPILED_MEMORY = "compiled memory"
TITLES = {
    "overhead":       "what a call costs: tiny tensors, one thread",
    "everyday":       "calls that programs are full of, on small tensors, one thread",
    "kernels":        "ops at the sizes where models use them, eager",
    "models":         "training steps of whole models, eager",
    "compiled":       "training steps, the better of torch and torch.compile beside compile",
    "memory":         "peak memory of training, megabytes",
    COMPILED_MEMORY:  "peak memory of eager steps beside compiled ones, megabytes",
    "data":           "loaders and files, one thread",
    "start":          "import and cold start",
    "peers":          "training steps of the same models in five libraries",
}  # fmt: skip


# -- the groups: each yields rows -----------------------------------------------------------------


def take_turns(file: str, cases, threads: int, rounds: int, seconds: float):
    """Rows of cases (name, tolerance) of a benchmark that `duel` can serve."""
    path = str(HERE / file)
    them: dict[str, duel.Peer] = {}
    try:
        for name, tolerance in cases:
            for library in duel.LIBRARIES:
                if library not in them or them[library].process.poll() is not None:
                    them[library] = duel.Peer(path, library, threads)
            yield one_case(them, Row(name.split(" | ")[0], threads), name, tolerance, rounds,
                           seconds)
    finally:
        for each in them.values():
            each.close()


def one_case(them, row: Row, name: str, tolerance: float, rounds: int, seconds: float) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{library}.npz") for library in duel.LIBRARIES]
        for library, file in zip(duel.LIBRARIES, files, strict=True):
            row.fault = row.fault or them[library].ask(build=name, results=file).get("fault", "")
        if row.fault:
            return row
        row.fault = duel.difference(*files, tolerance)[1]
    for _ in range(rounds):
        for library in duel.LIBRARIES:
            answer = them[library].ask(seconds=seconds)
            if "fault" in answer:
                row.fault = answer["fault"]
                return row
            getattr(row, library).append(answer["best"])
    return row


def run_overhead(quick: bool):
    yield from in_processes("overhead.py", 2 if quick else 5, quick)


def run_everyday(quick: bool):
    yield from in_processes("everyday.py", 1 if quick else 3, quick)


def in_processes(file: str, rounds: int, quick: bool):
    """Rows of a benchmark whose processes measure all their cases in one go."""
    path = str(HERE / file)
    rows: dict[str, Row] = {}
    for _ in range(rounds):
        for library in duel.LIBRARIES:
            for name, seconds in peer.child(path, library, 1, 3 if quick else 7).items():
                getattr(rows.setdefault(name, Row(name, 1)), library).append(seconds)
    yield from rows.values()


def run_kernels(quick: bool):
    for threads in (1, 2):
        for group in kernel_cases.GROUPS.values():
            cases = [(name, group.tolerance) for name in group.cases
                     if not quick or not (name.endswith(SMALLER_OR_LARGER)
                                          or any(size in name for size in LONG))]
            yield from take_turns("kernels.py", cases, threads, 3 if quick else 5,
                                  0.01 if quick else 0.04)


def run_models(quick: bool):
    for threads in (1, 2):
        cases = [(f"{name} | eager", model_cases.MODELS[name][2])
                 for name in (QUICK_MODELS if quick else model_cases.MODELS)]
        yield from take_turns("models.py", cases, threads, 2 if quick else 6,
                              0.15 if quick else 0.4)


def run_memory(quick: bool):
    import models

    for name in QUICK_MODELS[1:3] if quick else model_cases.MODELS:
        theirs, ours = (models.peak_memory(library, name, 1) for library in duel.LIBRARIES)
        yield Row(name, 1, [theirs], [ours], unit="MB")


def run_compiled_memory(quick: bool):
    import models

    for name in QUICK_MODELS[1:3] if quick else model_cases.MODELS:
        for how, said in (("segments", ""), ("fullgraph", ", fullgraph")):
            for of in ("step", "process"):
                eager, compiled = models.compiled_peaks(name, 1, how, of)
                yield Row(f"{name}{said}, {of}", 1, [eager], [compiled], unit="MB")


def run_data(quick: bool):
    for figure in QUICK_FIGURES if quick else data.FIGURES:
        unit = "MB" if "memory" in figure else "us"
        row = Row(figure, 1, unit=unit)
        for _ in range(1 if quick or unit == "MB" else 3):
            for library in duel.LIBRARIES:
                getattr(row, library).append(data.child(library, figure))
        yield row


def run_start(quick: bool):
    found = start.measure(1 if quick else 5)
    bare = statistics.median(found["bare python"])
    imports = {name: [t - bare for t in found[f"import {name}"]] for name in duel.LIBRARIES}
    yield Row("import", 1, imports["torch"], imports["flambeau"])
    for name in ("first step, warm cache", "first step, empty cache"):
        yield Row(name, 1, [math.nan], found[name])
    theirs, ours = (start.megabytes(library) for library in duel.LIBRARIES)
    yield Row("memory of a process", 1, [theirs], [ours], unit="MB")


GROUPS = {
    "overhead": run_overhead,
    "everyday": run_everyday,
    "kernels":  run_kernels,
    "models":   run_models,
    "memory":   run_memory,
    COMPILED_MEMORY: run_compiled_memory,
    "data":     run_data,
    "start":    run_start,
}  # fmt: skip


# -- what is written ------------------------------------------------------------------------------


def number(value: float, unit: str) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.1f} MB" if unit == "MB" else f"{value * 1e6:,.1f}"


def line_of(row: Row) -> str:
    if row.fault or not row.torch or not row.flambeau:
        return f"| {row.name} | {row.threads} | | | | {row.fault or 'no figure'} |"
    ratio = "-" if math.isnan(row.ratio) else f"{row.ratio:.2f}"
    slower = "" if row.ratio >= 1 else " (more)" if row.unit == "MB" else " (slower)"
    return (f"| {row.name} | {row.threads} | {number(min(row.torch), row.unit)} "
            f"| {number(min(row.flambeau), row.unit)} | {ratio}{slower} | {row.spread} |")


def sections(found: dict[str, list[Row]]) -> list[str]:
    lines = []
    for group, rows in found.items():
        ratios = [row.ratio for row in rows
                  if not row.fault and row.torch and row.flambeau and math.isfinite(row.ratio)]
        own = group == COMPILED_MEMORY
        short = "more than eager in" if own else "slower than torch in"
        mean = f"; geometric mean of ratios {duel.geometric_mean(ratios):.2f}, " \
               f"{short} {sum(r < 1 for r in ratios)} of {len(ratios)}" \
            if ratios else ""
        columns = "eager | compiled" if own else "torch µs | flambeau µs"
        lines += ["", f"## {group}: {TITLES[group]}{mean}", "",
                  f"| what | threads | {columns} | ratio | spread |",
                  "|---|---|---|---|---|---|", *map(line_of, rows)]
    return lines


# -- all libraries, compiled -----------------------------------------------------------------------


def peer_cases(quick: bool) -> list[tuple[str, int]]:
    """The models that are compared, and on how many threads."""
    return [(model, threads) for threads in ((1,) if quick else (1, 2))
            for model in peers.chosen(QUICK_PEERS if quick else "")]


def compare_peers(model: str, threads: int, quick: bool) -> dict[str, dict]:
    """library -> what was found."""
    slow = model != "house MLP" if quick else threads > 1 and model in SLOW_TO_COMPILE
    names = [name for name in peers.LIBRARIES if name != "torch compiled" or not slow]
    found = peers.compare(model, threads, 1 if quick else 3, 0.3 if quick else 0.5, names)
    print(f"{model}, {threads}: {' | '.join(peers.cells(found, names))}", flush=True)
    return found


def compiled_rows(compared) -> list[Row]:
    """The better of torch's two steps beside compile's, with and without Python between calls."""
    rows = []
    for model, threads, found in compared:
        theirs = [found[name]["step"] for name in ("torch", "torch compiled")
                  if "step" in found.get(name, {})]
        for name, how in ((peers.OURS, ""), ("flambeau fullgraph", ", fullgraph")):
            # Where torch.compile would take too long once more, its eager step is all there is.
            beside = "" if "torch compiled" in found else ", beside torch's eager step"
            row = Row(model + how + beside, threads, [min(theirs, default=math.nan)],
                      [found[name].get("step", math.nan)], found[name].get("fault", ""))
            rows.append(row)
    return rows


def peer_section(compared) -> list[str]:
    """A line for each model and number of threads, and below them what has no figure, and why."""
    names = list(peers.LIBRARIES)
    lines = ["", f"## peers: {TITLES['peers']}", "", *peers.EXPLAINED, "",
             f"| model | threads | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    notes = []
    for model, threads, found in compared:
        lines.append(f"| {model} | {threads} | {' | '.join(peers.cells(found, names))} |")
        notes += [f"- {model}, {threads} thread{'s' if threads > 1 else ''}, {fault}"
                  for fault in peers.faults(found)]
    return lines + (["", *notes] if notes else [])


def machine() -> list[str]:
    """What it was measured on, and with."""
    sys.path.insert(0, str(HERE.parent))
    from flambeau.cli.info import processor

    versions = []
    for package in ("flambeau", "torch", "numpy", "llvmlite", "jax", "tinygrad", "mlx"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            if package == "flambeau":
                from flambeau import __version__

                versions.append(f"flambeau {__version__}")
    load = f"; load average at the start {os.getloadavg()[0]:.1f}" \
        if hasattr(os, "getloadavg") else ""
    return [f"{processor()}, {os.cpu_count()} cores; {platform.system()}, "
            f"Python {platform.python_version()}{load}.",
            f"Versions: {', '.join(versions)}.", f"Date: {datetime.date.today()}."]


def write(ledger: Ledger, quick: bool) -> None:
    command = "./run bench --quick" if quick else "./run bench"
    missing = [*(name for name in GROUPS if name not in ledger.groups), *(
        f"{model} on {threads} thread{'s' if threads > 1 else ''} in other libraries"
        for model, threads in left(ledger, quick))]
    stopped = ["", f"The run was stopped; not measured: {', '.join(missing)}."] if missing else []
    found = {**ledger.groups, "compiled": compiled_rows(ledger.compared)}
    lines = ["# Benchmarks", "",
             f"Made by `{command}`. Ratios are torch's time over flambeau's: above 1 flambeau is",
             "faster. Processes of both libraries take turns, results are compared before times",
             "are, a time is the best of its rounds, and the spread is that of the rounds' own",
             "ratios. No slower result is left out; a quick run has fewer models and peers.", "",
             *ledger.machine, *stopped, *sections(found), *peer_section(ledger.compared)]
    RESULTS.write_text("\n".join(lines) + "\n")
    summary.write()
    print(f"written: {RESULTS.relative_to(HERE.parent)}, and the table in README.md")


def left(ledger: Ledger, quick: bool) -> list[tuple[str, int]]:
    """Models that are still to be compared."""
    done = {(model, threads) for model, threads, _ in ledger.compared}
    return [case for case in peer_cases(quick) if case not in done]


# -- a run ----------------------------------------------------------------------------------------


def measure(ledger: Ledger, groups: list[str], with_peers: bool, quick: bool) -> None:
    """Measure what the ledger does not have yet, and write it down group by group."""
    for name in [n for n in groups if n not in ledger.groups]:
        print(f"\n{name}: {TITLES[name]}", flush=True)
        rows, started = [], time.perf_counter()
        for row in GROUPS[name](quick):
            rows.append(row)
            print(line_of(row), flush=True)
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
        ledger.groups[name] = rows
        ledger.keep()
    if with_peers:
        print(f"\npeers: {TITLES['peers']}", flush=True)
        for model, threads in left(ledger, quick):
            ledger.compared.append((model, threads, compare_peers(model, threads, quick)))
            ledger.keep()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a part of each group, few rounds")
    parser.add_argument("--group", default="", help=f"of {', '.join([*GROUPS, 'peers'])}")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    options = parser.parse_args()
    chosen = [name for name in options.group.split(",") if name]
    unknown = set(chosen) - {*GROUPS, "peers"}
    if unknown:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join([*GROUPS, 'peers'])}")
    kind = "some" if chosen else "quick" if options.quick else "all"
    path = HERE.parent / "build" / f"benchmarks-{kind}.json"
    ledger = (Ledger.of(path) if options.resume else None) or Ledger(path, machine())
    began, stopped = time.perf_counter(), False
    try:
        measure(ledger, [n for n in GROUPS if not chosen or n in chosen],
                not chosen or "peers" in chosen, options.quick)
    except KeyboardInterrupt:
        stopped = True
        print("\nstopped; ./run bench --resume goes on from here", flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")
    if not chosen:
        write(ledger, options.quick)
    return int(stopped or any(row.fault for rows in ledger.groups.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
