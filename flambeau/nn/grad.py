"""The gradients of convolutions by themselves: with respect to their input, or their weight."""

from __future__ import annotations

import flambeau
import flambeau.nn.functional as F
from flambeau import Tensor

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input",
           "conv3d_weight"]


def _of_input(conv, doc: str):
    def gradient(input_size, weight: Tensor, grad_output: Tensor, stride=1, padding=0, dilation=1,
                 groups=1) -> Tensor:
        # the gradient does not depend on the input, so any of that size will do
        with flambeau.enable_grad():
            x = weight.detach().new_zeros(()).expand(tuple(input_size)).requires_grad_()
            out = conv(x, weight, None, stride, padding, dilation, groups)
            recorded = weight.requires_grad or grad_output.requires_grad
            (found,) = flambeau.autograd.grad(out, x, grad_output, create_graph=recorded)
        return found

    gradient.__name__ = gradient.__qualname__ = f"{conv.__name__}_input"
    gradient.__doc__ = doc
    return gradient


def _of_weight(conv, doc: str):
    def gradient(input: Tensor, weight_size, grad_output: Tensor, stride=1, padding=0, dilation=1,
                 groups=1) -> Tensor:
        with flambeau.enable_grad():
            w = input.detach().new_zeros(()).expand(tuple(weight_size)).requires_grad_()
            out = conv(input, w, None, stride, padding, dilation, groups)
            recorded = input.requires_grad or grad_output.requires_grad
            (found,) = flambeau.autograd.grad(out, w, grad_output, create_graph=recorded)
        return found

    gradient.__name__ = gradient.__qualname__ = f"{conv.__name__}_weight"
    gradient.__doc__ = doc
    return gradient


conv1d_input = _of_input(F.conv1d, "The gradient of conv1d with respect to its input.")
conv2d_input = _of_input(F.conv2d, "The gradient of conv2d with respect to its input.")
conv3d_input = _of_input(F.conv3d, "The gradient of conv3d with respect to its input.")
conv1d_weight = _of_weight(F.conv1d, "The gradient of conv1d with respect to its weight.")
conv2d_weight = _of_weight(F.conv2d, "The gradient of conv2d with respect to its weight.")
conv3d_weight = _of_weight(F.conv3d, "The gradient of conv3d with respect to its weight.")
