"""Modules that take their input sizes from the first input they see."""

from flambeau.nn.modules.state import own_state
from flambeau.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Goes before a module class whose parameters may be uninitialized.

    Subclasses say `cls_to_become`, what they are once initialized, and `initialize_parameters`.
    """

    cls_to_become: type | None = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def has_uninitialized_params(self):
        """Whether any parameter or buffer still lacks a shape."""
        owned = [*self._parameters.values(), *self._buffers.values()]
        return any(is_lazy(tensor) for tensor in owned)

    def initialize_parameters(self, *args, **kwargs):
        """Give every parameter the shape that these inputs ask for."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def _lazy_load_hook(
        self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors
    ):
        """A shape may also come from a saved state."""
        for name, tensor in own_state(self).items():
            given = state_dict.get(prefix + name)
            if given is not None and is_lazy(tensor) and not is_lazy(given):
                tensor.materialize(given.shape)

    def _infer_parameters(self, module, args, kwargs=None):
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(
                f"module {self._get_name()} has not been fully initialized after its first input"
            )
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """What has no shape yet is saved as it is."""
        for name, tensor in own_state(self).items():
            plain = keep_vars or is_lazy(tensor)
            destination[prefix + name] = tensor if plain else tensor.detach()
