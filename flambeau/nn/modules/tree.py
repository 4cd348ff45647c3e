"""The tree a module is: its parameters, buffers and children, by name.

Values live in the instance `__dict__`, so that reading one is an ordinary attribute lookup;
`_registered` says which names are what. `_parameters`, `_buffers` and `_modules` are views of both.
"""

from collections.abc import MutableMapping

from flambeau import Tensor, typename
from flambeau.assemble import module_changes
from flambeau.nn.modules.handles import HookTable
from flambeau.nn.parameter import Buffer, Parameter

PARAMETER, BUFFER, MODULE = "parameter", "buffer", "module"
VIEWS = {"_parameters": PARAMETER, "_buffers": BUFFER, "_modules": MODULE}

# Values of these types never change.
_SCALARS = frozenset((bool, int, float, complex, str, bytes, type(None)))

# Called with (module, name, value) whenever anything of the kind is registered anywhere.
REGISTRATION_HOOKS = {kind: HookTable() for kind in VIEWS.values()}


class Slots(MutableMapping):
    """One kind of named thing in a module, as a dictionary that writes through."""

    __slots__ = ("kind", "registered", "values_by_name")

    def __init__(self, module, kind):
        self.kind, self.registered = kind, module._registered
        self.values_by_name = module.__dict__

    def __getitem__(self, name):
        if self.registered.get(name) != self.kind:
            raise KeyError(name)
        return self.values_by_name[name]

    def __setitem__(self, name, value):
        if self.registered.get(name, self.kind) != self.kind:
            del self.registered[name]  # what changes kind comes last in its new one
        self.registered[name] = self.kind
        self.values_by_name[name] = value

    def __delitem__(self, name):
        if self.registered.get(name) != self.kind:
            raise KeyError(name)
        del self.registered[name], self.values_by_name[name]

    def __iter__(self):
        return iter([name for name, kind in self.registered.items() if kind == self.kind])

    def __len__(self):
        return sum(kind == self.kind for kind in self.registered.values())

    def __contains__(self, name):
        return self.registered.get(name) == self.kind

    def __repr__(self):
        return repr(dict(self))

    def __or__(self, other):
        return {**self, **other}

    def __ror__(self, other):
        return {**other, **self}

    def copy(self):
        return {name: self.values_by_name[name] for name in self}

    def keys(self):
        return self.copy().keys()  # of a dictionary, as programs that go backwards expect

    def values(self):
        return self.copy().values()

    def items(self):
        return self.copy().items()


def _view(kind):
    def get(module):
        return Slots(module, kind)

    def replace(module, values):
        slots, values = Slots(module, kind), dict(values)
        slots.clear()
        slots.update(values)

    return property(get, replace, doc=f"Every {kind} registered here, by name.")


def _asking(module, name):
    """What is registered is found by `__getattr__` where a class has one of its own."""
    if name in object.__getattribute__(module, "__dict__").get("_registered", ()):
        raise AttributeError(name)
    return object.__getattribute__(module, name)


def registered(module, kind):
    """(name, value) of everything of a kind that a module itself has."""
    own = module.__dict__
    return [(name, own[name]) for name, what in own["_registered"].items() if what == kind]


def _parameters_of(module):
    return registered(module, PARAMETER)


def _buffers_of(module):
    return registered(module, BUFFER)


