"""What a profiler saw: events in a tree, sums of events by name, and how they are printed."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from typing import Any


def format_time(microseconds: float) -> str:
    """Microseconds in the unit that suits them."""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


class Times:
    """Times as text, for whatever has them as numbers."""

    cpu_time: float
    cpu_time_total: float
    self_cpu_time_total: float
    device_time = device_time_total = self_device_time_total = 0.0
    cuda_time = cuda_time_total = self_cuda_time_total = 0.0
    cpu_memory_usage = self_cpu_memory_usage = device_memory_usage = self_device_memory_usage = 0
    flops = 0

    @property
    def cpu_time_str(self):
        return format_time(self.cpu_time)

    @property
    def cpu_time_total_str(self):
        return format_time(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self):
        return format_time(self.self_cpu_time_total)


class Interval:
    """Start and end in microseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: float, end: float):
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        return self.end - self.start


class FunctionEvent(Times):
    """One call of an op, one step of going back, or one stretch the user named."""

    count = 1
    is_async = is_legacy = is_remote = False
    device_index = -1

    def __init__(self, name: str, thread: int, kind: str = "op"):
        self.name, self.thread, self.kind = name, thread, kind
        self.id = 0
        self.began = self.ended = 0  # nanoseconds
        self.fresh = True  # whether its start is still to be told
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []
        self.input_shapes: list = []
        self.stack: list[str] = []

    @property
    def key(self):
        return self.name

    @property
    def is_user_annotation(self):
        return self.kind == "user"

    @property
    def time_range(self):
        return Interval(self.began / 1e3, self.ended / 1e3)

    @property
    def cpu_time_total(self):
        return (self.ended - self.began) / 1e3

    cpu_time = cpu_time_total

    @property
    def self_cpu_time_total(self):
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    def __repr__(self):
        return (f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
                f"start_us={self.time_range.start:.3f} end_us={self.time_range.end:.3f} "
                f"thread={self.thread} input_shapes={self.input_shapes}>")


class FunctionEventAvg(Times):
    """The events of one name, added up."""

    def __init__(self, key: str, input_shapes: Any = "", stack: Any = ()):
        self.key, self.input_shapes, self.stack = key, input_shapes, list(stack)
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.is_user_annotation = False

    def add(self, event, recursive: bool = False):
        """Count an event in; inside one of the same name its total is counted already."""
        self.count += event.count
        self.cpu_time_total += 0.0 if recursive else event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total
        self.is_user_annotation |= event.is_user_annotation
        return self

    @property
    def cpu_time(self):
        return self.cpu_time_total / self.count if self.count else 0.0

    def __repr__(self):
        return (f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
                f"cpu_time={self.cpu_time_str} input_shapes={self.input_shapes} "
                f"calls={self.count}>")


SORTS = ("cpu_time", "cpu_time_total", "self_cpu_time_total", "count", "device_time", "cuda_time",
         "device_time_total", "cuda_time_total", "self_device_time_total", "self_cuda_time_total",
         "cpu_memory_usage", "self_cpu_memory_usage", "flops")


