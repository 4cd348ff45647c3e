"""Batch norms in evaluation, folded into the layer before them."""

import copy

import flambeau
from flambeau.nn.parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
]  # fmt: skip


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """One convolution that computes bn(conv(x))."""
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight,
        fused.bias,
        *(bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias),
        transpose,
    )
    return fused


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    """Weight and bias of a convolution followed by a batch norm."""
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_eval(linear, bn):
    """One linear map that computes bn(linear(x))."""
    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"{linear.out_features} and {bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight,
        fused.bias,
        *(bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias),
    )
    return fused


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """Weight and bias of a linear map followed by a batch norm."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, (-1, 1))


def _fused(weight, bias, mean, var, eps, scale, shift, shape):
    with flambeau.no_grad():
        start = flambeau.zeros_like(mean) if bias is None else bias
        factor = (var + eps).rsqrt()
        if scale is not None:
            factor = scale * factor
        new_bias = (start - mean) * factor
        if shift is not None:
            new_bias = new_bias + shift
        new_weight = weight * factor.reshape(shape)
    requires_grad = weight.requires_grad
    return (
        Parameter(new_weight.to(weight.dtype), requires_grad),
        Parameter(new_bias.to(start.dtype), start.requires_grad if bias is not None else False),
    )
