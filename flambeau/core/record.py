"""Values made of named parts, which never change.

What dataclasses give, without what they cost at import: they write and compile source text for
every class, and bring `inspect` along.
"""

from __future__ import annotations

from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True)
class Record:
    """A class whose annotations name its parts; equal to another of its class with equal parts.

    >>> class Point(Record):
    ...     x: int
    ...     y: int = 0
    >>> Point(3)
    Point(x=3, y=0)
    >>> Point(3) == Point(3, y=0)
    True
    """

    parts: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.parts = (*cls.parts, *cls.__annotations__)

    def __init__(self, *values: Any, **named: Any) -> None:
        cls, here = type(self), vars(self)
        for name, value in zip(cls.parts, values, strict=False):
            here[name] = value
        for name in cls.parts[len(values):]:
            if name in named:
                here[name] = named.pop(name)
            elif hasattr(cls, name):
                here[name] = getattr(cls, name)
            else:
                raise TypeError(f"{cls.__name__}: no value for {name}")
        if named or len(values) > len(cls.parts):
            raise TypeError(f"{cls.__name__} has parts {', '.join(cls.parts)}; "
                            f"{len(values)} values and {', '.join(named) or 'no names'} were given")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({inside})"

    def but(self, **changes: Any):
        """The same with some parts changed."""
        return type(self)(**{**vars(self), **changes})
