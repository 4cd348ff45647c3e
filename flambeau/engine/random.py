"""Random tensors: torch's functions and in-place methods over the CPU's streams."""

from __future__ import annotations

import contextlib
import functools
import math
from typing import Any

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import CPU, META, is_here, resolve
from ..core.lazily import Lazily, np
from . import convert, create, create_like, history, interception, options
from .eager import engine
from .fresh import empty
from .generator import default_generator, twister_of
from .interception import PLAIN, tracers
from .modes import modes
from .node import edge_of, new_node
from .onlookers import notice, onlookers
from .tensor import Tensor, forget_plans, make, signature
from .writing import changed, check_writable

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


def fill_with(x: Tensor, name: str, draw) -> Tensor:
    """Overwrite x with draw(n, dtype name, address); unrecorded."""
    if x.sig.device is META or not x.sig.numel:
        return x
    parts = as_real(x) if x.sig.dtype.kind == "c" else x
    sig = parts.sig
    if sig.contiguous or sh.is_dense(sig.shape, sig.strides):  # torch walks memory, not indices
        draw(sig.numel, sig.dtype.name, parts.ptr)
        return x
    drawn = empty(signature(sig.dtype, (sig.numel,)))
    draw(sig.numel, sig.dtype.name, drawn.ptr)
    target = convert.raw_array(parts).transpose(streams.fill_order(sig.shape, sig.strides))
    target[...] = convert.raw_array(drawn).reshape(target.shape)
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
        history.replace_history(x, node)
    return x


class _PlainFills(dict):
    """(name, signature) -> machine code for tensors of floats in a row, or None."""

    def __missing__(self, key):
        name, sig = key
        usual = (sig.dtype.kind == "f" and sig.numel and sig.device is CPU and sig.contiguous
                 and sig.tag is None)
        self[key] = streams.fill(name, sig.dtype.name) if usual else None
        return self[key]


_plain_fills = _PlainFills()
forget_plans.append(_plain_fills.clear)


def _at_once(x: Tensor, name: str, generator, *numbers: float) -> bool:
    """Whether a tensor of floats outside of any graph, or where none is recorded, was filled, its
    arguments being checked."""
    if modes.grad or tracers:
        if type(x) is not Tensor or x.node is not None or getattr(x, "base", None) is not None:
            return False
    elif type(x) not in PLAIN or x.mem.version < 0:
        return False
    run = _plain_fills[name, x.sig]
    if run is None or x.__dict__.get("_inference"):
        return False
    run(state_of(generator), x.ptr, *numbers, x.sig.numel)
    changed(x)
    return True


def _need(name: str, x: Tensor, kinds: str) -> None:
    if x.sig.dtype.kind not in kinds:
        raise NotImplementedError(f'"{name}" not implemented for \'{x.sig.dtype}\'')


def uniform_(self, from_=0.0, to=1.0, *, generator=None, **named):
    """Fill with uniform numbers of [from, to)."""
    low, high = named.pop("from", from_), to
    _no_more("uniform_", named)
    # Every floating dtype holds such bounds.
    if -1e4 <= low <= high <= 1e4 and _at_once(self, "uniform", generator, float(low), float(high)):
        return self
    _need("check_uniform_bounds", self, "fc")
    limit = dt.finfo(self.sig.dtype).max
    for role, bound in (("from", low), ("to", high)):
        if not -limit <= bound <= limit:
            raise RuntimeError(f"{role} is out of bounds for {self.sig.dtype}")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > "
                           f"to={high}")
    rng = twister_of(generator)
    return overwrite(self, "uniform_", lambda n, d, at: streams.uniform(rng, n, d, low, high, at))


def _no_more(name: str, named: dict) -> None:
    if named:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")


_REALS = (float, int)


def normal_(self, mean=0.0, std=1.0, *, generator=None):
    """Fill with normal numbers."""
    if type(mean) in _REALS and type(std) in _REALS and std >= 0 and _at_once(
            self, "normal" if self.sig.numel >= 16 else "normals", generator, float(mean),
            float(std)):
        return self
    _need("normal_kernel_cpu", self, "fc")
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    rng = twister_of(generator)
    return overwrite(self, "normal_", lambda n, d, at: _normals(self, rng, n, d, mean, std, at))