class Tree:
    """Registration, lookup and traversal."""

    _parameters = _view(PARAMETER)
    _buffers = _view(BUFFER)
    _modules = _view(MODULE)

    # -- attributes -----------------------------------------------------------------------

    def __setattr__(self, name, value):
        if isinstance(value, Tensor) and self.__dict__.get(name) is value and (
                name in self.__dict__.get("_registered", ())):
            return  # what `self.count += 1` leaves
        if type(value) not in _SCALARS or self.__dict__.get(name, self) is not value:
            module_changes[0] += 1  # not what is as it was, as after `train()` in every step
        if isinstance(value, (Tensor, Tree)) or name in self.__dict__.get("_registered", ()):
            self.__assign(name, value)
        else:
            object.__setattr__(self, name, value)

    def __assign(self, name, value):
        """Set what is registered, or is to be."""
        kind = self.__dict__.get("_registered", {}).get(name)
        if isinstance(value, Parameter):
            self.__vacate(name, PARAMETER)
            self.register_parameter(name, value)
        elif kind == PARAMETER:
            self.__replace(name, value, kind, "torch.nn.Parameter or None")
        elif isinstance(value, Tree):
            self.__vacate(name, MODULE)
            self.__register(name, value, MODULE)
        elif kind == MODULE:
            self.__replace(name, value, kind, "torch.nn.Module or None", "child module")
        elif isinstance(value, Buffer):
            self.__vacate(name, BUFFER)
            self.register_buffer(name, value, value.persistent)
        elif kind == BUFFER:
            self.__replace(name, value, kind, "torch.nn.Buffer, torch.Tensor or None",
                          accepts=Tensor)
        else:
            object.__setattr__(self, name, value)

    def __replace(self, name, value, kind, wanted, role=None, accepts=()):
        if value is not None and not isinstance(value, accepts):
            raise TypeError(
                f"cannot assign '{typename(value)}' as {role or kind} '{name}' "
                f"({wanted} expected)"
            )
        self.__register(name, value, kind)

    def __vacate(self, name, kind):
        """Make room for something registered where something else may have been."""
        if "_registered" not in self.__dict__:
            plural = {PARAMETER: "parameters", BUFFER: "buffers", MODULE: "module"}[kind]
            raise AttributeError(f"cannot assign {plural} before Module.__init__() call")
        if self._registered.get(name) != kind:
            self._registered.pop(name, None)
            self._non_persistent_buffers_set.discard(name)
            self.__dict__.pop(name, None)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__getattr__" in vars(cls) and "__getattribute__" not in vars(cls):
            cls.__getattribute__ = _asking

    def __getattr__(self, name):
        if name in self.__dict__.get("_registered", ()):  # asked for by this method's own name
            return self.__dict__[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name):
        module_changes[0] += 1
        if name in self._registered:
            del self._registered[name], self.__dict__[name]
            self._non_persistent_buffers_set.discard(name)
        else:
            object.__delattr__(self, name)

    def __dir__(self):
        return [name for name in super().__dir__() if name.isidentifier()]

    # -- registration ---------------------------------------------------------------------

    def __register(self, name, value, kind):
        for hook in REGISTRATION_HOOKS[kind].values():
            replacement = hook(self, name, value)
            value = value if replacement is None else replacement
        Slots(self, kind)[name] = value

    def __check_name(self, name, kind):
        if "_registered" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if self._registered.get(name) != kind and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name, param):
        """Add a parameter; `None` reserves the name."""
        self.__check_name(name, PARAMETER)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{typename(param)}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, "
                "compute the value in the forward() method."
            )
        self.__register(name, param, PARAMETER)

    def register_buffer(self, name, tensor, persistent=True):
        """Add a tensor that is moved and, if persistent, saved with the module."""
        self.__check_name(name, BUFFER)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' "
                "(torch.nn.Buffer, torch.Tensor or None required)"
            )
        self.__register(name, tensor, BUFFER)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name, module):
        """Add a child."""
        if module is not None and not isinstance(module, Tree):
            raise TypeError(f"{typename(module)} is not a Module subclass")
        self.__check_name(name, MODULE)
        self.__register(name, module, MODULE)

    register_module = add_module

    # -- lookup by dotted path --------------------------------------------------------------

    def get_submodule(self, target):
        """The descendant at a dotted path; the module itself at ''."""
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Tree):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target, module, strict=False):
        """Put a module at a dotted path; with `strict`, only where one already is."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Tree):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Tree):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target):
        """The parameter at a dotted path."""
        return self.__at(target, lambda _, value: isinstance(value, Parameter), "an nn.Parameter")

    def get_buffer(self, target):
        """The buffer at a dotted path."""
        return self.__at(target, lambda owner, _: owner == BUFFER, "a buffer")

    def __at(self, target, accepts, wanted):
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")
        value = getattr(owner, name)
        if not accepts(owner._registered.get(name), value):
            raise AttributeError(f"`{name}` is not {wanted}")
        return value

    # -- traversal ------------------------------------------------------------------------

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """Yield (path, module) for the module and all its descendants, parents first."""
        found = []
        self.__collect(found, set() if memo is None else memo, prefix, remove_duplicate)
        yield from found

    def __collect(self, found, memo, prefix, remove_duplicate):
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        found.append((prefix, self))
        own = self.__dict__
        for name, kind in own["_registered"].items():
            if kind == MODULE and own[name] is not None:
                path = f"{prefix}.{name}" if prefix else name
                own[name].__collect(found, memo, path, remove_duplicate)

    def _named_members(self, get_members_fn, prefix="", recurse=True, remove_duplicate=True):
        """Yield (path, value) of what a function finds in modules, here and below."""
        found, seen = [(prefix, self)], set()
        if recurse:
            found = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in found:
            for name, value in get_members_fn(module):
                if value is not None and value not in seen:
                    if remove_duplicate:
                        seen.add(value)
                    yield (f"{path}.{name}" if path else name), value

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """Yield (path, parameter), each parameter once."""
        return self._named_members(_parameters_of, prefix, recurse, remove_duplicate)

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """Yield (path, buffer), each buffer once."""
        return self._named_members(_buffers_of, prefix, recurse, remove_duplicate)

    def named_children(self):
        """Yield (name, child), each child once."""
        seen = set()
        for name, child in registered(self, MODULE):
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def parameters(self, recurse=True):
        """Yield every parameter once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def buffers(self, recurse=True):
        """Yield every buffer once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def children(self):
        """Yield every child once."""
        for _, child in self.named_children():
            yield child

    def modules(self):
        """Yield the module and its descendants, each once."""
        for _, module in self.named_modules():
            yield module

    # -- copying and pickling -----------------------------------------------------------------

    def __getstate__(self):
        state = self.__dict__.copy()
        registered = state.pop("_registered", {})
        slots = {kind: {} for kind in VIEWS.values()}
        for name, kind in registered.items():
            slots[kind][name] = state.pop(name)
        return state | {view: slots[kind] for view, kind in VIEWS.items()}

    def __setstate__(self, state):
        own = self.__dict__
        own.setdefault("_registered", {})
        own.setdefault("_non_persistent_buffers_set", set())
        own.update((name, value) for name, value in state.items() if name not in VIEWS)
        for view in VIEWS:
            getattr(self, view).update(state.get(view, {}))
