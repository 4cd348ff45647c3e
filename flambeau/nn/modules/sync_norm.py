"""Batch norm over the batches of all processes: their statistics joined, their gradients summed."""

import flambeau
from flambeau.nn import functional as F


class SynchronizedNorm(flambeau.autograd.Function):
    """(x, weight, bias) -> normalised x, and the mean, variance and count of all processes."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps, group):
        mean, variance, count = joined_statistics(x, group)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps, ctx.group, ctx.count = eps, group, count
        out = F.batch_norm(x, mean.to(x.dtype), variance.to(x.dtype), weight, bias, False, 0.0, eps)
        total = flambeau.tensor(count)
        ctx.mark_non_differentiable(mean, variance, total)
        return out, mean, variance, total

    @staticmethod
    def backward(ctx, g, *_unused):
        x, weight, mean, variance = ctx.saved_tensors
        channels, dims = x.size(1), reduced_dims(x)
        shape = [1, channels] + [1] * (x.dim() - 2)
        wide = mean.dtype
        g = g.to(wide)
        inverse = (variance + ctx.eps).rsqrt().view(shape)
        normal = (x.to(wide) - mean.view(shape)) * inverse
        sums = flambeau.cat([g.sum(dims), (g * normal).sum(dims)])
        grad_bias, grad_weight = sums[:channels].clone(), sums[channels:].clone()
        flambeau.distributed.all_reduce(sums, group=ctx.group)
        sums = sums / ctx.count
        of_g, of_normal = sums[:channels].view(shape), sums[channels:].view(shape)
        scale = inverse if weight is None else inverse * weight.to(wide).view(shape)
        grad = ((g - of_g - normal * of_normal) * scale).to(x.dtype)
        if weight is None:
            return grad, None, None, None, None
        return grad, grad_weight.to(weight.dtype), grad_bias.to(weight.dtype), None, None


def reduced_dims(x):
    return [d for d in range(x.dim()) if d != 1]


def joined_statistics(x, group):
    """Mean, variance and number of elements over all processes.

    Each gives its mean and the squares around it: squares around zero would lose the digits that
    a variance consists of.
    """
    channels, dims = x.size(1), reduced_dims(x)
    wide = x.to(flambeau.float32) if x.dtype in (flambeau.float16, flambeau.bfloat16) else x
    here = x.numel() // channels
    mean = wide.mean(dims) if here else wide.new_zeros(channels)
    centred = wide - mean.view([1, channels] + [1] * (x.dim() - 2))
    mine = flambeau.cat([mean, (centred * centred).sum(dims), wide.new_full((1,), float(here))])
    size = flambeau.distributed.get_world_size(group)
    every = wide.new_empty(size, 2 * channels + 1)
    flambeau.distributed.all_gather_into_tensor(every, mine, group=group)
    counts = every[:, -1:]
    total = int(counts.double().sum())
    means, squares = every[:, :channels], every[:, channels:-1]
    mean = (means * counts).sum(0) / total
    away = means - mean
    return mean, (squares + counts * away * away).sum(0) / total, total
