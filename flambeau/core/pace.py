"""The numbers of an optimizer's step, as a function of how many steps there were.

What gives them is plain Python that is run once on a symbolic count; if all it does is arithmetic,
the same arithmetic is left as one short function.
"""

from __future__ import annotations

from collections.abc import Callable

_STEP = "step"


class Count:
    """How many steps there were, or a number that depends on it: a formula, as text."""

    def __init__(self, text: str, constants: dict):
        self.text, self.constants = text, constants

    def __bool__(self):
        raise TypeError("a formula has no truth value")

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: self.__bool__()
    __hash__ = None  # type: ignore[assignment]


def _text(value, constants: dict) -> str:
    """A number as it is written in a formula; those that are known have names there."""
    if isinstance(value, Count):
        return value.text
    if type(value) not in (int, float):
        raise TypeError("a formula has numbers in it, and nothing else")
    name = f"c{len(constants)}"
    constants[name] = value
    return name


def _form(sign: str, swapped: bool):
    def form(self, other):
        pair = self.text, _text(other, self.constants)
        return Count(f"({f' {sign} '.join(pair[::-1] if swapped else pair)})", self.constants)
    return form


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"), ("pow", "**")):
    setattr(Count, f"__{_name}__", _form(_sign, False))
    setattr(Count, f"__r{_name}__", _form(_sign, True))


class _Read(dict):
    """Options, and which of them are looked at."""

    def __init__(self, options: dict):
        super().__init__(options)
        self.names: dict[str, None] = {}

    def __getitem__(self, name):
        self.names[name] = None
        return super().__getitem__(name)

    def get(self, name, default=None):
        self.names[name] = None
        return super().get(name, default)


def _lasts(value) -> bool:
    """Whether an option cannot change without being set anew."""
    if type(value) is tuple:
        return all(map(_lasts, value))
    return value is None or type(value) in (bool, int, float, str)


def pace(numbers: Callable, options: dict) -> tuple[list[str], dict, dict] | None:
    """What `numbers(counts, options)` gives for a symbolic count, the names of the options that it
    depends on, and the constants in its formulas; None if it is more than arithmetic."""
    constants: dict = {}
    read = _Read(options)
    counts = {_STEP: (t := Count("t", constants))}
    try:
        found = numbers(counts, read)
    except TypeError:
        return None
    names = list(read.names)
    if len(counts) > 1 or counts[_STEP] is not t or not all(
            name in options and _lasts(options[name]) for name in names):
        return None
    return names, found, constants


def formula(values, constants: dict) -> Callable[[float], tuple]:
    """A function from the count to these numbers."""
    texts = [_text(value, constants) for value in values]
    names = ", ".join(f"{name}={name}" for name in constants)
    return eval(f"lambda t, {names}: ({''.join(text + ', ' for text in texts)})", constants)
