"""Random tensors: torch's functions and in-place methods over the CPU's streams."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from ..core import dtype as dt
from ..core.device import CPU, META, resolve
from ..core.lazily import Lazily, np
from . import convert, create, inplace
from .eager import changed, check_writable, engine
from .generator import twister_of
from .modes import modes
from .node import edge_of, new_node
from .tensor import Tensor, empty, make, signature

streams: Any = Lazily("flambeau.devices.cpu.random")

# -- filling a tensor that exists ----------------------------------------------------------------


class Erased:
    """Goes back through a change that left nothing of what was there."""

    def __init__(self, name: str, sigs=()):
        self._name, self.sigs = name, sigs

    def name(self) -> str:
        return self._name

    def pull(self, node, g):
        if not self.sigs:
            return [engine.zeros_like(g)]
        return [None if parent is None else engine.zeros_of(sig)
                for parent, sig in zip(node.parents, self.sigs, strict=True)]


def write(x: Tensor, values: np.ndarray) -> None:
    """Numbers in the order torch visits memory, into a tensor."""
    if x.sig.dtype is dt.bfloat16:
        values = (np.ascontiguousarray(values, np.float32).view(np.uint32) >> np.uint32(16)).astype(
            np.uint16)
    if x.sig.contiguous and values.dtype == x.sig.dtype.numpy and values.flags.c_contiguous:
        ctypes.memmove(x.ptr, values.__array_interface__["data"][0], x.sig.nbytes)
        return
    target = convert.raw_array(x)
    if not x.sig.contiguous:
        target = target.transpose(streams.fill_order(x.sig.shape, x.sig.strides))
    target[...] = values.reshape(target.shape)


def fill_with(x: Tensor, name: str, draw) -> Tensor:
    """Overwrite x with draw(n, dtype name); unrecorded."""
    if x.sig.device is not META and x.sig.numel:
        parts = as_real(x) if x.sig.dtype.kind == "c" else x
        write(parts, draw(parts.sig.numel, parts.sig.dtype.name))
    return x


def as_real(x: Tensor) -> Tensor:
    """The parts of complex elements as a last dimension, over the same memory."""
    sig = x.sig
    real = signature(sig.dtype.to_real(), (*sig.shape, 2), (*(2 * s for s in sig.strides), 1))
    return make(real, x.mem, x.ptr)


def overwrite(x: Tensor, name: str, draw) -> Tensor:
    """An in-place random method: checked, drawn, counted and recorded."""
    check_writable(x, name)
    fill_with(x, name, draw)
    changed(x)
    if modes.grad and x.node is not None:
        node = new_node(Erased(f"{name.rstrip('_').title()}Backward0"), (edge_of(x),), (),
                        (x.sig,))
        inplace.replace_history(x, node)
    return x


def _need(name: str, x: Tensor, kinds: str) -> None:
    if x.sig.dtype.kind not in kinds:
        raise NotImplementedError(f'"{name}" not implemented for \'{x.sig.dtype}\'')


def uniform_(self, from_=0.0, to=1.0, *, generator=None, **named):
    """Fill with uniform numbers of [from, to)."""
    low, high = named.pop("from", from_), to
    _no_more("uniform_", named)
    _need("check_uniform_bounds", self, "fc")
    limit = dt.finfo(self.sig.dtype).max
    for role, bound in (("from", low), ("to", high)):
        if not -limit <= bound <= limit:
            raise RuntimeError(f"{role} is out of bounds for {self.sig.dtype}")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > "
                           f"to={high}")
    rng = twister_of(generator)
    return overwrite(self, "uniform_", lambda n, d: streams.uniform(rng, n, d, low, high))


def _no_more(name: str, named: dict) -> None:
    if named:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")


def normal_(self, mean=0.0, std=1.0, *, generator=None):
    """Fill with normal numbers."""
    _need("normal_kernel_cpu", self, "fc")
    if not std >= 0:
        raise RuntimeError(f"normal_ expects std >= 0.0, but found std {std}")
    rng = twister_of(generator)
    return overwrite(self, "normal_", lambda n, d: _normals(self, rng, n, d, mean, std))


def _normals(x: Tensor, rng, n, d, mean, std):
    dense = x.sig.contiguous
    if x.sig.dtype.kind == "c":
        # The variance is shared by the parts; the mean belongs to the real one.
        values = streams.normal(rng, n, d, 0.0, std / math.sqrt(2), contiguous=dense)
        values = values.reshape(-1, 2) + np.array([mean.real, mean.imag], values.dtype)
        return values.reshape(-1)
    return streams.normal(rng, n, d, mean, std, contiguous=dense)


def random_(self, *args, generator=None, **named):
    """Fill with integers of [from, to), or from 0 to the largest the dtype holds exactly."""
    given = list(args)
    low = named.pop("from", given.pop(0) if len(given) > 1 else None)
    high = named.pop("to", given.pop(0) if given else None)
    _no_more("random_", named)
    _need("random_", self, "biuf")
    rng = twister_of(generator)
    if low is None and high is None:
        return overwrite(self, "random_", lambda n, d: streams.random(rng, n, d))
    low = 0 if low is None else low
    _check_bounds("random_", low, high, self.sig.dtype)
    return overwrite(self, "random_", lambda n, d: streams.integers(rng, n, d, low, high))


def _check_bounds(name: str, low, high, dtype: dt.dtype) -> None:
    if high is not None and low >= high:
        raise RuntimeError(f"{name} expects 'from' to be less than 'to', but got from={low} >= "
                           f"to={high}")
    if dtype.kind in "biu":
        least, most = (0, 1) if dtype.kind == "b" else (dt.iinfo(dtype).min, dt.iinfo(dtype).max)
        for role, bound in (("from", low), ("to - 1", low if high is None else high - 1)):
            if not least <= bound <= most:
                raise RuntimeError(f"{role} is out of bounds for {dtype.name}")


def exponential_(self, lambd=1, *, generator=None):
    """Fill with exponential numbers of this rate."""
    _need("exponential_kernel", self, "f")
    rng = twister_of(generator)
    return overwrite(self, "exponential_", lambda n, d: streams.exponential(rng, n, d, lambd))


def geometric_(self, p, *, generator=None):
    """Fill with the number of trials it takes to succeed once."""
    _need("geometric_cpu", self, "iuf")
    rng = twister_of(generator)
    return overwrite(self, "geometric_", lambda n, d: streams.geometric(rng, n, d, p))


def cauchy_(self, median=0, sigma=1, *, generator=None):
    """Fill with Cauchy numbers."""
    _need("cauchy_cpu", self, "f")
    rng = twister_of(generator)
    return overwrite(self, "cauchy_", lambda n, d: streams.cauchy(rng, n, d, median, sigma))


def log_normal_(self, mean=1, std=2, *, generator=None):
    """Fill with exp of normal numbers."""
    _need("log_normal_cpu", self, "f")
    rng = twister_of(generator)
    return overwrite(self, "log_normal_", lambda n, d: streams.log_normal(rng, n, d, mean, std))


def bernoulli_(self, p=0.5, *, generator=None):
    """Fill with 1 with probability p, a number or a tensor, else 0."""
    rng = twister_of(generator)
    if isinstance(p, Tensor):
        chances = np.broadcast_to(engine.to_array(p.detach()), self.sig.shape)
        return overwrite(self, "bernoulli_", lambda n, d: streams.bernoulli_each(
            rng, _in_fill_order(self, chances), d))
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return overwrite(self, "bernoulli_", lambda n, d: streams.bernoulli(rng, n, d, p))


def _in_fill_order(x: Tensor, array: np.ndarray) -> np.ndarray:
    if x.sig.contiguous:
        return array
    return array.transpose(streams.fill_order(x.sig.shape, x.sig.strides))


METHODS = {f.__name__: f for f in (uniform_, normal_, random_, exponential_, geometric_, cauchy_,
                                   log_normal_, bernoulli_)}


# -- new tensors ---------------------------------------------------------------------------------


def new_random(name: str, shape, draw, out, dtype, layout, device, pin_memory, requires_grad,
               strides=None) -> Tensor:
    """A new tensor of drawn numbers, with the options every such function has."""
    x = empty(signature(dtype, shape, strides, resolve(device)))
    if out is not None:
        if out.sig.shape != tuple(shape):
            engine.resize(out, shape)
        fill_with(out, name, draw)
        changed(out)
        return out
    if strides is None and x.sig.device is CPU:
        create.remember(tuple(shape), x.sig, device)
    return create.finish(name, fill_with(x, name, draw), layout, pin_memory, requires_grad)


def float_dtype(name: str, dtype, out) -> dt.dtype:
    found = create.out_dtype(name, dtype, out)
    if found.kind not in "fc":
        raise NotImplementedError(f'"{name}" not implemented for \'{found}\'')
    return found


def rand(*size, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False,
         requires_grad=False, **named):
    """Uniform numbers of [0, 1)."""
    if out is None and not (named or layout or pin_memory or requires_grad):
        sig = create.met_before(size, dtype, device)
        if sig is not None and sig.dtype.kind == "f" and sig.numel:
            x = empty(sig)
            write(x, _unit(twister_of(generator), sig.numel, sig.dtype.name))
            return x
    shape = create.sizes("rand", create._given_size("rand", size, named))
    kind, rng = float_dtype("rand", dtype, out), twister_of(generator)
    return new_random("rand", shape, lambda n, d: _unit(rng, n, d), out, kind, layout, device,
                      pin_memory, requires_grad)


def _unit(rng, n: int, d: str):
    """Uniform numbers of [0, 1)."""
    if n <= streams.CHUNK and d in ("float32", "float64"):
        return streams.unit(rng, n, streams.work_kind(d))
    return streams.uniform(rng, n, d)


def randn(*size, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False,
          requires_grad=False, **named):
    """Standard normal numbers."""
    if out is None and not (named or layout or pin_memory or requires_grad):
        sig = create.met_before(size, dtype, device)
        if sig is not None and sig.dtype.kind == "f" and sig.numel:
            x = empty(sig)
            write(x, streams.normal(twister_of(generator), sig.numel, sig.dtype.name))
            return x
    shape = create.sizes("randn", create._given_size("randn", size, named))
    kind, rng = float_dtype("randn", dtype, out), twister_of(generator)
    return new_random("randn", shape, _standard(kind, rng), out, kind, layout, device, pin_memory,
                      requires_grad)


def _standard(kind: dt.dtype, rng, dense: bool = True):
    """Standard normal numbers of a dtype; complex ones have variance 1 in all."""
    std = 1.0 if kind.kind == "f" else math.sqrt(0.5)
    return lambda n, d: streams.normal(rng, n, d, 0.0, std, contiguous=dense)


def randint(*args, generator=None, out=None, dtype=None, layout=None, device=None,
            pin_memory=False, requires_grad=False, **named):
    """Integers of [low, high), low being 0 unless given: randint([low,] high, size)."""
    low, high, shape = _integer_arguments("randint", args, named)
    kind, rng = create.out_dtype("randint", dtype, out, dt.int64), twister_of(generator)
    _check_range("randint", low, high, kind)
    return new_random("randint", shape, lambda n, d: streams.integers(rng, n, d, low, high), out,
                      kind, layout, device, pin_memory, requires_grad)


def _check_range(name: str, low: int, high: int, kind: dt.dtype) -> None:
    if kind.kind == "c":
        raise NotImplementedError(f'"{name}" not implemented for \'{kind}\'')
    _check_bounds("random_", low, high, kind)


def _integer_arguments(name: str, args: tuple, named: dict):
    """low, high and the shape, however they were given."""
    given = list(args)
    size = named.pop("size", None)
    if size is None:
        if not given or not isinstance(given[-1], (tuple, list)):
            raise TypeError(f"{name}() received an invalid combination of arguments: expected "
                            "(int high, tuple size) or (int low, int high, tuple size)")
        size = given.pop()
    low, high = _bounds(name, given, named)
    return low, high, create.sizes(name, (size,))


def _bounds(name: str, given: list, named: dict) -> tuple[int, int]:
    low = named.pop("low", None)
    if low is None and len(given) > 1:
        low = given.pop(0)
    if low is None and given and "high" in named:
        low = given.pop(0)
    high = named.pop("high", None)
    if high is None:
        if not given:
            raise TypeError(f'{name}() missing 1 required positional arguments: "high"')
        high = given.pop(0)
    if given:
        raise TypeError(f"{name}() received too many positional arguments")
    _no_more(name, named)
    return _integer(name, 0 if low is None else low), _integer(name, high)


def _integer(name: str, value) -> int:
    value = create.number(value)
    if isinstance(value, float):
        raise TypeError(f"{name}() received an invalid combination of arguments: bounds must be "
                        f"int, not {value}")
    return int(value)


def randperm(n, *, generator=None, out=None, dtype=None, layout=None, device=None,
             pin_memory=False, requires_grad=False):
    """The integers from 0 to n - 1 in random order."""
    n = create.number(n)
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise TypeError(f"randperm(): argument 'n' (position 1) must be int, not "
                        f"{type(n).__name__}")
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    kind = create.out_dtype("randperm", dtype, out, dt.int64)
    if kind.kind in "bc":
        raise NotImplementedError(f'"randperm" not implemented for \'{kind}\'')
    limit = 2 ** streams.NUMBERS[kind.name].digits if kind.kind == "f" else dt.iinfo(kind).max
    if n > limit:
        raise RuntimeError(f"n is too large for result tensor type: '{kind}'")
    rng = twister_of(generator)
    return new_random("randperm", (int(n),), lambda n, d: streams.permutation(rng, n, d), out,
                      kind, layout, device, pin_memory, requires_grad)


# -- like another tensor -------------------------------------------------------------------------


def _random_like(name: str, kinds: str, drawing):
    def create_like(input, *, generator=None, dtype=None, layout=None, device=None,
                    pin_memory=False, requires_grad=False, memory_format=None):
        sig = create.like_signature(name, input, dtype, device, memory_format)
        if sig.dtype.kind not in kinds:
            raise NotImplementedError(f'"{name}" not implemented for \'{sig.dtype}\'')
        draw = drawing(sig, twister_of(generator))
        return new_random(name, sig.shape, draw, None, sig.dtype, layout, sig.device, pin_memory,
                          requires_grad, sig.strides)

    create_like.__name__ = create_like.__qualname__ = name
    create_like.__doc__ = f"Random numbers in a new tensor like `input` ({name})."
    return create_like


rand_like = _random_like("rand_like", "fc",
                         lambda sig, rng: lambda n, d: _unit(rng, n, d))
randn_like = _random_like("randn_like", "fc",
                          lambda sig, rng: _standard(sig.dtype, rng, sig.contiguous))


def randint_like(input, *args, generator=None, dtype=None, layout=None, device=None,
                 pin_memory=False, requires_grad=False, memory_format=None, **named):
    """Integers of [low, high) in a new tensor like `input`: randint_like(input, [low,] high)."""
    low, high = _bounds("randint_like", list(args), named)
    sig = create.like_signature("randint_like", input, dtype, device, memory_format)
    _check_range("randint_like", low, high, sig.dtype)
    rng = twister_of(generator)
    return new_random("randint_like", sig.shape,
                      lambda n, d: streams.integers(rng, n, d, low, high), None, sig.dtype, layout,
                      sig.device, pin_memory, requires_grad, sig.strides)


# -- for layers ----------------------------------------------------------------------------------


def keep_mask(shape, keep: float, dtype: dt.dtype, generator=None) -> Tensor:
    """1 with probability `keep`, else 0: the mask that dropout draws."""
    rng = twister_of(generator)
    x = empty(signature(dtype, tuple(shape)))
    return fill_with(x, "dropout", lambda n, d: streams.bernoulli(rng, n, d, keep))


def rrelu_noise(x: Tensor, lower: float, upper: float, generator=None) -> Tensor:
    """The slopes that rrelu draws while training: random where x is not positive, elsewhere 1."""
    array = engine.to_array(x.detach())
    _, noise = streams.rrelu(twister_of(generator), array, lower, upper, x.sig.dtype.name)
    return convert.copied(noise, x.sig.dtype)


engine.keep_mask = keep_mask
engine.randn = randn
engine.rrelu_noise = rrelu_noise


def install() -> None:
    for name, method in METHODS.items():
        setattr(Tensor, name, method)

