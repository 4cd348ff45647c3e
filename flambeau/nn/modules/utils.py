"""Arguments given once or once per dimension, under the names other code imports."""

import collections.abc
from itertools import repeat


def _ntuple(n, name="parse"):
    def parse(value):
        if isinstance(value, collections.abc.Iterable):
            return tuple(value)
        return tuple(repeat(value, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(values, times):
    """(1, 2) twice is (2, 2, 1, 1): the order in which `F.pad` takes sizes."""
    return tuple(value for value in reversed(values) for _ in range(times))
