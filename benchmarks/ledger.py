"""What a run of all benchmarks has found so far, on disk: one that was stopped can go on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Row:
    """One workload: torch's and flambeau's figure in each round."""

    name: str
    threads: int
    torch: list[float] = field(default_factory=list)
    flambeau: list[float] = field(default_factory=list)
    fault: str = ""
    unit: str = "us"

    @property
    def ratio(self) -> float:
        return min(self.torch) / max(min(self.flambeau), 1e-12)

    @property
    def spread(self) -> str:
        each = [a / max(b, 1e-12) for a, b in zip(self.torch, self.flambeau, strict=False)]
        return f"{min(each):.2f}-{max(each):.2f}" if len(each) > 1 else ""


class Ledger:
    """Groups that are done, and which models were compared with other libraries, and how."""

    def __init__(self, path: Path, machine: list[str]):
        self.path, self.machine = path, machine
        self.groups: dict[str, list[Row]] = {}
        self.compared: list[tuple[str, int, dict]] = []     # (model, threads, library -> found)

    @classmethod
    def of(cls, path: Path) -> Ledger | None:
        """What the last run left, if it left anything."""
        if not path.exists():
            return None
        kept = json.loads(path.read_text())
        found = cls(path, kept["machine"])
        found.groups = {name: [Row(**row) for row in rows] for name, rows in kept["groups"].items()}
        found.compared = [(model, threads, peers) for model, threads, peers in kept["compared"]]
        return found

    def keep(self) -> None:
        """Write it down, whole or not at all."""
        groups = {name: [asdict(row) for row in rows] for name, rows in self.groups.items()}
        text = json.dumps({"machine": self.machine, "groups": groups, "compared": self.compared})
        self.path.parent.mkdir(exist_ok=True)
        draft = self.path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self.path)
