"""Modules and parameters in sequence, in lists and by name."""

import operator
from collections import OrderedDict
from collections.abc import Container as AnyContainer
from collections.abc import Iterable, Mapping
from itertools import chain, islice

from flambeau import Tensor, typename
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.tree import MODULE
from flambeau.nn.parameter import Parameter

__all__ = [
    "Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential",
]  # fmt: skip


class Container(Module):
    """Modules by keyword; the ancestor of the containers below."""

    def __init__(self, **kwargs):
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


def _position(container, index):
    """An index counted from the front."""
    index = operator.index(index)
    if not -len(container) <= index < len(container):
        raise IndexError(f"index {index} is out of range")
    return index % len(container)


class _ModuleSequence(Module):
    """Modules named 0, 1, 2 ..."""

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        values = self.__dict__
        return iter([values[name] for name, kind in self._registered.items() if kind == MODULE])

    def _name_at(self, index):
        return next(islice(self._modules, _position(self, index), None))

    def _keep(self, modules):
        """Replace all modules, numbering them anew."""
        self._modules = {str(i): module for i, module in enumerate(modules)}

    def __setitem__(self, index, module):
        if isinstance(index, slice):
            names = list(self._modules)[index]
            for name, replacement in zip(names, module, strict=True):
                setattr(self, name, replacement)
        else:
            setattr(self, self._name_at(index), module)

    def insert(self, index, module):
        """Insert a module before the one at index."""
        modules = list(self)
        if not -len(modules) <= index <= len(modules):
            raise IndexError(f"Index out of range: {index}")
        self._check_module(module)
        modules.insert(index, module)
        self._keep(modules)

    def append(self, module):
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        """Add modules at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, index):
        """Take a module out and return it."""
        module = self[index]
        del self[index]
        return module

    @staticmethod
    def _check_module(module):
        if not isinstance(module, Module):
            raise TypeError(f"{typename(module)} is not a Module subclass")


class Sequential(_ModuleSequence):
    """Modules applied one after the other."""

    def __init__(self, *args):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input):
        values = self.__dict__
        for name, kind in self._registered.items():
            if kind == MODULE:
                input = values[name](input)
        return input

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._name_at(index)]

    def __delitem__(self, index):
        names = list(self._modules)
        for name in names[index] if isinstance(index, slice) else [self._name_at(index)]:
            delattr(self, name)
        self._keep(self)

    def __add__(self, other):
        _check_sequential("add", other)
        return Sequential(*self, *other)

    def __iadd__(self, other):
        _check_sequential("add", other)
        return self.extend(list(other))

    def __mul__(self, other):
        return Sequential(*list(self) * _positive(other))

    __rmul__ = __mul__

    def __imul__(self, other):
        return self.extend(list(self) * (_positive(other) - 1))

    def insert(self, index, module):
        """Insert a module before the one at index."""
        super().insert(index, module)
        return self


def _check_sequential(verb, other):
    if not isinstance(other, Sequential):
        raise ValueError(
            f"{verb} operator supports only objects of Sequential class, "
            f"but {type(other)} is given."
        )


def _positive(times):
    if not isinstance(times, int):
        raise TypeError(f"unsupported operand type(s) for *: {Sequential} and {type(times)}")
    if times <= 0:
        raise ValueError(f"Non-positive multiplication factor {times} for {Sequential}")
    return times


class ModuleList(_ModuleSequence):
    """A list whose modules belong to the model."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self += modules

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._modules[self._name_at(index)]

    def __delitem__(self, index):
        modules = list(self)
        if not isinstance(index, slice):
            index = _position(self, index)
        del modules[index]
        self._keep(modules)

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return type(self)(chain(self, other))

    def extend(self, modules):
        """Add modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, "
                f"but got {type(modules).__name__}"
            )
        for i, module in enumerate(list(modules), len(self)):
            self.add_module(str(i), module)
        return self

    def insert(self, index, module):
        """Insert a module before the one at index."""
        modules = list(self)
        modules.insert(index, module)
        self._keep(modules)

    def __repr__(self):
        """Equal neighbours are shown once: (0-3): 4 x Linear(...)."""
        groups = []
        for i, text in enumerate(map(repr, self)):
            if groups and groups[-1][2] == text:
                groups[-1][1] = i
            else:
                groups.append([i, i, text])
        if not groups:
            return f"{self._get_name()}()"
        lines = []
        for first, last, text in groups:
            shown = f"({first}): {text}"
            if last > first:
                shown = f"({first}-{last}): {last - first + 1} x {text}"
            lines.append("  " + shown.replace("\n", "\n  "))
        return f"{self._get_name()}(\n" + "\n".join(lines) + "\n)"


class ModuleDict(Module):
    """A dictionary whose modules belong to the model."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        """Remove everything."""
        self._modules.clear()

    def pop(self, key):
        """Take a module out and return it."""
        module = self[key]
        del self[key]
        return module

    def keys(self):
        return self._modules.keys()

    def items(self):
        return self._modules.items()

    def values(self):
        return self._modules.values()

    def update(self, modules):
        """Add modules, replacing those of the same name."""
        for key, module in _pairs(modules, "ModuleDict.update"):
            self[key] = module


def _pairs(given, what):
    """(key, value) pairs from a mapping or from pairs."""
    if not isinstance(given, AnyContainer) and not isinstance(given, Iterable):
        raise TypeError(
            f"{what} should be called with an iterable of key/value pairs, "
            f"but got {type(given).__name__}"
        )
    if isinstance(given, (Mapping, ModuleDict, ParameterDict)):
        return list(given.items())
    pairs = []
    for position, pair in enumerate(given):
        if not isinstance(pair, Iterable):
            raise TypeError(
                f"{what} sequence element #{position} should be Iterable; is {type(pair).__name__}"
            )
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(
                f"{what} sequence element #{position} has length {len(pair)}; 2 is required"
            )
        pairs.append(pair)
    return pairs


# -- parameters ---------------------------------------------------------------------------------


def _as_parameter(value):
    """Tensors become parameters; anything else is kept as it is."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def _described(value, type_of):
    """'Parameter containing: [float32 of size 2x3]', or an object and its type."""
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    device = "" if value.device.type == "cpu" else f" ({value.device})"
    size = "x".join(str(n) for n in value.size())
    return f"{kind} containing: [{type_of(value)} of size {size}{device}]"