def _normals(x: Tensor, rng, n, d, mean, std, at) -> None:
    dense = x.sig.contiguous
    if x.sig.dtype.kind != "c":
        streams.normal(rng, n, d, mean, std, dense, at)
        return
    # The variance is shared by the parts; the mean belongs to the real one.
    values = streams.normal(rng, n, d, 0.0, std / math.sqrt(2), dense)
    values = values.reshape(-1, 2) + np.array([mean.real, mean.imag], values.dtype)
    streams.placed(values.reshape(-1), d, at)


def random_(self, *args, generator=None, **named):
    """Fill with integers of [from, to), or from 0 to the largest the dtype holds exactly."""
    given = list(args)
    low = named.pop("from", given.pop(0) if len(given) > 1 else None)
    high = named.pop("to", given.pop(0) if given else None)
    _no_more("random_", named)
    _need("random_", self, "biuf")
    rng = twister_of(generator)
    if low is None and high is None:
        return overwrite(self, "random_", lambda n, d, at: streams.random(rng, n, d, at))
    low = 0 if low is None else low
    _check_bounds("random_", low, high, self.sig.dtype)
    return overwrite(self, "random_", lambda n, d, at: streams.integers(rng, n, d, low, high, at))


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
    if self.sig.dtype.kind != "f":
        raise RuntimeError("Exponential distribution is a continuous probability distribution. "
                           f"dtype must be a floating point but you specified {self.sig.dtype}")
    rng = twister_of(generator)
    return overwrite(self, "exponential_",
                     lambda n, d, at: streams.exponential(rng, n, d, lambd, at))


def geometric_(self, p, *, generator=None):
    """Fill with the number of trials it takes to succeed once."""
    _need("geometric_cpu", self, "iuf")
    rng = twister_of(generator)
    return overwrite(self, "geometric_", lambda n, d, at: streams.geometric(rng, n, d, p, at))


def cauchy_(self, median=0, sigma=1, *, generator=None):
    """Fill with Cauchy numbers."""
    _need("cauchy_cpu", self, "f")
    rng = twister_of(generator)
    return overwrite(self, "cauchy_", lambda n, d, at: streams.cauchy(rng, n, d, median, sigma, at))


def log_normal_(self, mean=1, std=2, *, generator=None):
    """Fill with exp of normal numbers."""
    _need("log_normal_cpu", self, "f")
    rng = twister_of(generator)
    return overwrite(self, "log_normal_",
                     lambda n, d, at: streams.log_normal(rng, n, d, mean, std, at))


def bernoulli_(self, p=0.5, *, generator=None):
    """Fill with 1 with probability p, a number or a tensor, else 0."""
    if type(p) is float and 0 <= p <= 1 and _at_once(self, "bernoulli", generator, p):
        return self
    rng = twister_of(generator)
    if isinstance(p, Tensor):
        chances = np.broadcast_to(engine.to_array(p.detach()), self.sig.shape)
        return overwrite(self, "bernoulli_", lambda n, d, at: streams.bernoulli_each(
            rng, _in_fill_order(self, chances), d, at))
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return overwrite(self, "bernoulli_", lambda n, d, at: streams.bernoulli(rng, n, d, p, at))


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
    return options.finish(name, fill_with(x, name, draw), layout, pin_memory, requires_grad)


def float_dtype(name: str, dtype, out) -> dt.dtype:
    found = options.out_dtype(name, dtype, out)
    if found.kind not in "fc":
        raise NotImplementedError(f'"{name}" not implemented for \'{found}\'')
    return found


class _Runs(dict):
    """Signature -> the machine code that fills a new tensor with floats, or None."""

    def __init__(self, choose):
        self.choose = choose
        forget_plans.append(self.clear)

    def __missing__(self, sig):
        usual = sig is not None and sig.dtype.kind == "f" and sig.numel and sig.device is CPU
        self[sig] = streams.fill(self.choose(sig.numel), sig.dtype.name) if usual else None
        return self[sig]


_uniform = _Runs(lambda n: "uniform")
_normal = _Runs(lambda n: "normals" if n < 16 else "normal")


def state_of(generator) -> int:
    """Where the words are that a generator, or the default one, draws from."""
    if onlookers:
        notice()
    if tracers:
        tracers[-1].draws()
    if generator is None and default_generator._twister is not None:
        return default_generator._twister.state
    return twister_of(generator).state


