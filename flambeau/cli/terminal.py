"""Curves and small pictures in letters, and plain ones where the terminal has no others."""

from __future__ import annotations

import sys

import numpy

SHADES = {"unicode": " ░▒▓█", "ascii": " .:*#"}
DOTS = {"unicode": "█▀▄", "ascii": "#'."}


def alphabet() -> str:
    """Which letters the output can show."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "░▀█".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return "ascii"
    return "unicode"


def shades(picture: numpy.ndarray) -> list[str]:
    """Values in 0..1 as lines of letters, two of them for each value: letters are tall."""
    letters = SHADES[alphabet()]
    levels = (picture.clip(0, 1) * (len(letters) - 1)).round().astype(int)
    return ["".join(2 * letters[level] for level in row) for row in levels]


def chart(values: list[float], title: str, width: int = 60, height: int = 10) -> str:
    """A curve of dots, two to a line, with the highest and the lowest value at its side."""
    full, upper, lower = tuple(DOTS[alphabet()])
    highest, lowest = max(values), min(values)
    span = (highest - lowest) or 1.0
    columns = min(width, len(values))
    grid = numpy.zeros((2 * height, columns), bool)
    for column, part in enumerate(numpy.array_split(numpy.asarray(values), columns)):
        level = round((highest - float(part.mean())) / span * (2 * height - 1))
        grid[level, column] = True
    lines = []
    for row in range(height):
        pairs = zip(grid[2 * row], grid[2 * row + 1], strict=True)
        drawn = "".join(full if a and b else upper if a else lower if b else " " for a, b in pairs)
        label = {0: f"{highest:.3f}", height - 1: f"{lowest:.3f}"}.get(row, "")
        lines.append(f"{label:>8} |{drawn.rstrip()}")
    return "\n".join([*lines, f"{title:>8} +{'-' * columns} steps"])
