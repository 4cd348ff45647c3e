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


def _list_with_default(out_size, defaults):
    """A size for each of the last dimensions, with the default where None was given."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    last = defaults[-len(out_size):]
    return [d if v is None else v for v, d in zip(out_size, last, strict=True)]


def _reverse_repeat_tuple(values, times):
    """(1, 2) twice is (2, 2, 1, 1): the order in which `F.pad` takes sizes."""
    return tuple(value for value in reversed(values) for _ in range(times))


def consume_prefix_in_state_dict_if_present(state_dict, prefix):
    """Strip a prefix (DataParallel's "module.") off the names in a state_dict, in place."""
    own = prefix.replace(".", "")  # the metadata's name of the model inside the wrapper
    for names, whole in ((state_dict, None), (getattr(state_dict, "_metadata", {}), own)):
        for name in [n for n in names if n.startswith(prefix) or n == whole]:
            names[name[len(prefix):]] = names.pop(name)
