"""The gradients of convolutions by themselves: with respect to their input, or their weight."""

from __future__ import annotations

import flambeau
import flambeau.nn.functional as F
from flambeau import Tensor

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input",
           "conv3d_weight"]


def _gradient(conv, size, other: Tensor, grad_output: Tensor, operands, options) -> Tensor:
    """The gradient of an operand, which does not depend on it: any of its size will do."""
    with flambeau.enable_grad():
        x = other.detach().new_zeros(()).expand(tuple(size)).requires_grad_()
        out = conv(*operands(x), None, *options)
        recorded = other.requires_grad or grad_output.requires_grad
        (found,) = flambeau.autograd.grad(out, x, grad_output, create_graph=recorded)
    return found


def _of_input(conv):
    def gradient(input_size, weight: Tensor, grad_output: Tensor, stride=1, padding=0, dilation=1,
                 groups=1) -> Tensor:
        return _gradient(conv, input_size, weight, grad_output, lambda x: (x, weight),
                         (stride, padding, dilation, groups))

    return _named(gradient, conv, "input")


def _of_weight(conv):
    def gradient(input: Tensor, weight_size, grad_output: Tensor, stride=1, padding=0, dilation=1,
                 groups=1) -> Tensor:
        return _gradient(conv, weight_size, input, grad_output, lambda w: (input, w),
                         (stride, padding, dilation, groups))

    return _named(gradient, conv, "weight")


def _named(gradient, conv, operand: str):
    gradient.__name__ = gradient.__qualname__ = f"{conv.__name__}_{operand}"
    gradient.__doc__ = f"The gradient of {conv.__name__} with respect to its {operand}."
    return gradient


conv1d_input, conv2d_input, conv3d_input = map(_of_input, (F.conv1d, F.conv2d, F.conv3d))
conv1d_weight, conv2d_weight, conv3d_weight = map(_of_weight, (F.conv1d, F.conv2d, F.conv3d))
