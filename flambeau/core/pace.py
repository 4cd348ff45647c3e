"""The numbers of an optimizer's step, as a function of how many steps there were.

What gives them is plain Python that is run once on a symbolic count; if all it does is arithmetic,
the same arithmetic is left as one short function.
"""

from __future__ import annotations

from collections.abc import Callable

_STEP = "step"


class Count:
    """How many steps there were, or a number that depends on it: (sign, left, right) of others."""

    def __init__(self, tree):
        self.tree = tree

    def __bool__(self):
        raise TypeError("a formula has no truth value")

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: self.__bool__()
    __hash__ = None  # type: ignore[assignment]


def tree_of(value):
    """The formula of a number, which is itself where it does not depend on the count."""
    if isinstance(value, Count):
        return value.tree
    if type(value) not in (int, float):
        raise TypeError("a formula has numbers in it, and nothing else")
    return value


def _form(sign: str, swapped: bool):
    def form(self, other):
        pair = self.tree, tree_of(other)
        return Count((sign, *(pair[::-1] if swapped else pair)))
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


def pace(numbers: Callable, options: dict) -> tuple[list[str], dict] | None:
    """What `numbers(counts, options)` gives for a symbolic count, and the names of the options that
    it depends on; None if it is more than arithmetic."""
    read = _Read(options)
    counts = {_STEP: (t := Count(_STEP))}
    try:
        found = numbers(counts, read)
    except TypeError:
        return None
    names = list(read.names)
    if len(counts) > 1 or counts[_STEP] is not t or not all(
            name in options and _lasts(options[name]) for name in names):
        return None
    return names, found


def written(tree, constants: list, write: Callable[[str, str, str], str]) -> str:
    """A formula as text: `write` joins two texts by a sign. Numbers are named c0, c1, ... by where
    they are put among the constants, and the count is t."""
    if tree is _STEP:
        return "t"
    if type(tree) is tuple:
        sign, left, right = tree
        return write(sign, written(left, constants, write), written(right, constants, write))
    constants.append(tree)
    return f"c{len(constants) - 1}"


def formula(values) -> Callable[[float], tuple]:
    """A function from the count to these numbers."""
    constants: list = []
    texts = [written(tree_of(v), constants, lambda sign, a, b: f"({a} {sign} {b})") + ", "
             for v in values]
    names = ", ".join(f"c{k}=c{k}" for k in range(len(constants)))
    return eval(f"lambda t, {names}: ({''.join(texts)})",
                {f"c{k}": value for k, value in enumerate(constants)})
