"""Where a model would change between floats and integers; here it stays with floats."""

from __future__ import annotations

from flambeau import Tensor, nn

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]


class QuantStub(nn.Module):
    """Where numbers would become integers once the model is converted; until then, nothing."""

    def __init__(self, qconfig=None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class DeQuantStub(QuantStub):
    """Where integers would become floats once the model is converted; until then, nothing."""


class QuantWrapper(nn.Module):
    """A module between the two."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.quant, self.dequant, self.module = QuantStub(), DeQuantStub(), module
        self.train(module.training)

    def forward(self, X: Tensor) -> Tensor:
        return self.dequant(self.module(self.quant(X)))
