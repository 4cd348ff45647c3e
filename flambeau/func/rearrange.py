"""Dimensions split, moved and joined as a pattern says: "b (h s) w -> b h (w s)"."""

from __future__ import annotations

import functools
import math
import re

import flambeau
from flambeau import Tensor

REST = "..."
_TOKEN = re.compile(r"\s*(\(|\)|\.\.\.|…|[^\s()]+)")


def rearrange(tensor, pattern: str, **axes_lengths: int) -> Tensor:
    """The elements in the order and shape of the pattern's right side.

    >>> import flambeau as torch
    >>> torch.func.rearrange(torch.zeros(2, 30, 40, 3), "b (h s) w c -> b c h (w s)", s=2).shape
    torch.Size([2, 3, 15, 80])
    """
    tensor = tensor if isinstance(tensor, Tensor) else flambeau.stack(tuple(tensor))
    left, right = _sides(pattern, tuple(axes_lengths))
    groups = _expanded(left, pattern, tensor.dim())
    sizes = _sizes(groups, tuple(tensor.shape), axes_lengths, pattern)
    flat = [name for group in groups for name in group]
    rest = [name for name in flat if isinstance(name, int)]
    wanted = [group for each in right for group in ([(n,) for n in rest] if each == (REST,) else [
        tuple(n for name in each for n in (rest if name == REST else (name,)))])]
    order = [flat.index(name) for group in wanted for name in group]
    split = tensor.reshape([sizes[name] for name in flat]).permute(order)
    return split.reshape([math.prod(sizes[name] for name in group) for group in wanted])


@functools.lru_cache(256)
def _sides(pattern: str, given: tuple[str, ...]):
    """The groups of names on both sides, which must have the same names."""
    if pattern.count("->") != 1:
        raise ValueError(f"Pattern must contain exactly one '->' separator, got '{pattern}'")
    left, right = (_groups(side, pattern) for side in pattern.split("->"))
    names = [{n for group in side for n in group} for side in (left, right)]
    if names[0] != names[1]:
        raise ValueError("Identifiers only on one side of rearrange expression (should be on both)"
                         f": {names[0] ^ names[1]}, of '{pattern}'")
    unknown = set(given) - names[0]
    if unknown:
        raise ValueError(f"Identifiers not found in rearrange expression: {unknown}, of "
                         f"'{pattern}'")
    return left, right


def _groups(side: str, pattern: str) -> list[tuple[str, ...]]:
    """Each dimension of a side as the names it is made of; 1 is made of none."""
    groups: list[tuple[str, ...]] = []
    joined: list[str] | None = None
    seen: set[str] = set()
    for token in _TOKEN.findall(side):
        token = REST if token == "…" else token
        if token == "(" and joined is None:
            joined = []
        elif token == ")" and joined is not None:
            groups.append(tuple(joined))
            joined = None
        elif token in "()":
            raise ValueError(f"Brackets are not balanced or nested in '{pattern}'")
        else:
            _check_name(token, seen, pattern)
            names = () if token == "1" else (token,)
            if joined is None:
                groups.append(names)
            else:
                joined += names
    if joined is not None:
        raise ValueError(f"Brackets are not balanced in '{pattern}'")
    return groups


def _check_name(token: str, seen: set[str], pattern: str) -> None:
    if token in seen:
        raise ValueError(f"Identifier '{token}' occurs twice on a side of '{pattern}'")
    if token not in ("1", REST):
        if token.isdigit():
            raise ValueError(f"Non-unitary anonymous axes are not supported, got {token} in "
                             f"'{pattern}'")
        if not token.isidentifier():
            raise ValueError(f"'{token}' in '{pattern}' is no identifier")
    if token != "1":
        seen.add(token)


def _expanded(groups, pattern: str, rank: int) -> list[tuple]:
    """The left side with numbers for the dimensions that `...` stands for."""
    fixed = len(groups) - ((REST,) in groups)
    if fixed > rank or (fixed != rank and (REST,) not in groups):
        raise ValueError(f"Number of dimensions in pattern ({fixed}) must be "
                         f"{'less than or ' if (REST,) in groups else ''}equal to the number of "
                         f"dimensions in the tensor ({rank})")
    out: list[tuple] = []
    for group in groups:
        out += [(k,) for k in range(rank - fixed)] if group == (REST,) else [group]
        if group != (REST,) and REST in group:
            raise ValueError(f"'...' in brackets on the left side of '{pattern}'")
    return out


def _sizes(groups, shape: tuple[int, ...], lengths: dict, pattern: str) -> dict:
    """The size of each name; one of each dimension may be left to be worked out."""
    sizes: dict = dict(lengths)
    for group, size in zip(groups, shape, strict=True):
        open_names = [name for name in group if name not in sizes]
        known = math.prod(sizes[name] for name in group if name in sizes)
        if len(open_names) > 1 or (not known and open_names):
            raise ValueError(f"The sizes of {open_names} in '{pattern}' cannot be told: give all "
                             "but one by name")
        if open_names and size % known == 0:
            sizes[open_names[0]] = size // known
        elif open_names or known != size:
            raise ValueError(f"A dimension of size {size} cannot be split as ({' '.join(group)}) "
                             f"of '{pattern}' says, with {lengths or 'no lengths given'}")
    return sizes
