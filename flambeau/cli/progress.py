"""A progress bar with figures: redrawn in place on a terminal, a few plain lines elsewhere."""

import os
import shutil
import sys
import time
from typing import IO, Self

BAR = 24
REDRAW_SECONDS = 0.05
PLAIN_LINES = 10


class Progress:
    """`with Progress(total) as bar:` then `bar.advance("loss 0.3")` once per step."""

    def __init__(self, total: int, stream: IO[str] | None = None) -> None:
        self.total = total
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.done = 0
        self.shown = 0.0

    def __enter__(self) -> Self:
        self.began = time.perf_counter()
        return self

    def __exit__(self, *failure: object) -> None:
        if self.live:
            self.stream.write("\n")
            self.stream.flush()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def advance(self, figures: str) -> None:
        """One more step is done; `figures` is what to show beside the bar."""
        self.done += 1
        if self.live:
            self._redraw(figures)
        elif self.done * PLAIN_LINES // self.total > (self.done - 1) * PLAIN_LINES // self.total:
            self.stream.write(f"{self.done:>6}/{self.total}  {figures}  {self._pace()}\n")
            self.stream.flush()

    def say(self, text: str) -> None:
        """Lines that stay, above the bar."""
        self.stream.write(("\r\033[K" if self.live else "") + text + "\n")
        self.stream.flush()

    def _redraw(self, figures: str) -> None:
        now = self.seconds
        if now - self.shown < REDRAW_SECONDS and self.done < self.total:
            return
        self.shown = now
        filled = BAR * self.done // self.total
        line = f"[{'=' * filled}{' ' * (BAR - filled)}] {figures}  {self._pace()}"
        self.stream.write("\r\033[K" + line[: shutil.get_terminal_size().columns - 1])
        self.stream.flush()

    def _pace(self) -> str:
        pace = self.done / max(self.seconds, 1e-9)
        return f"{pace:,.0f} steps/s  ETA {(self.total - self.done) / pace:.1f} s"
