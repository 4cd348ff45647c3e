"""Write what docs/coming-from-pytorch.md says of results: figures and gaps, from a comparison.

    python -m conformance --lib flambeau --json outcomes.json
    python tools/compare_results.py outcomes.json

`conformance` runs every sample of PyTorch's own test databases in both libraries. Nothing in the
section is written by hand: entries that differ are listed by name, with the kind of difference.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coming-from-pytorch.md"
BEGIN, END = "<!-- results: tools/compare_results.py -->", "<!-- end of results -->"
TITLES = {
    "ops":        "results of ops",
    "methods":    "methods and operators",
    "inplace":    "in-place forms",
    "grads":      "gradients",
    "gradgrad":   "second derivatives",
    "errors":     "kinds of error for invalid input",
    "modules":    "layers: results, state dicts, gradients",
    "optim":      "optimizers, step by step",
    "schedulers": "schedules of learning rates",
    "random":     "the same random numbers from the same seed",
}  # fmt: skip


def differing(suite: dict) -> dict[str, list[str]]:
    """Kind of difference -> entries with a sample that differs so."""
    found: dict[str, set[str]] = {}
    for name, entry in suite["ops"].items():
        for sample in entry["samples"]:
            if sample.get("status") == "fail":
                found.setdefault(sample.get("category", "differs"), set()).add(name)
    return {kind: sorted(names) for kind, names in sorted(found.items())}


def section(outcomes: dict) -> str:
    suites = {name: outcomes["suites"][name] for name in TITLES if name in outcomes["suites"]}
    lines = ["| compared | alike throughout | samples alike |", "|---|---|---|"]
    for name, suite in suites.items():
        lines.append(f"| {TITLES[name]} | {suite['ops_passed']:,} of {suite['ops_total']:,} "
                     f"| {suite['samples_passed']:,} of {suite['samples_total']:,} |")
    left = [title for name, title in TITLES.items() if name not in suites]
    if left:
        lines += ["", f"Not compared in this run: {'; '.join(left)}."]
    lines += ["", "Where a sample differs or is refused, by kind of difference:", ""]
    gaps = [(name, kind, names) for name, suite in suites.items()
            for kind, names in differing(suite).items()]
    lines += [f"- {TITLES[suite]}, {kind}: " + ", ".join(f"`{each}`" for each in names)
              for suite, kind, names in gaps] or ["- nowhere"]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python tools/compare_results.py OUTCOMES.json", file=sys.stderr)
        return 2
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = section(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    PAGE.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{after}", encoding="utf-8")
    print(f"written: {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
