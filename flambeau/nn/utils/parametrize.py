"""Parameters that are functions of other parameters.

A parametrized module gets a class of its own, in which the parameter is a property; what it is
computed from lives in `module.parametrizations.<name>`.
"""

import copy
from contextlib import contextmanager

from flambeau import Tensor
from flambeau.nn.modules.container import ModuleDict, ModuleList
from flambeau.nn.parameter import Parameter

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]  # fmt: skip

_cache = None  # (module id, tensor name) -> tensor, inside `cached()`
_depth = 0


@contextmanager
def cached():
    """Within this context each parametrized tensor is computed once."""
    global _cache, _depth
    _depth += 1
    _cache = {} if _cache is None else _cache
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            _cache = None


class ParametrizationList(ModuleList):
    """The functions one tensor goes through, and the original tensors they start from."""

    def __init__(self, modules, original, unsafe=False):
        modules = list(modules)
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        new = self._inverted(original)
        if not isinstance(new, (Tensor, list, tuple)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors "
                f"(list, tuple...). Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor and original.dtype != new.dtype and not unsafe:
            raise ValueError(
                "When `right_inverse` outputs one tensor, it may not change the dtype: "
                f"original.dtype: {original.dtype}, right_inverse(original).dtype: {new.dtype}"
            )
        values = [new] if self.is_tensor else new
        for name, value in zip(self._original_names(), values, strict=True):
            self._keep_original(name, original if self.is_tensor else value, value, original)
        if not unsafe:
            self._check_result(original)

    def _original_names(self):
        if self.is_tensor:
            return ["original"]
        return [f"original{i}" for i in range(self.ntensors)]

    def _keep_original(self, name, holder, value, original):
        """Hold what is learned: the tensor itself where that is possible."""
        if holder is not value:
            holder = holder.detach() if not isinstance(holder, Parameter) else holder
            holder.data = value.detach()
        if isinstance(original, Parameter):
            if not isinstance(holder, Parameter):
                holder = Parameter(holder, original.requires_grad)
            self.register_parameter(name, holder.requires_grad_(original.requires_grad))
        else:
            self.register_buffer(name, holder)

    def _check_result(self, original):
        result = self()
        if not isinstance(result, Tensor):
            raise ValueError(
                f"A parametrization must return a tensor. Got {type(result).__name__}."
            )
        for what in ("dtype", "shape"):
            given, wanted = getattr(result, what), getattr(original, what)
            if given != wanted:
                raise ValueError(
                    f"Registering a parametrization may not change the {what} of the tensor, "
                    f"unless `unsafe` flag is enabled.\nunparametrized {what}: {wanted}\n"
                    f"parametrized {what}: {given}"
                )

    def _inverted(self, value):
        for parametrization in reversed(list(self)):
            if hasattr(parametrization, "right_inverse"):
                value = parametrization.right_inverse(value)
        return value

    def right_inverse(self, value):
        """Set the originals so that the result is this value, as far as it can be."""
        for parametrization in self:
            if not hasattr(parametrization, "right_inverse"):
                raise RuntimeError(f"parametrization {type(parametrization).__name__} does not "
                                   "implement right_inverse.")
        value = self._inverted(value)
        values = [value] if self.is_tensor else value
        if len(values) != self.ntensors:
            raise ValueError(
                "'right_inverse' must return a sequence of tensors of length "
                f"{self.ntensors}. Got {len(values)}."
            )
        for name, tensor in zip(self._original_names(), values, strict=True):
            original = getattr(self, name)
            if tensor.dtype != original.dtype:
                raise ValueError(
                    f"Tensor {name} has dtype {original.dtype}, while right_inverse gives "
                    f"{tensor.dtype}"
                )
            original.data = tensor.detach().clone()

    def forward(self):
        originals = [getattr(self, name) for name in self._original_names()]
        first, *rest = self
        value = first(*originals)
        for parametrization in rest:
            value = parametrization(value)
        return value


def is_parametrized(module, tensor_name=None):
    """Whether a module, or one tensor of it, is parametrized."""
    parametrizations = module.__dict__.get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def type_before_parametrizations(module):
    """The class a module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


# -- the class of a parametrized module ------------------------------------------------------------


def _refuse_pickling(self):
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). "
        "Save module.state_dict() and load it into a module parametrized in the same way."
    )


def _copied(self, memo):
    """A copy has a class of its own, as its parametrizations may change."""
    cls = _parametrized_class(type(self).__bases__[0])
    for name in self.parametrizations:
        _add_property(cls, name)
    replica = cls.__new__(cls)
    memo[id(self)] = replica
    replica.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return replica


def _parametrized_class(base):
    return type(
        f"Parametrized{base.__name__}",
        (base,),
        {"__getstate__": _refuse_pickling, "__deepcopy__": _copied},
    )


def _add_property(cls, name):
    def get(self):
        if _cache is None:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def set(self, value):
        self.parametrizations[name].right_inverse(value)

    setattr(cls, name, property(get, set))


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Make a parameter or buffer of a module the result of a parametrization."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        _append(module, tensor_name, parametrization, unsafe)
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    original = getattr(module, tensor_name)
    parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.__class__ = _parametrized_class(type(module))
        module.parametrizations = ModuleDict()
    _add_property(type(module), tensor_name)
    module.parametrizations[tensor_name] = parametrizations
    return module


def _append(module, tensor_name, parametrization, unsafe):
    """Add a function after those a tensor already goes through."""
    chain = module.parametrizations[tensor_name]
    current = getattr(module, tensor_name)
    if not unsafe:
        result = parametrization(current)
        if not isinstance(result, Tensor):
            raise ValueError(
                f"A parametrization must return a tensor. Got {type(result).__name__}."
            )
        for what in ("dtype", "shape"):
            if getattr(result, what) != getattr(current, what):
                raise ValueError(
                    f"Registering a parametrization may not change the {what} of the tensor, "
                    f"unless the `unsafe` flag is enabled.\ncurrent {what}: "
                    f"{getattr(current, what)}\nnew {what}: {getattr(result, what)}"
                )
    chain.append(parametrization)
    chain.unsafe |= unsafe


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Make a tensor an ordinary one again, as it is now or as it was originally."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    chain = module.parametrizations[tensor_name]
    if not chain.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    tensor = chain.original if chain.is_tensor else None
    if leave_parametrized:
        value = getattr(module, tensor_name).detach()
        if tensor is None:
            learned = any(t.requires_grad for t in chain.parameters())
            tensor = Parameter(value, learned) if chain._parameters else value
        else:
            tensor.data = value
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(tensor, Parameter):
        module.register_parameter(tensor_name, tensor)
    else:
        module.register_buffer(tensor_name, tensor)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def transfer_parametrizations_and_params(from_module, to_module, tensor_name=None):
    """Give a module the parametrizations, and the tensors they start from, of another."""
    if not is_parametrized(from_module):
        return to_module
    for name in [tensor_name] if tensor_name is not None else list(from_module.parametrizations):
        if not hasattr(to_module, name):
            value = getattr(from_module, name)
            setattr(to_module, name, Parameter(value.detach().clone()))
        source = from_module.parametrizations[name]
        for parametrization in source:
            register_parametrization(to_module, name, parametrization, unsafe=source.unsafe)
        target = to_module.parametrizations[name]
        for original in source._original_names():
            setattr(target, original, getattr(source, original))
    return to_module
