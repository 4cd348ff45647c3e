"""What an op takes and gives: `(Tensor x, *, float alpha=1.0) -> Tensor`, read or inferred."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import flambeau
from flambeau import Tensor, device, dtype

Number = typing.Union[int, float, bool]  # noqa: UP007  compared with annotations

_ARGUMENT = re.compile(r"(?P<type>.+?)\s+(?P<name>\w+)(?:\s*=\s*(?P<default>.*))?$")
_NOTHING = object()
#: kinds of arguments that are checked, and what may be given
_CHECKED = {"Tensor": Tensor, "int": int, "SymInt": int, "float": (int, float), "bool": bool,
            "str": str}


class Argument(NamedTuple):
    """One parameter of an op."""

    type: str
    name: str
    default_value: Any
    kwarg_only: bool
    text: str

    @property
    def mutated(self) -> bool:
        return "!" in self.type

    @property
    def plain(self) -> str:
        """The type without what it says of aliases."""
        return re.sub(r"\(\w+!?( -> \w+)?\)", "", self.type)


class Schema:
    """A name, parameters and results; it binds arguments and prints itself."""

    def __init__(self, text: str, space: str = ""):
        head, arrow, self.result = text.partition("->")
        name, bracket, inside = head.strip().partition("(")
        if not (arrow and bracket and inside.rstrip().endswith(")")):
            raise RuntimeError(f"Expected a schema like 'name(Tensor x) -> Tensor', got '{text}'")
        name = name.strip()
        if "::" in name:
            space, _, name = name.partition("::")
        self.space, self.result = space, self.result.strip()
        self.base, _, overload = name.partition(".")
        self.overload_name = overload
        self.arguments = list(_arguments(inside.rstrip()[:-1]))

    @property
    def name(self) -> str:
        return f"{self.space}::{self.base}" if self.space else self.base

    @property
    def is_mutable(self) -> bool:
        return any(a.mutated for a in self.arguments)

    @property
    def positional(self) -> list[Argument]:
        return [a for a in self.arguments if not a.kwarg_only]

    def __str__(self) -> str:
        parts = [a.text for a in self.positional]
        named = [a.text for a in self.arguments if a.kwarg_only]
        name = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        return f"{name}({', '.join([*parts, *(['*'] if named else []), *named])}) -> {self.result}"

    __repr__ = __str__

    def bind(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """(positional, keyword-only) as they were given, each in its place; torch's errors."""
        places = self.positional
        if len(args) > len(places):
            raise RuntimeError(f"{self.name}() expected at most {len(places)} argument(s) but "
                               f"received {len(args)} argument(s). Declaration: {self}")
        unknown = [k for k in kwargs if all(k != a.name for a in self.arguments)]
        if unknown:
            raise RuntimeError(f"Unknown keyword argument '{unknown[0]}' for operator "
                               f"'{self.name}'. Schema: {self}")
        given = dict(zip((a.name for a in places), args, strict=False))
        given |= kwargs
        for k, a in enumerate(self.arguments):
            if a.name in given:
                self._check(a, k, given[a.name])
            elif a.default_value is _NOTHING:
                raise RuntimeError(f"{self.name}() is missing value for argument '{a.name}'. "
                                   f"Declaration: {self}")
        last = max((k + 1 for k, a in enumerate(places) if a.name in given), default=0)
        return (tuple(given.get(a.name, a.default_value) for a in places[:last]),
                {a.name: given[a.name] for a in self.arguments if a.kwarg_only and a.name in given})

    def _check(self, a: Argument, place: int, value: Any) -> None:
        wanted: Any = _CHECKED.get(a.plain)
        if wanted is not None and not isinstance(value, wanted):
            raise RuntimeError(
                f"{self.name}() Expected a value of type '{a.plain}' for argument '{a.name}' but "
                f"instead found type '{type(value).__name__}'.\nPosition: {place}\nValue: {value}\n"
                f"Declaration: {self}")

    def filled(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The same with defaults for what was not given."""
        places = self.positional
        return ((*args, *(a.default_value for a in places[len(args):])),
                {a.name: kwargs.get(a.name, a.default_value) for a in self.arguments
                 if a.kwarg_only})


def _arguments(text: str):
    named, depth, start = False, 0, 0
    for k, letter in enumerate(text + ","):
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter != "," or depth:
            continue
        part, start = text[start:k].strip(), k + 1
        if part == "*":
            named = True
        elif part:
            found = _ARGUMENT.match(part)
            if found is None:
                raise RuntimeError(f"Expected a type and a name in a schema, got '{part}'")
            default = found["default"]
            yield Argument(found["type"], found["name"],
                           _NOTHING if default is None else _value(default), named, part)


def _value(text: str) -> Any:
    """A default as Python has it: a literal, or a word such as `float32`."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return getattr(flambeau, text, text)


# -- inferring -------------------------------------------------------------------------------------


def _kinds() -> dict:
    """Annotation -> type in a schema."""
    found: dict = {}
    for base, name, lists, optional_in_list, optional_list in (
            (Tensor, "Tensor", True, True, False), (int, "SymInt", True, False, True),
            (float, "float", True, False, True), (bool, "bool", True, False, True),
            (str, "str", False, False, False), (Number, "Scalar", True, False, False),
            (dtype, "ScalarType", False, False, False), (device, "Device", False, False, False)):
        optional = typing.Optional[base]  # type: ignore[valid-type]  # noqa: UP045
        found |= {base: name, optional: f"{name}?"}
        if lists:
            found |= dict.fromkeys(_sequences(base), f"{name}[]")
        if optional_in_list:
            found |= dict.fromkeys(_sequences(optional), f"{name}?[]")
        if optional_list:
            found |= {typing.Optional[s]: f"{name}[]?"  # noqa: UP045
                      for s in _sequences(base)}
    return found


def _sequences(kind: Any) -> tuple:
    return (typing.Sequence[kind], typing.List[kind],  # noqa: UP006
            types.GenericAlias(collections.abc.Sequence, (kind,)),
            types.GenericAlias(list, (kind,)))


PARAMETERS = _kinds()
RESULTS = {Tensor: "Tensor", list[Tensor]: "Tensor[]", int: "SymInt", float: "float",
           bool: "bool", Number: "Scalar", typing.List[Tensor]: "Tensor[]"}  # noqa: UP006


def infer_schema(prototype_function: Callable, /, *, mutates_args: str | Iterable[str],
                 op_name: str | None = None, tags: Any = ()) -> str:
    """The schema of a function with annotations.

    >>> def twice(x: Tensor, n: int = 2) -> Tensor: ...
    >>> infer_schema(twice, mutates_args=())
    '(Tensor x, SymInt n=2) -> Tensor'
    """
    told = inspect.signature(prototype_function)

    def refuse(what: str):
        raise ValueError(f"infer_schema(func): {what} Got func with signature {told})")

    if not isinstance(mutates_args, str):
        mutates_args = tuple(mutates_args)
    elif mutates_args != "unknown":
        raise ValueError("mutates_args must either be a sequence of the names of the arguments "
                         "that are mutated or the string 'unknown'. ")
    parts: list[str] = []
    for place, p in enumerate(told.parameters.values()):
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            refuse("We do not support positional-only args, varargs, or varkwargs.")
        if p.kind is p.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(_parameter(p, place, prototype_function, mutates_args, refuse))
    unseen = set() if mutates_args == "unknown" else set(mutates_args) - set(told.parameters)
    if unseen:
        refuse(f"{unseen} in mutates_args were not found in the custom op's signature. "
               "mutates_args should contain the names of all args that the custom op mutates, or "
               "just the string 'unknown' if you don't know.")
    result = _result(_real(told.return_annotation, prototype_function, refuse), refuse)
    return f"{op_name or ''}({', '.join(parts)}) -> {result}"


def _parameter(p: inspect.Parameter, place: int, function: Callable, mutates_args: Any,
               refuse: Callable) -> str:
    if p.annotation is p.empty:
        refuse(f"Parameter {p.name} must have a type annotation.")
    kind: Any = PARAMETERS.get(_real(p.annotation, function, refuse))
    if kind is None:
        refuse(f"Parameter {p.name} has unsupported type {p.annotation}. The valid types are: "
               f"{PARAMETERS.keys()}.")
    everything = mutates_args == "unknown"
    if (everything and kind.startswith("Tensor")) or (not everything and p.name in mutates_args):
        if not kind.startswith("Tensor"):
            refuse(f"Parameter {p.name} is in mutable_args but only Tensors or collections of "
                   "Tensors can be mutated")
        kind = f"Tensor(a{place}!){kind.removeprefix('Tensor')}"
    if p.default is p.empty:
        return f"{kind} {p.name}"
    if p.default is None or isinstance(p.default, (int, float, bool)):
        return f"{kind} {p.name}={p.default}"
    if isinstance(p.default, (str, device)):
        return f'{kind} {p.name}="{p.default}"'
    if isinstance(p.default, dtype):
        return f"{kind} {p.name}={str(p.default).removeprefix('torch.')}"
    return refuse(f"Parameter {p.name} has an unsupported default value type {type(p.default)}. "
                  "Please file an issue on GitHub so we can prioritize this.")


def _real(annotation: Any, function: Callable, refuse: Callable) -> Any:
    """An annotation that may have been written as a string."""
    if isinstance(annotation, types.UnionType):
        annotation = typing.Union[typing.get_args(annotation)]  # noqa: UP007
    if not isinstance(annotation, str):
        return annotation
    try:
        return _real(eval(annotation, function.__globals__), function, refuse)
    except Exception as error:
        return refuse(f"Unsupported type annotation {annotation}. It is not a type. ({error}).")


def _result(annotation: Any, refuse: Callable) -> str:
    if annotation is None:
        return "()"
    if annotation is inspect.Parameter.empty:
        refuse("No return type annotation was provided. Please add one.")
    parts = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else (annotation,)
    if any(part not in RESULTS for part in parts):
        refuse(f"Return has unsupported type {annotation}. The valid types are: {RESULTS}.")
    text = ", ".join(RESULTS[part] for part in parts)
    if parts == (annotation,):
        return text
    return f"(({text}))" if len(parts) == 1 else f"({text})"