class EventList(list):
    """Events, or sums of events, with ways to add up, print and export them."""

    @property
    def self_cpu_time_total(self):
        """Microseconds in all events, none counted twice."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0,
                     group_by_overload_name=False):
        """One sum for each name; by shapes of the inputs or by the innermost lines too."""
        sums: dict[tuple, FunctionEventAvg] = {}
        for event in self:
            shapes = str(event.input_shapes) if group_by_input_shape else ""
            stack = tuple(event.stack[:group_by_stack_n])
            found = sums.get((event.key, shapes, stack))
            if found is None:
                found = sums[event.key, shapes, stack] = FunctionEventAvg(
                    event.key, event.input_shapes if group_by_input_shape else "", stack)
            found.add(event, _inside_its_like(event))
        return EventList(sums.values())

    def total_average(self):
        """Everything as one sum."""
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        return total

    def table(self, sort_by=None, row_limit=100, max_src_column_width=75,
              max_name_column_width=55, max_shapes_column_width=80, header=None,
              top_level_events_only=False, time_unit=None):
        """A table as text, the largest by `sort_by` first."""
        rows = list(self)
        if sort_by is not None:
            if sort_by not in SORTS:
                raise AttributeError(f"table: cannot sort by '{sort_by}'; there are: "
                                     f"{', '.join(SORTS)}")
            rows.sort(key=lambda row: getattr(row, sort_by), reverse=True)
        if top_level_events_only:
            rows = [row for row in rows if getattr(row, "cpu_parent", None) is None]
        total = self.self_cpu_time_total
        shown = [_cells(row, total) for row in (rows if row_limit < 0 else rows[:row_limit])]
        columns = [("Name", max_name_column_width)] + [(name, 12) for name in (
            "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls")]
        if any(row["Input Shapes"] not in ("", "[]") for row in shown):
            columns.append(("Input Shapes", max_shapes_column_width))
        if any(row["Source Location"] for row in shown):
            columns.append(("Source Location", max_src_column_width))
        return _laid_out(columns, shown, header, f"Self CPU time total: {format_time(total)}\n")

    def __str__(self):
        return self.table()

    def export_chrome_trace(self, path):
        """Write what chrome://tracing and Perfetto read."""
        pid = os.getpid()
        threads = {thread: k + 1 for k, thread in enumerate(dict.fromkeys(
            event.thread for event in self))}
        trace: list[dict] = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0,
                              "args": {"name": "python"}}]
        for event in self:
            details = {"External id": event.id}
            if event.input_shapes:
                details["Input Dims"] = event.input_shapes
            if event.stack:
                details["Call stack"] = ";".join(event.stack)
            trace.append({"ph": "X", "cat": "user_annotation" if event.kind == "user" else "cpu_op",
                          "name": event.name, "pid": pid, "tid": threads[event.thread],
                          "ts": event.began / 1e3, "dur": (event.ended - event.began) / 1e3,
                          "args": details})
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": trace}, file)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write one line for each stack and its microseconds, as flame graph tools read them."""
        sums: dict[str, int] = defaultdict(int)
        for event in self:
            value = int(getattr(event, metric))
            if event.stack and value > 0:
                sums[";".join(reversed(event.stack))] += value
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{stack} {value}\n" for stack, value in sums.items())


def _inside_its_like(event) -> bool:
    parent = getattr(event, "cpu_parent", None)
    while parent is not None:
        if parent.key == event.key:
            return True
        parent = parent.cpu_parent
    return False


def _cells(row, total: float) -> dict[str, str]:
    def share(value):
        return f"{100 * value / total:.2f}%" if total else "0.00%"

    return {
        "Name": row.key,
        "Self CPU %": share(row.self_cpu_time_total),
        "Self CPU": row.self_cpu_time_total_str,
        "CPU total %": share(row.cpu_time_total),
        "CPU total": row.cpu_time_total_str,
        "CPU time avg": row.cpu_time_str,
        "# of Calls": str(row.count),
        "Input Shapes": str(row.input_shapes),
        "Source Location": row.stack[0] if row.stack else "",
    }


def _laid_out(columns, rows, header, footer) -> str:
    """Right-aligned columns under their names, cut where a cell is wider than its column may be."""
    widths = {}
    for name, widest in columns:
        longest = max([len(name), *(len(row[name]) for row in rows)])
        widths[name] = max(min(longest, widest), 12)
    rule = "".join("-" * width + "  " for width in widths.values())
    lines = [rule]
    if header is not None:
        lines = ["=" * len(rule), header, rule]
    lines += ["".join(f"{name:>{width}}  " for name, width in widths.items()), rule]
    for row in rows:
        cells = (_cut(row[name], width).rjust(width) + "  " for name, width in widths.items())
        lines.append("".join(cells))
    return "\n".join([*lines, rule, footer])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
