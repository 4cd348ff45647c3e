"""torch.utils.benchmark: how long a statement takes, measured often enough to say so."""

from __future__ import annotations

import dataclasses
import statistics
import timeit as _timeit
from typing import Any

import flambeau

__all__ = ["Compare", "Measurement", "Timer", "timer"]

timer = _timeit.default_timer
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def spoken(seconds: float) -> str:
    size, unit = next(((size, unit) for size, unit in UNITS if seconds >= size), UNITS[-1])
    return f"{seconds / size:.2f} {unit}"


@dataclasses.dataclass
class Measurement:
    """Times of a statement, each the time of `number_per_run` runs of it."""

    number_per_run: int
    raw_times: list[float]
    task_spec: Any = None

    @property
    def times(self) -> list[float]:
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.times)

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def iqr(self) -> float:
        if len(self.times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    def __repr__(self) -> str:
        spec = self.task_spec
        name = ": ".join(filter(None, (spec.label, spec.sub_label, spec.description))) or spec.stmt
        spread = f"\n  IQR:    {spoken(self.iqr)}" if len(self.times) > 3 else ""
        runs = f"{len(self.times)} measurement{'s' * (len(self.times) > 1)}, " \
               f"{self.number_per_run} runs per measurement, {spec.num_threads} thread" \
               f"{'s' * (spec.num_threads > 1)}"
        kind = "Median:" if len(self.times) > 1 else ""
        return f"<{__name__}.Measurement object at {hex(id(self))}>\n{name}\n" \
               f"  {kind} {spoken(self.median)}{spread}\n  {runs}"


class Timer:
    """Times `stmt` after `setup`, on as many threads as are asked for: one, if nothing is said."""

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "",
                 timer=timer, globals: dict | None = None, label: str | None = None,
                 sub_label: str | None = None, description: str | None = None,
                 env: str | None = None, num_threads: int = 1, language: Any = None):
        if global_setup or str(language or "py").lower() not in ("py", "python", "0"):
            raise ValueError("Timer: only statements of Python are timed here")
        self.stmt, self.setup, self.num_threads, self.env = stmt, setup, num_threads, env
        self.label, self.sub_label, self.description = label, sub_label, description
        names = {"torch": flambeau, **(globals or {})}
        self._timer = _timeit.Timer(stmt, setup, timer, names)

    def _run(self, number: int) -> float:
        before = flambeau.get_num_threads()
        flambeau.set_num_threads(self.num_threads)
        try:
            return max(self._timer.timeit(number), 1e-9)
        finally:
            flambeau.set_num_threads(before)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One time, of `number` runs; a few runs before it do not count."""
        self._run(max(number // 100, 2))
        return Measurement(number, [self._run(number)], self)

    def blocked_autorange(self, callback=None, min_run_time: float = 0.2) -> Measurement:
        """Blocks of runs, each long enough to be measured, for `min_run_time` seconds."""
        number = 1
        while self._run(number) < min_run_time / 1000:
            number *= 10
        times: list[float] = []
        while sum(times) < min_run_time:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self)

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01,
                           max_run_time: float = 10.0, callback=None) -> Measurement:
        """Blocks of runs until the spread is below `threshold` of the median, or time is up."""
        found = self.blocked_autorange(callback, min_run_time)
        while sum(found.raw_times) < max_run_time and (
                len(found.times) < 5 or found.iqr > threshold * found.median):
            found.raw_times.append(self._run(found.number_per_run))
        return found


class Compare:
    """Measurements side by side: a row for each sub_label, a column for each description."""

    def __init__(self, results: list[Measurement]):
        self._results = list(results)

    def extend_results(self, results: list[Measurement]) -> None:
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Figures are given to three places already."""

    def colorize(self, rowwise: bool = False) -> None:
        """A table is plain text here."""

    def __str__(self) -> str:
        columns = list(dict.fromkeys(m.task_spec.description or "" for m in self._results))
        cells: dict[tuple, dict[str, Measurement]] = {}
        for m in self._results:
            row = (m.task_spec.num_threads, m.task_spec.sub_label or m.task_spec.stmt)
            cells.setdefault(row, {})[m.task_spec.description or ""] = m
        wide = max([len(name) for _, name in cells] + [8])
        lines = [" " * wide + "".join(f" | {c:>14}" for c in columns)]
        for (threads, name), found in cells.items():
            shown = (spoken(found[c].median) if c in found else "" for c in columns)
            lines.append(f"{name:<{wide}}" + "".join(f" | {s:>14}" for s in shown)
                         + f"   {threads} thread{'s' * (threads > 1)}")
        return "\n".join(lines)

    def print(self) -> None:
        print(self)
