"""What the digits demo shows at its end: loss, confusion and mistakes, as text and picture."""

from __future__ import annotations

import itertools

import numpy

from flambeau import Tensor
from flambeau.cli.picture import Canvas, Colour, png
from flambeau.cli.terminal import chart, shades

Mistake = tuple[numpy.ndarray, int, int]  # a picture, what it is, what was read
MISTAKES = 6  # that are shown
INK, PAPER, FAINT = (38, 38, 46), (255, 255, 255), (214, 214, 222)
FLAME, EMBER = (228, 87, 46), (160, 40, 20)

WHAT_NEXT = """
what to try next
  flambeau demo --model gpt         a GPT that learns to write Python
  flambeau run your_script.py       a PyTorch script of yours, unmodified
  flambeau doctor your_script.py    what spoils its training, if anything does
  flambeau explore                  shapes, gradients and the training loop, in the browser
  flambeau info                     what this machine offers
  examples/, docs/tour.py           programs to start from, and the tour of the engine"""


def smoothed(history: list[float], window: int = 15) -> numpy.ndarray:
    """Means of so many neighbours; as long as there are."""
    width = max(1, min(window, len(history) // 4))
    return numpy.convolve(history, numpy.ones(width) / width, "valid")


def confusion(labels: Tensor, guesses: Tensor) -> numpy.ndarray:
    """Row: what the digit is. Column: what was read."""
    counts = numpy.zeros((10, 10), int)
    numpy.add.at(counts, (labels.numpy(), guesses.numpy()), 1)
    return counts


def mistakes(images: Tensor, labels: Tensor, guesses: Tensor) -> list[Mistake]:
    """(picture, what it is, what was read) of digits read wrong."""
    wrong = (labels != guesses).nonzero().flatten().tolist()[:MISTAKES]
    return [(images[i, 0].numpy(), int(labels[i]), int(guesses[i])) for i in wrong]


def in_terminal(history: list[float], images: Tensor, labels: Tensor, guesses: Tensor) -> str:
    parts = [chart(smoothed(history).tolist(), "loss")]
    counts = confusion(labels, guesses)
    rows = ["", "digit   read as " + "".join(f"{digit:>3}" for digit in range(10))]
    for digit in range(10):
        cells = "".join(f"{n:>3}" if n else "  ." for n in counts[digit])
        rows.append(f"  {digit}             {cells}")
    parts.append("\n".join(rows))
    shown = mistakes(images, labels, guesses)
    if shown:
        blocks = [shades(picture) for picture, _, _ in shown]
        lines = ["", "Read wrong:"]
        lines += ["   ".join(block[k] for block in blocks) for k in range(len(blocks[0]))]
        lines.append("   ".join(f"a {is_}, read {read}".ljust(len(blocks[0][0]))
                                for _, is_, read in shown))
        parts.append("\n".join(lines))
    return "\n".join(parts)


def as_png(history: list[float], images: Tensor, labels: Tensor, guesses: Tensor) -> bytes:
    """Loss curve, confusion and mistakes side by side, as the bytes of a PNG file."""
    canvas = Canvas(960, 400, PAPER)
    _curve(canvas, smoothed(history).tolist(), 50, 50, 380, 300)
    _table(canvas, confusion(labels, guesses), 500, 64)
    _gallery(canvas, mistakes(images, labels, guesses), 780, 64)
    right = int((labels == guesses).sum())
    canvas.text(50, 16, f"LOSS OVER {len(history)} STEPS", INK, 2)
    canvas.text(500, 16, f"{100 * right / len(labels):.1f}% RIGHT", INK, 2)
    canvas.text(780, 16, "READ WRONG", INK, 2)
    return png(canvas.pixels)


def _curve(canvas: Canvas, values: list[float], left: int, top: int, width: int,
           height: int) -> None:
    highest, lowest = max(values), min(values)
    span = (highest - lowest) or 1.0
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = top + round(share * height)
        canvas.line(left, y, left + width, y, FAINT)
        canvas.text(4, y - 5, f"{highest - share * span:.2f}", INK, 2)
    points = [(left + width * k / max(1, len(values) - 1), top + (highest - v) / span * height)
              for k, v in enumerate(values)]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        for lower in (0, 1):
            canvas.line(round(x0), round(y0) + lower, round(x1), round(y1) + lower, FLAME)


def _table(canvas: Canvas, counts: numpy.ndarray, left: int, top: int, cell: int = 24) -> None:
    for digit in range(10):
        canvas.text(left + digit * cell + 8, top - 16, str(digit), INK, 2)
        canvas.text(left - 14, top + digit * cell + 7, str(digit), INK, 2)
        for read in range(10):
            n = int(counts[digit, read])
            share = n / max(1, int(counts[digit].sum()))
            colour = _between(PAPER, INK if digit == read else EMBER,
                              share if digit == read else min(1.0, 8 * share))
            x, y = left + read * cell, top + digit * cell
            canvas.box(x, y, cell - 2, cell - 2, colour if n else (244, 244, 247))
            if n:
                canvas.text(x + (3 if n > 9 else 8), y + 6, str(n), PAPER, 2)


def _between(first: Colour, last: Colour, share: float) -> Colour:
    share = 0.25 + 0.75 * share
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, last, strict=True))
    return red, green, blue


def _gallery(canvas: Canvas, shown: list[Mistake], left: int, top: int, cell: int = 8) -> None:
    for k, (picture, is_, read) in enumerate(shown):
        x, y = left + (k % 2) * 90, top + (k // 2) * 104
        grey = 255 - (255 * picture).astype(numpy.uint8)
        canvas.picture(x, y, numpy.repeat(grey[:, :, None], 3, axis=2), cell)
        canvas.text(x, y + 8 * cell + 8, f"{is_} NOT {read}", EMBER, 2)
