"""Convolution weights in another order of memory."""

from flambeau.nn.modules import conv

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module, memory_format, kinds):
    for layer in module.modules():
        if isinstance(layer, kinds):
            weight = layer.weight.detach().clone()
            layer.weight.data = weight.contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module, memory_format):
    """Store the weights of two-dimensional convolutions in this memory format."""
    return _convert(module, memory_format, (conv.Conv2d, conv.ConvTranspose2d))


def convert_conv3d_weight_memory_format(module, memory_format):
    """Store the weights of three-dimensional convolutions in this memory format."""
    return _convert(module, memory_format, (conv.Conv3d, conv.ConvTranspose3d))