def rand(*size, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False,
         requires_grad=False, **named):
    """Uniform numbers of [0, 1)."""
    if tracers:
        found = interception.in_trace("rand", rand, size, {
            "generator": generator, "out": out, "dtype": dtype, "device": device,
            "requires_grad": requires_grad, **named})
        if found is not None:
            return found[0]
    if out is None and not (named or layout or pin_memory or requires_grad):
        sig = create.met_before(size, dtype, device)
        run = _uniform[sig]
        if run is not None:
            x = empty(sig)
            run(state_of(generator), x.ptr, 0.0, 1.0, sig.numel)
            return x
    shape = options.sizes("rand", options.given_size("rand", size, named))
    kind, rng = float_dtype("rand", dtype, out), twister_of(generator)
    return new_random("rand", shape, lambda n, d, at: streams.uniform(rng, n, d, at=at), out, kind,
                      layout, device, pin_memory, requires_grad)


def randn(*size, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False,
          requires_grad=False, **named):
    """Standard normal numbers."""
    if tracers:
        found = interception.in_trace("randn", randn, size, {
            "generator": generator, "out": out, "dtype": dtype, "device": device,
            "requires_grad": requires_grad, **named})
        if found is not None:
            return found[0]
    if out is None and not (named or layout or pin_memory or requires_grad):
        sig = create.met_before(size, dtype, device)
        run = _normal[sig]
        if run is not None:
            x = empty(sig)
            run(state_of(generator), x.ptr, 0.0, 1.0, sig.numel)
            return x
    shape = options.sizes("randn", options.given_size("randn", size, named))
    kind, rng = float_dtype("randn", dtype, out), twister_of(generator)
    return new_random("randn", shape, _standard(kind, rng), out, kind, layout, device, pin_memory,
                      requires_grad)


def _standard(kind: dt.dtype, rng, dense: bool = True):
    """Standard normal numbers of a dtype; complex ones have variance 1 in all."""
    std = 1.0 if kind.kind == "f" else math.sqrt(0.5)
    return lambda n, d, at: streams.normal(rng, n, d, 0.0, std, dense, at)


def randint(*args, generator=None, out=None, dtype=None, layout=None, device=None,
            pin_memory=False, requires_grad=False, **named):
    """Integers of [low, high), low being 0 unless given: randint([low,] high, size)."""
    if tracers:
        found = interception.in_trace("randint", randint, args, {
            "generator": generator, "out": out, "dtype": dtype, "device": device,
            "requires_grad": requires_grad, **named})
        if found is not None:
            return found[0]
    plain = out is None and not (named or layout or pin_memory or requires_grad)
    if plain and not modes.inference and _whole(args):
        plan = _integers.get((args, dtype))
        if plan is not None and is_here(device):
            sig, run, width, low = plan
            x = empty(sig)
            run(state_of(generator), x.ptr, width, low, sig.numel)
            return x
    low, high, shape = _integer_arguments("randint", args, named)
    kind, rng = options.out_dtype("randint", dtype, out, dt.int64), twister_of(generator)
    _check_range("randint", low, high, kind)
    if plain and kind.kind == "i" and high - low < 2**28 and 0 not in shape and len(args) > 1:
        if len(_integers) > 1000:
            _integers.clear()
        with contextlib.suppress(TypeError):  # a list of sizes cannot be looked up
            _integers[args, dtype] = (signature(kind, shape),
                                      streams.fill("integers", kind.name), high - low, low)
    return new_random("randint", shape,
                      lambda n, d, at: streams.integers(rng, n, d, low, high, at), out, kind,
                      layout, device, pin_memory, requires_grad)


_integers: dict = {}  # (arguments, dtype) of randint -> signature, machine code, width, low
forget_plans.append(_integers.clear)


def _whole(args: tuple) -> bool:
    """Whether arguments are integers and a tuple of integers: 2.0 would be found where 2 is."""
    if not args or type(args[-1]) is not tuple:
        return False
    for a in (*args[:-1], *args[-1]):  # noqa: SIM110  (a generator costs as much as the rest)
        if type(a) is not int:
            return False
    return True


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
    return low, high, options.sizes(name, (size,))


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
    value = options.number(value)
    if isinstance(value, float):
        raise TypeError(f"{name}() received an invalid combination of arguments: bounds must be "
                        f"int, not {value}")
    return int(value)


