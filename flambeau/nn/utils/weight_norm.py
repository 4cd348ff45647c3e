"""Weight norm by hook: `weight_g` holds lengths, `weight_v` directions."""

import flambeau
from flambeau.nn.parameter import Parameter

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


def norm_except_dim(tensor, dim):
    """The 2-norm over every dimension but one, kept for broadcasting; over all for -1."""
    if dim == -1:
        return flambeau.linalg.vector_norm(tensor)
    others = [d for d in range(tensor.dim()) if d != dim % tensor.dim()]
    return flambeau.linalg.vector_norm(tensor, dim=others, keepdim=True)


class WeightNorm:
    """A forward pre-hook that computes the weight anew from length and direction."""

    def __init__(self, name, dim):
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module):
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except_dim(v, self.dim))

    @staticmethod
    def apply(module, name, dim):
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two weight_norm hooks on the same {name}")
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        delattr(module, name)
        length = norm_except_dim(weight, hook.dim).detach()
        module.register_parameter(name + "_g", Parameter(length))
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module):
        weight = self.compute_weight(module).detach()
        for name in (self.name, self.name + "_g", self.name + "_v"):
            delattr(module, name)
        setattr(module, self.name, Parameter(weight))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module, name="weight", dim=0):
    """Learn the length and the direction of the weights separately."""
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module, name="weight"):
    """Make the weights an ordinary parameter again."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
