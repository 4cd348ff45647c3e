"""Python's numbers where numpy's are given: a size or a dimension that numpy has computed."""

from __future__ import annotations

from .lazily import np

_PYTHONS = frozenset((bool, int, float, complex, str, type(None)))


def plain(value):
    """Python's number for one of numpy's, inside tuples and lists too; all else as it is."""
    kind = type(value)
    if kind in _PYTHONS:
        return value
    if kind is tuple or kind is list:
        found = [plain(v) for v in value]
        return value if _same(value, found) else kind(found)
    return value.item() if isinstance(value, np.generic) else value


def plain_call(args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
    """The arguments of a call with Python's numbers for numpy's; None if there are none."""
    found, named = [plain(a) for a in args], {name: plain(v) for name, v in kwargs.items()}
    same = _same(args, found) and _same(kwargs.values(), named.values())
    return None if same else (tuple(found), named)


def _same(values, others) -> bool:
    return all(a is b for a, b in zip(values, others, strict=True))