@functools.cache
def _shuffle():
    return streams.code("twister_shuffle")


def randperm(n, *, generator=None, out=None, dtype=None, layout=None, device=None,
             pin_memory=False, requires_grad=False):
    """The integers from 0 to n - 1 in random order."""
    if tracers:
        found = interception.in_trace("randperm", randperm, (n,), {
            "generator": generator, "out": out, "dtype": dtype, "device": device,
            "requires_grad": requires_grad})
        if found is not None:
            return found[0]
    plain = type(n) is int and out is None and dtype is None and not (
        layout or pin_memory or requires_grad or modes.inference)
    if plain and 0 < n < 1 << 20 and is_here(device):
        x = empty(signature(dt.int64, (n,)))
        _shuffle()(state_of(generator), x.ptr, n)
        return x
    n = options.number(n)
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise TypeError(f"randperm(): argument 'n' (position 1) must be int, not "
                        f"{type(n).__name__}")
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    kind = options.out_dtype("randperm", dtype, out, dt.int64)
    if kind.kind in "bc":
        raise NotImplementedError(f'"randperm" not implemented for \'{kind}\'')
    limit = 2 ** streams.NUMBERS[kind.name].digits if kind.kind == "f" else dt.iinfo(kind).max
    if n > limit:
        raise RuntimeError(f"n is too large for result tensor type: '{kind}'")
    rng = twister_of(generator)
    return new_random("randperm", (int(n),),
                      lambda n, d, at: streams.permutation(rng, n, d, at=at), out, kind, layout,
                      device, pin_memory, requires_grad)


# -- like another tensor -------------------------------------------------------------------------


def _random_like(name: str, kinds: str, runs: _Runs, drawing):
    def drawn_like(input, *, generator=None, dtype=None, layout=None, device=None,
                   pin_memory=False, requires_grad=False, memory_format=None):
        if tracers or not isinstance(input, Tensor):
            ask = interception.in_trace if isinstance(input, Tensor) else interception.in_words
            found = ask(name, drawn_like, (input,), {
                "generator": generator, "dtype": dtype, "device": device,
                "requires_grad": requires_grad, "memory_format": memory_format})
            if found is not None:
                return found[0]
        sig = create_like.like_signature(name, input, dtype, device, memory_format)
        if sig.dtype.kind not in kinds:
            raise NotImplementedError(f'"{name}" not implemented for \'{sig.dtype}\'')
        if sig.contiguous and not (layout or pin_memory or requires_grad or modes.inference):
            run = runs[sig]
            if run is not None:
                x = empty(sig)
                run(state_of(generator), x.ptr, 0.0, 1.0, sig.numel)
                return x
        draw = drawing(sig, twister_of(generator))
        return new_random(name, sig.shape, draw, None, sig.dtype, layout, sig.device, pin_memory,
                          requires_grad, sig.strides)

    drawn_like.__name__ = drawn_like.__qualname__ = name
    drawn_like.__doc__ = f"Random numbers in a new tensor like `input` ({name})."
    return drawn_like


rand_like = _random_like("rand_like", "fc", _uniform,
                         lambda sig, rng: lambda n, d, at: streams.uniform(rng, n, d, at=at))
randn_like = _random_like("randn_like", "fc", _normal,
                          lambda sig, rng: _standard(sig.dtype, rng, sig.contiguous))


@interception.drawing
def randint_like(input, *args, generator=None, dtype=None, layout=None, device=None,
                 pin_memory=False, requires_grad=False, memory_format=None, **named):
    """Integers of [low, high) in a new tensor like `input`: randint_like(input, [low,] high)."""
    low, high = _bounds("randint_like", list(args), named)
    sig = create_like.like_signature("randint_like", input, dtype, device, memory_format)
    _check_range("randint_like", low, high, sig.dtype)
    rng = twister_of(generator)
    return new_random("randint_like", sig.shape,
                      lambda n, d, at: streams.integers(rng, n, d, low, high, at), None, sig.dtype,
                      layout, sig.device, pin_memory, requires_grad, sig.strides)


engine.randn = randn


def install() -> None:
    for name, method in METHODS.items():
        setattr(Tensor, name, interception.drawing(method))

