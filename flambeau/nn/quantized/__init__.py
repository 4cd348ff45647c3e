"""Operations as a module, so that tools which watch modules see them too."""

import flambeau
from flambeau.nn.modules import Identity, Module

__all__ = ["FloatFunctional"]


class FloatFunctional(Module):
    """Arithmetic whose results pass through `activation_post_process`, where observers sit."""

    def __init__(self):
        super().__init__()
        self.activation_post_process = Identity()

    def forward(self, x):
        raise RuntimeError("FloatFunctional is not intended to use the forward. Please use the "
                           "corresponding operation")

    def add(self, x, y):
        """x + y"""
        return self.activation_post_process(flambeau.add(x, y))

    def add_scalar(self, x, y):
        """x + y for a number y; its range follows from x's, so it is not watched"""
        return flambeau.add(x, y)

    def mul(self, x, y):
        """x * y"""
        return self.activation_post_process(flambeau.mul(x, y))

    def mul_scalar(self, x, y):
        """x * y for a number y; its range follows from x's, so it is not watched"""
        return flambeau.mul(x, y)

    def cat(self, x, dim=0):
        """Tensors joined along a dimension"""
        return self.activation_post_process(flambeau.cat(x, dim=dim))

    def add_relu(self, x, y):
        """relu(x + y)"""
        return self.activation_post_process(flambeau.nn.functional.relu(flambeau.add(x, y)))

    def matmul(self, x, y):
        """x @ y"""
        return self.activation_post_process(flambeau.matmul(x, y))
