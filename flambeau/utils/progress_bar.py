"""`progress(loader)`: the rate, the numbers one cares about and the time left, on a terminal.

    for inputs, targets in (bar := progress(loader, "epoch 1")):
        ...
        bar.show(loss=loss)

Where there is no terminal nothing is written. Tensors are read only when a line is painted.
"""

import shutil
import sys
import time

__all__ = ["Progress", "progress"]

BLOCKS = " ▏▎▍▌▋▊▉█"
WIDTH = 20


def progress(iterable, title="", total=None, stream=None, every=0.1):
    """Iterate as before, with a line on the terminal; `every` so many seconds it is painted."""
    return Progress(iterable, title, total, stream, every)


class Progress:
    """What `progress` returns: the iterable, and `show` for numbers beside the bar."""

    def __init__(self, iterable, title="", total=None, stream=None, every=0.1):
        self.iterable, self.title, self.every = iterable, title, every
        self.total = total if total is not None else _length(iterable)
        self.stream = sys.stderr if stream is None else stream
        self.live = bool(getattr(self.stream, "isatty", lambda: False)())
        self.done = 0
        self.numbers = {}

    def __len__(self):
        if self.total is None:
            raise TypeError(f"progress: the length of {type(self.iterable).__name__} is not known")
        return self.total

    def show(self, **numbers):
        """Numbers, or tensors of one element, to show from the next line on."""
        self.numbers.update(numbers)

    def __iter__(self):
        if not self.live:
            yield from self.iterable
            return
        self.done, began = 0, time.monotonic()
        painted = began
        finished = False
        try:
            for item in self.iterable:
                yield item
                self.done += 1
                now = time.monotonic()
                if now - painted >= self.every:
                    painted = now
                    self._paint(self.line(now - began))
            finished = True
        finally:
            self._paint(self.line(time.monotonic() - began, finished) + "\n")

    def _paint(self, text):
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        self.stream.write("\r\033[K" + text.encode(encoding, "replace").decode(encoding))
        self.stream.flush()

    def line(self, seconds, finished=False):
        """The line after so many seconds."""
        rate = self.done / seconds if seconds > 0 else 0.0
        parts = [self.title] if self.title else []
        if self.total:
            share = min(self.done / self.total, 1.0)
            parts += [f"{share:4.0%}", _bar(share), f"{self.done}/{self.total}"]
        else:
            parts.append(str(self.done))
        parts.append(_rate(rate))
        if finished or not (self.total and rate):
            parts.append(_clock(seconds))
        else:
            parts.append(f"{_clock(max(self.total - self.done, 0) / rate)} left")
        parts += [f"{name} {_number(value)}" for name, value in self.numbers.items()]
        return "  ".join(parts)[: shutil.get_terminal_size().columns - 1]


def _length(iterable):
    try:
        return len(iterable)
    except TypeError:
        return None


def _bar(share):
    eighths = int(share * WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (BLOCKS[rest] if full < WIDTH else "")).ljust(WIDTH)


def _rate(rate):
    return f"{rate:.1f}/s" if rate >= 1 or not rate else f"{1 / rate:.1f} s each"


def _clock(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _number(value):
    value = value.item() if hasattr(value, "item") else value
    return f"{value:.4g}" if isinstance(value, float) else str(value)
