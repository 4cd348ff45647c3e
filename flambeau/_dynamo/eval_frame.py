"""What programs ask of compiled modules by PyTorch's private names."""

from flambeau import nn

__all__ = ["OptimizedModule", "is_dynamo_supported"]


class OptimizedModule(nn.Module):
    """PyTorch's wrapper around compiled modules. Here they keep their own class, so none is one."""


def is_dynamo_supported() -> bool:
    """Whether functions can be compiled: always."""
    return True
