"""Windows over the last dimensions: arguments given once or per dimension, and how many fit."""

from __future__ import annotations

Ints = tuple[int, ...]


def each(name: str, what: str, value, n: int) -> Ints:
    """One integer per dimension, from one integer or from n of them; RuntimeError otherwise."""
    if type(value) is int:
        return (value,) * n
    if isinstance(value, (list, tuple)):
        given = tuple(value)
    else:
        given = (value,)
    for v in given:
        if isinstance(v, bool) or not hasattr(v, "__index__"):
            raise TypeError(f"{name}(): argument '{what}' must be tuple of ints, not "
                            f"{type(v).__name__}")
    given = tuple(v.__index__() for v in given)
    if len(given) == n:
        return given
    if len(given) == 1:
        return given * n
    raise RuntimeError(f"{name}: {what} must either be a single int, or a tuple of {n} ints, but "
                       f"got {what}={list(given)}")


def pool_options(n: int, kernel_size, stride, padding, dilation=1, name="pool"):
    """One integer per dimension of each; the stride is the kernel size if none is given."""
    kernel = each(name, "kernel_size", kernel_size, n)
    empty = stride is None or (isinstance(stride, (list, tuple)) and not stride)
    return (kernel, kernel if empty else each(name, "stride", stride, n),
            each(name, "padding", padding, n), each(name, "dilation", dilation, n))


def extent(kernel: int, dilation: int) -> int:
    """How many positions a window reaches over."""
    return dilation * (kernel - 1) + 1


def pooled(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """How many windows fit; with `ceil`, also a last one that sticks out but starts inside."""
    span = size + 2 * padding - extent(kernel, dilation)
    found = (span + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (found - 1) * stride >= size + padding:
        found -= 1
    return found


def convolved(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """The size a convolution gives."""
    return (size + 2 * padding - extent(kernel, dilation)) // stride + 1


def transposed(size: int, kernel: int, stride: int, padding: int, dilation: int, more: int) -> int:
    """The size a transposed convolution gives, `more` being its output padding."""
    return (size - 1) * stride - 2 * padding + extent(kernel, dilation) + more
