"""Spectral norm by hook: `weight_orig` is learned, `weight_u` and `weight_v` follow it."""

import flambeau
from flambeau.nn import functional as F
from flambeau.nn.parameter import Parameter

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


class SpectralNorm:
    """A forward pre-hook that divides the weight by its largest singular value."""

    def __init__(self, name="weight", n_power_iterations=1, dim=0, eps=1e-12):
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def reshape_weight_to_matrix(self, weight):
        """What `dim` numbers as rows, everything else side by side."""
        return weight.movedim(self.dim, 0).flatten(1)

    def compute_weight(self, module, do_power_iteration):
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with flambeau.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(flambeau.mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(flambeau.mv(matrix, v), dim=0, eps=self.eps))
                # later steps change the vectors in place
                u, v = u.clone(), v.clone()
        return weight / flambeau.dot(u, flambeau.mv(matrix, v))

    @staticmethod
    def apply(module, name, n_power_iterations, dim, eps):
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two spectral_norm hooks on the same {name}")
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = getattr(module, name)
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        with flambeau.no_grad():
            matrix = hook.reshape_weight_to_matrix(weight)
            start = [
                F.normalize(weight.new_empty(size).normal_(0, 1), dim=0, eps=eps)
                for size in matrix.shape
            ]
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        # A plain attribute, so that the weight moves with the module's forward, not its state.
        setattr(module, name, weight.data)
        for suffix, vector in zip(("_u", "_v"), start, strict=True):
            module.register_buffer(name + suffix, vector)
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module):
        with flambeau.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for suffix in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module, inputs):
        weight = self.compute_weight(module, do_power_iteration=module.training)
        setattr(module, self.name, weight)


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divide the weights by their largest singular value."""
    if dim is None:
        transposed = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
        dim = 1 if any(c.__name__ in transposed for c in type(module).__mro__) else 0
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module, name="weight"):
    """Make the weights an ordinary parameter again."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"spectral_norm of '{name}' not found in {module}")