class ParameterList(Module):
    """A list whose tensors are parameters of the model."""

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __len__(self):
        return self._size

    def __iter__(self):
        return iter(self[i] for i in range(len(self)))

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(self[i] for i in range(*index.indices(len(self))))
        return getattr(self, str(_position(self, index)))

    def __setitem__(self, index, value):
        setattr(self, str(_position(self, index)), _as_parameter(value))

    def __iadd__(self, values):
        return self.extend(values)

    def append(self, value):
        """Add a value at the end."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values):
        """Add values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, "
                f"but got {type(values).__name__}"
            )
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self):
        shown = (_described(value, lambda tensor: tensor.dtype) for value in self)
        return "\n".join(f"  ({i}): {text}" for i, text in enumerate(shown))

    def __call__(self, *args, **kwargs):
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary whose tensors are parameters of the model."""

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _attribute(key):
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}'). Open an issue on github if you need "
                "non-string keys."
            )
        return key

    def __getitem__(self, key):
        return getattr(self, self._attribute(key))

    def __setitem__(self, key, value):
        name = self._attribute(key)
        self._keys[key] = None
        setattr(self, name, _as_parameter(value))

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, self._attribute(key))

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __reversed__(self):
        return reversed(list(self._keys))

    def __contains__(self, key):
        return key in self._keys

    def copy(self):
        """Another dictionary of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key, default=None):
        """The value of a key, which becomes the default if it was not there."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self):
        """Remove everything."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key):
        """Take a value out and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self):
        """Take the last pair out and return it."""
        key = next(reversed(list(self._keys)))
        return key, self.pop(key)

    def get(self, key, default=None):
        """The value of a key, or the default."""
        return self[key] if key in self._keys else default

    @classmethod
    def fromkeys(cls, keys, default=None):
        """A dictionary with the same value for every key."""
        return cls((key, default) for key in keys)

    def keys(self):
        return self._keys.keys()

    def items(self):
        return [(key, self[key]) for key in self._keys]

    def values(self):
        return [self[key] for key in self._keys]

    def update(self, parameters):
        """Add values, replacing those of the same name; those of a plain dict by their names."""
        pairs = list(_pairs(parameters, "ParametersDict.update"))
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs.sort(key=operator.itemgetter(0))
        for key, value in pairs:
            self[key] = value

    def extra_repr(self):
        shown = ((key, _described(value, Tensor.type)) for key, value in self.items())
        return "\n".join(f"  ({key}): {text}" for key, text in shown)

    def __call__(self, *args, **kwargs):
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other):
        return self.copy()._updated(other)

    def __ror__(self, other):
        return ParameterDict(dict(other.items()))._updated(self)

    def __ior__(self, other):
        return self._updated(other)

    def _updated(self, other):
        self.update(other)
        return self
