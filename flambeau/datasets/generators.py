"""Data made on the spot: points in the plane, and sequences to remember."""

from __future__ import annotations

from math import pi

import flambeau
from flambeau import Generator, Tensor


def make_spirals(count: int = 300, classes: int = 3, noise: float = 0.2, turns: float = 0.7,
                 generator: Generator | None = None) -> tuple[Tensor, Tensor]:
    """Points on the arms of a spiral, float32 of (count, 2), and which arm each is on."""
    _check("make_spirals", count, classes)
    labels = flambeau.arange(count) % classes
    radius = flambeau.arange(count).div(classes, rounding_mode="floor") / max(
        count // classes - 1, 1)
    angle = 2 * pi * (turns * radius + labels / classes)
    angle = angle + noise * flambeau.randn(count, generator=generator)
    return flambeau.stack((radius * angle.cos(), radius * angle.sin()), 1), labels


def make_moons(count: int = 200, noise: float = 0.1,
               generator: Generator | None = None) -> tuple[Tensor, Tensor]:
    """Two half circles that reach into each other, float32 of (count, 2), and which each is on."""
    _check("make_moons", count, 2)
    labels = flambeau.arange(count) % 2
    half = flambeau.arange(count).div(2, rounding_mode="floor")
    angle = pi * half / max((count - 1) // 2, 1)
    lower = labels == 1
    x = flambeau.where(lower, 1 - angle.cos(), angle.cos())
    y = flambeau.where(lower, 0.5 - angle.sin(), angle.sin())
    points = flambeau.stack((x, y), 1)
    return points + noise * flambeau.randn(count, 2, generator=generator), labels


def make_copy_task(count: int = 100, length: int = 10, symbols: int = 8, delay: int = 10,
                   generator: Generator | None = None) -> tuple[Tensor, Tensor]:
    """Sequences to be said again after a pause, int64 of (count, 2 * length + delay), twice.

    An input is `length` symbols from 1 .. symbols, `delay` blanks (0), a sign (symbols + 1), and
    blanks; the target is blank until the sign is read, and then the symbols.
    """
    _check("make_copy_task", count, length)
    if symbols < 1 or delay < 1:
        raise ValueError(f"make_copy_task: symbols={symbols} and delay={delay} must be positive")
    told = flambeau.randint(1, symbols + 1, (count, length), generator=generator)
    total = 2 * length + delay
    inputs = flambeau.zeros(count, total, dtype=flambeau.int64)
    targets = flambeau.zeros(count, total, dtype=flambeau.int64)
    inputs[:, :length] = told
    inputs[:, length + delay - 1] = symbols + 1
    targets[:, total - length:] = told
    return inputs, targets


def _check(name: str, count: int, parts: int) -> None:
    if count < 1 or parts < 1:
        raise ValueError(f"{name}: {count} examples in {parts} parts cannot be made")
