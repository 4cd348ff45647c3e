"""Convolution, pooling and image functions that are also found under torch's own name."""

from __future__ import annotations

import flambeau
from flambeau import _assemble

_SHARED = (
    "adaptive_avg_pool1d", "avg_pool1d", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "max_pool1d_with_indices", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle",
)
_POOLS = {n: _assemble.registry[f"fractional_max_pool{n}d_with_indices"] for n in (2, 3)}

__all__ = [*_SHARED, *(f"adaptive_max_pool{n}d_with_indices" for n in (1, 2, 3)),
           "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
           "fractional_max_pool3d_with_indices"]

globals().update({name: getattr(flambeau, name) for name in _SHARED})


def _with_places(n: int):
    """An adaptive max pooling that always gives places."""
    pool = _assemble.functions[f"nn.functional.adaptive_max_pool{n}d"]

    def function(input, output_size, return_indices=False):
        return pool(input, output_size, True)

    function.__name__ = function.__qualname__ = f"adaptive_max_pool{n}d_with_indices"
    function.__doc__ = "The largest of each of `output_size` windows, and its place in its plane."
    return function


globals().update({f"adaptive_max_pool{n}d_with_indices": _with_places(n) for n in (1, 2, 3)})


def _fractional(n, input, kernel_size, output_size, output_ratio, samples):
    name = f"fractional_max_pool{n}d"
    if not isinstance(input, flambeau.Tensor):
        raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(input).__name__}")
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, (list, tuple)) else (output_ratio,) * n
        if len(ratios) > n:
            raise ValueError(f"{name} requires output_ratio to be a number or a tuple of {n}, got "
                             f"{output_ratio}")
        output_size = tuple(int(size * ratio) for size, ratio in
                            zip(input.shape[-n:], ratios, strict=True))
    sizes = output_size if isinstance(output_size, (list, tuple)) else (output_size,) * n
    kernel = kernel_size if isinstance(kernel_size, (list, tuple)) else (kernel_size,) * n
    if samples is None:
        batch = 1 if input.dim() == n + 1 else input.shape[0]
        samples = flambeau.rand(batch, input.shape[-n - 1], n, dtype=input.dtype,
                                device=input.device)
    return _POOLS[n](input, tuple(kernel), tuple(sizes), samples)


def fractional_max_pool2d_with_indices(input, kernel_size, output_size=None, output_ratio=None,
                                       return_indices=False, _random_samples=None):
    """The largest of windows placed at random, and their places in their planes."""
    return _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d_with_indices(input, kernel_size, output_size=None, output_ratio=None,
                                       return_indices=False, _random_samples=None):
    """The largest of windows placed at random, and their places in their volumes."""
    return _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(input, kernel_size, output_size=None, output_ratio=None,
                          return_indices=False, _random_samples=None):
    """The largest of windows placed at random."""
    found = _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def fractional_max_pool3d(input, kernel_size, output_size=None, output_ratio=None,
                          return_indices=False, _random_samples=None):
    """The largest of windows placed at random, in volumes."""
    found = _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]
