"""Kernels beside torch's eager ones: ratio of times, on 1 and on 2 threads, with equal results.

    python benchmarks/kernels.py --group matmul,conv        one or more groups; none means all
    python benchmarks/kernels.py --quick --threads 1        shorter, and noisier
    python benchmarks/kernels.py --only softmax,10k         cases whose names hold all these words
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path

import conduct
import duel
import kernel_cases


def run_group(name: str, threads: int, options) -> list[duel.Result]:
    """Measure the cases of a group, printing each as it comes."""
    group = kernel_cases.GROUPS[name]
    cases = [c for c in group.cases if all(word in c for word in options.only)]
    if not cases:
        return []
    width = max(map(len, cases)) + 2
    plural = "s" if threads > 1 else ""
    print(f"\n{name}, {threads} thread{plural}".ljust(width + 1)
          + f"{'torch us':>12}{'flambeau us':>12}{'ratio':>8}  error", flush=True)
    found = []
    for result in duel.duel(__file__, cases, threads, options.rounds, options.seconds,
                            group.tolerance):
        print(duel.line_of(result, width), flush=True)
        found.append(result)
    return found


def judge(name: str, threads: int, results: list[duel.Result]) -> list[tuple]:
    """(what, found, least wanted) for a group, its mean, and cases with targets of their own."""
    group = kernel_cases.GROUPS[name]
    ratios = {r.name: r.ratio for r in results if math.isfinite(r.flambeau)}
    where = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
    wrong = [r.name for r in results if r.fault]
    found = [(f"{where}: wrong results or faults: {', '.join(wrong)}", -len(wrong), 0)
             ] if wrong else []
    if not ratios:
        return found
    plain = {k: v for k, v in ratios.items() if k not in group.targets}
    if plain:
        worst = min(plain, key=lambda k: plain[k])
        found.append((f"{where}: worst ({worst})", plain[worst], group.least))
    found.append((f"{where}: geometric mean", duel.geometric_mean(ratios.values()), group.mean))
    found += [(f"{where}: {case}", ratios[case], least)
              for case, least in group.targets.items() if case in ratios]
    return found


def judge_together(threads: int, results: dict[str, list[duel.Result]]) -> list[tuple]:
    found = []
    for names, least in kernel_cases.TOGETHER.items():
        if all(results.get(name) for name in names):
            ratios = [r.ratio for name in names for r in results[name]
                      if math.isfinite(r.flambeau)]
            mean = duel.geometric_mean(ratios)
            found.append((f"{' + '.join(names)}, {threads}: geometric mean", mean, least))
    return found


def write(options, results: dict[int, dict[str, list[duel.Result]]], rows: list[tuple]) -> None:
    """Leave the figures behind as JSON or as a markdown table, by the file's ending."""
    path = Path(options.output)
    if path.suffix == ".json":
        path.write_text(json.dumps({
            "cpus": os.cpu_count(),
            "results": {str(n): {g: [{**vars(r), "ratio": r.ratio} for r in found]
                                 for g, found in groups.items()}
                        for n, groups in results.items()},
            "verdict": [{"what": w, "found": f, "least": least} for w, f, least in rows],
        }, indent=1) + "\n")
        return
    lines = ["| case | threads | torch µs | flambeau µs | ratio |", "|---|---|---|---|---|"]
    lines += [f"| {r.name} | {n} | {r.torch * 1e6:.1f} | {r.flambeau * 1e6:.1f} | {r.ratio:.2f} |"
              for n, groups in results.items() for found in groups.values() for r in found]
    lines += ["", "| promise | found | at least |", "|---|---|---|"]
    lines += [f"| {what} | {found:.2f} | {least} |" for what, found, least in rows]
    path.write_text("\n".join(lines) + "\n")


def parse(arguments=None):
    names = [*kernel_cases.GROUPS, *conduct.GROUPS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog=f"groups: {', '.join(names)}")
    parser.add_argument("--group", default=",".join(names), help="comma-separated")
    parser.add_argument("--only", default="", help="words a case's name must hold, comma-separated")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="per case, round and library")
    parser.add_argument("--output", help="a .json or .md file")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.seconds = options.seconds or (0.03 if options.quick else 0.1)
    options.only = [word for word in options.only.split(",") if word]
    options.group = [name for name in options.group.split(",") if name]
    unknown = set(options.group) - set(names)
    if unknown:
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def main() -> int:
    options = parse()
    if options.serve:
        duel.serve(options.serve, int(options.threads), kernel_cases.find)
        return 0
    rows: list[tuple] = []
    results: dict[int, dict[str, list[duel.Result]]] = {}
    for threads in map(int, options.threads.split(",")):
        here = results[threads] = {}
        for name in options.group:
            if name in kernel_cases.GROUPS:
                here[name] = run_group(name, threads, options)
                rows += judge(name, threads, here[name])
        rows += judge_together(threads, here)
    for name in options.group:
        if name in conduct.GROUPS:
            rows += conduct.GROUPS[name](options.quick)
    if not rows:
        print("no case has such a name")
        return 1
    failed = duel.verdict(rows)
    if options.output:
        write(options, results, rows)
    return failed


if __name__ == "__main__":
    sys.exit(main())
