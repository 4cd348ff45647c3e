"""The table of ratios in README.md, from benchmarks/RESULTS.md.

    python benchmarks/summary.py            write it; a run of all benchmarks does so too
    python benchmarks/summary.py --check    whether it is what RESULTS.md says
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import duel

HERE = Path(__file__).resolve().parent
README, RESULTS = HERE.parent / "README.md", HERE / "RESULTS.md"
BEGIN, END = "<!-- ratios -->", "<!-- end of ratios -->"

#: what a row says, and the workloads whose ratios it has; several are told one after the other
ROWS = (
    ("`a + b`, 8 x 8; recorded for backward", ("overhead a+b", "overhead a+b recorded")),
    ("1,000 tiny ops with backward", ("overhead chain of 1000",)),
    ("ten ops with backward, every shape new", ("overhead every shape new",)),
    ("training step: MLP 3-16-8-1", ("models house MLP",)),
    ("MLP 784-128-10", ("models MNIST MLP",)),
    ("CNN, 28 x 28", ("models MNIST CNN",)),
    ("ResNet-18, 32 x 32", ("models ResNet-18",)),
    ("LSTM", ("models LSTM",)),
    ("character GPT", ("models char GPT",)),
    ("VAE", ("models VAE",)),
    ("U-Net", ("models U-Net",)),
    ("recursive tree network", ("models tree",)),
    ("compiled, beside the better of PyTorch's eager and compiled step: MLP 3-16-8-1; with "
     "`fullgraph=True`", ("compiled house MLP", "compiled house MLP, fullgraph")),
    ("MLP 784-128-10", ("compiled MNIST MLP", "compiled MNIST MLP, fullgraph")),
    ("CNN, 28 x 28", ("compiled MNIST CNN", "compiled MNIST CNN, fullgraph")),
    ("ResNet-18, 32 x 32", ("compiled ResNet-18", "compiled ResNet-18, fullgraph")),
    ("LSTM", ("compiled LSTM", "compiled LSTM, fullgraph")),
    ("character GPT", ("compiled char GPT", "compiled char GPT, fullgraph")),
    ("VAE", ("compiled VAE", "compiled VAE, fullgraph")),
    ("U-Net", ("compiled U-Net", "compiled U-Net, fullgraph")),
    ("recursive tree network", ("compiled tree", "compiled tree, fullgraph")),
    ("200 tiny ops", ("compiled 200 tiny ops", "compiled 200 tiny ops, fullgraph")),
    ("`DataLoader` over tensors, shuffled; loading a file of 200 MB",
     ("data tensors, shuffled", "data load")),
    ("`import`; memory of a process that trains a small MLP",
     ("start import", "start memory of a process")),
)  # fmt: skip


def ratios(text: str) -> dict[tuple[str, int], float]:
    """(group and workload, threads) -> ratio, of all lines that have one."""
    found, group = {}, ""
    for line in text.splitlines():
        if line.startswith("## "):
            group = line[3:].split(":")[0]
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 8 and cells[2].isdigit():
            ratio = re.match(r"[0-9.]+", cells[5])
            if ratio:
                found[f"{group} {cells[1]}", int(cells[2])] = float(ratio.group())
    return found


def said(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 20 else f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"


def table(text: str) -> list[str]:
    """The lines of the table; a row without any figure is left out."""
    found = ratios(text)
    lines = ["| what | 1 thread | 2 threads |", "|---|---|---|"]

    def row(what: str, cells: list[str]) -> None:
        if any(cells):
            lines.append(f"| {what} | {cells[0]} | {cells[1]} |")

    for what, names in ROWS:
        row(what, ["; ".join(said(found[name, threads]) for name in names
                             if (name, threads) in found) for threads in (1, 2)])
    for what, start in (("everyday calls on small tensors", "everyday "), ("kernels", "kernels "),
                        ("matrix products", "kernels mm ")):
        each = [[ratio for (name, threads), ratio in found.items()
                 if name.startswith(start) and threads == count] for count in (1, 2)]
        row(f"{len(each[0])} {what}: geometric mean; worst",
            [f"{said(duel.geometric_mean(one))}; {said(min(one))}" if one else "" for one in each])
    return lines


def with_table(readme: str, results: str) -> str:
    """README's text with the table that the results give."""
    head, rest = readme.split(BEGIN)
    return "\n".join((head + BEGIN, "", *table(results), "", END)) + rest.split(END)[1]


def write() -> None:
    README.write_text(with_table(README.read_text(), RESULTS.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it differs")
    options = parser.parse_args()
    if options.check:
        readme = README.read_text()
        return int(with_table(readme, RESULTS.read_text()) != readme)
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
