"""Launches in few bytes: a path is kept for as long as its function, to build other programs from.

What many launches have in common (code, layout, which arguments are what) is kept once; the rest is
numbers. A launch takes some 25 bytes this way, and 400 as an object with places of its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from .launch import Check, Finished, Launch, Live, Place

#: what an argument is -> the letter that stands for it; a place that has an offset has a capital
_ROOTS = {"buffer": "b", "outside": "o", "constant": "c"}
_LETTERS = "boc"
_NUMBER, _INTEGER, _OBJECT = "nix"
_PLACES = {letter: (kind, False) for kind, letter in _ROOTS.items()} | {
    letter.upper(): (kind, True) for kind, letter in _ROOTS.items()}
_SIMPLE = (str, int, bool, tuple)
_LARGE = 1 << 31    # an integer from here on is kept as an object


class Packed:
    """Launches, checks and finished launches in order; more can be added."""

    __slots__ = ("_heads", "_known", "_objects", "_words", "count")

    def __init__(self, steps: Iterable = ()):
        self.count = 0
        self._heads: list[tuple] = []       # what launches have in common
        self._objects: list = []            # arguments that are no small integers
        self._words = array("i")            # for each launch its head and its arguments
        self._known: dict[tuple, int] = {}  # where in those two lists something is
        self.extend(steps)

    def extend(self, steps: Iterable) -> None:
        for step in steps:
            self.append(step)

    def append(self, step) -> None:
        self._add(step)
        self.count += 1

    def mark(self) -> tuple[int, int]:
        """The end, as it is now."""
        return self.count, len(self._words)

    def cut(self, mark: tuple[int, int]) -> None:
        """Forget what was added since a mark was taken."""
        self.count, words = mark
        del self._words[words:]

    def close(self) -> Packed:
        """Nothing is added any more."""
        self._known = {}
        return self

    # -- writing ---------------------------------------------------------------------------------

    def _add(self, step) -> None:
        kind = type(step)
        if kind is Launch:
            letters, numbers = self._coded(step.args)
            self._write((Launch, letters, step.name, step.function, step.kernel, step.words,
                         step.written, step.updates, step.effect), numbers)
        elif kind is Check:
            letters, numbers = self._coded((step.least, step.most))
            self._write((Check, letters, step.low, step.high, step.refuse), numbers)
        else:
            self._write((Finished, "", step.output), [])
            self._add(step.first)
            self._add(step.then)

    def _write(self, head: tuple, numbers: list[int]) -> None:
        # Code and kernels by what they are, for they take long to compare. The list keeps all of
        # them, so that no other has the same address.
        key = tuple([p if p.__class__ in _SIMPLE else id(p) for p in head])
        at = self._known.get(key)
        if at is None:
            at = self._known[key] = len(self._heads)
            self._heads.append(head)
        self._words.append(at)
        self._words.extend(numbers)

    def _coded(self, args: tuple) -> tuple[str, list[int]]:
        """What each of the arguments is, and the numbers that say which."""
        letters: list[str] = []
        numbers: list[int] = []
        for a in args:
            kind = a.__class__
            if kind is Place and a.offset < _LARGE:
                letter = _ROOTS[a.root[0]]
                numbers.append(a.root[1])
                if a.offset:
                    letter = letter.upper()
                    numbers.append(a.offset)
            elif kind is Live:
                letter = _NUMBER
                numbers.append(a.index)
            elif kind is int and -_LARGE <= a < _LARGE:
                letter = _INTEGER
                numbers.append(a)
            else:
                letter = _OBJECT
                numbers.append(self._object(a))
            letters.append(letter)
        return "".join(letters), numbers

    def _object(self, a) -> int:
        key = ("integer", a) if a.__class__ is int else (id(a),)
        at = self._known.get(key)
        if at is None:
            at = self._known[key] = len(self._objects)
            self._objects.append(a)
        return at

    # -- reading ---------------------------------------------------------------------------------

    def first(self, count: int) -> list:
        """So many of them, from the first on; places that are the same are one object."""
        return self._from(0, count)

    def since(self, mark: tuple[int, int]) -> list:
        """Those that were added since a mark was taken."""
        return self._from(mark[1], self.count - mark[0])

    def _from(self, start: int, count: int) -> list:
        words, places = islice(self._words, start, None), {}  # type: ignore[var-annotated]
        return [self._read(words, places) for _ in range(count)]

    def all(self) -> list:
        return self.first(self.count)

    def _read(self, words: Iterator[int], places: dict[Any, Place]) -> Any:
        kind, letters, *rest = self._heads[next(words)]
        if kind is Finished:
            return Finished(self._read(words, places), self._read(words, places), *rest)
        args = tuple([self._argument(letter, words, places) for letter in letters])
        if kind is Check:
            return Check(*args, *rest)
        name, function, kernel, *others = rest
        return Launch(name, function, kernel, args, *others)

    def _argument(self, letter: str, words: Iterator[int], places: dict[Any, Place]) -> Any:
        number = next(words)
        if letter == _INTEGER:
            return number
        if letter == _OBJECT:
            return self._objects[number]
        if letter == _NUMBER:
            return Live(number)
        root, has_offset = _PLACES[letter]
        offset = next(words) if has_offset else 0
        key: Any = (letter, number, offset) if offset else (
            len(_ROOTS) * number + _LETTERS.index(letter))
        found = places.get(key)
        if found is None:
            found = places[key] = Place((root, number), offset)
        return found
