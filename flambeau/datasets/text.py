"""Text that every machine has: the sources of Python's standard library, letter by letter."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import flambeau
from flambeau.utils.data import Dataset


def load_python_text(characters: int | None = 1_000_000) -> str:
    """Sources of the standard library, in the order of their names, so many characters of them.

    The text is that of the Python that runs, so it differs a little between versions.
    """
    if characters is not None and characters < 1:
        raise ValueError(f"load_python_text: characters must be positive, got {characters}")
    folder = Path(sysconfig.get_path("stdlib"))
    paths = sorted(path for path in folder.glob("*.py"))
    if not paths:
        raise FileNotFoundError(f"load_python_text: this Python has no sources in {folder}")
    pieces: list[str] = []
    total = 0
    for path in paths:
        pieces.append(path.read_text(encoding="utf-8", errors="replace"))
        total += len(pieces[-1])
        if characters is not None and total >= characters:
            break
    return "".join(pieces)[:characters]


class Characters(Dataset):
    """A text as examples: `block` characters, and the same shifted by one, as numbers.

    `vocabulary` are the characters; `encode` and `decode` turn texts into numbers and back.
    """

    def __init__(self, text: str, block: int, vocabulary: str | None = None) -> None:
        if block < 1 or len(text) <= block:
            raise ValueError(f"Characters: a text of {len(text)} characters has no examples of "
                             f"{block}")
        self.vocabulary = "".join(sorted(set(text))) if vocabulary is None else vocabulary
        self._numbers = {letter: n for n, letter in enumerate(self.vocabulary)}
        self.block, self.data = block, self.encode(text)

    def encode(self, text: str) -> flambeau.Tensor:
        """The numbers of a text's characters."""
        try:
            return flambeau.tensor([self._numbers[letter] for letter in text],
                                   dtype=flambeau.int64)
        except KeyError as error:
            raise ValueError(f"Characters.encode: {error.args[0]!r} is not in the vocabulary of "
                             f"{len(self.vocabulary)} characters") from None

    def decode(self, numbers: flambeau.Tensor | list[int]) -> str:
        """The text of some numbers."""
        listed = numbers.tolist() if isinstance(numbers, flambeau.Tensor) else numbers
        return "".join(self.vocabulary[n] for n in listed)

    def __len__(self) -> int:
        return len(self.data) - self.block

    def __getitem__(self, index: int) -> tuple[flambeau.Tensor, flambeau.Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"Characters: index {index} of {len(self)} examples")
        start = index % len(self)
        return (self.data[start:start + self.block],
                self.data[start + 1:start + self.block + 1])

    def __getitems__(self, indices: list[int]) -> list[tuple[flambeau.Tensor, flambeau.Tensor]]:
        starts = flambeau.tensor(list(indices))
        rows = self.data[starts[:, None] + flambeau.arange(self.block + 1)]
        return list(zip(rows[:, :-1], rows[:, 1:], strict=True))
