"""What programs ask about compiling by PyTorch's private names."""

from .eval_frame import is_dynamo_supported

__all__ = ["is_compile_supported"]


def is_compile_supported(device_type) -> bool:
    """Whether functions can be compiled for a kind of device."""
    return is_dynamo_supported() and device_type == "cpu"
