"""What programs ask of tensors that PyTorch traces with: here real ones are traced."""

from typing import Any

from flambeau import Tensor

__all__ = ["FakeTensor", "is_fake"]


class FakeTensor(Tensor):
    """A tensor without numbers that says it lies on another device than meta: none is one."""

    def __new__(cls, *args: Any, **kwargs: Any):
        raise RuntimeError("FakeTensor: there are none here; make tensors with device='meta'")


def is_fake(x: Any) -> bool:
    """Whether a tensor is one that PyTorch traces with."""
    return isinstance(x, FakeTensor)
