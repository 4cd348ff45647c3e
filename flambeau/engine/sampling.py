"""Samples of distributions that tensors give the parameters of; what gradient there is of them."""

from __future__ import annotations

from typing import Any

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import CPU, META
from ..core.lazily import Lazily, np
from ..devices.cpu import likeness
from ..ops.declare import registry
from ..ops.refusal import spoken
from . import convert, create_like, interception, options
from .eager import engine
from .fresh import empty
from .generator import twister_of
from .modes import modes
from .node import edge_of, kept_values, new_node
from .random import Erased, bernoulli_, float_dtype, new_random, streams
from .storage import checkers
from .tensor import Tensor, make, signature
from .written_out import write_out

rejection: Any = Lazily("flambeau.devices.cpu.random_rejection")
slopes: Any = Lazily("flambeau.devices.cpu.gamma_slope")
share_slopes: Any = Lazily("flambeau.devices.cpu.beta_slope")


def drawn(name: str, values: np.ndarray, dtype: dt.dtype, sources, out=None,
          form: int = 0) -> Tensor:
    """A result whose gradient with respect to its sources is zero."""
    x = convert.copied(values, dtype)
    if out is not None:
        return write_out(name, x, sources, out)
    tensors = [s for s in sources if isinstance(s, Tensor)]
    if modes.grad and dtype.kind == "f" and any(t.node is not None for t in tensors):
        parents = tuple(edge_of(t) if t.node is not None else None for t in tensors)
        step = Erased(f"{name.title()}Backward{form}", [t.sig for t in tensors])
        x.node = new_node(step, parents, (), (x.sig,))
    return x


def on_meta(*sources) -> bool:
    return any(isinstance(s, Tensor) and s.sig.device is META for s in sources)


@interception.drawing
def normal(mean=0.0, std=1.0, size=None, *, generator=None, out=None, dtype=None, layout=None,
           device=None, pin_memory=False, requires_grad=False):
    """Normal numbers around a mean, a number or a tensor, with a deviation, likewise."""
    if out is None and size is None:
        found = _around_by_code(mean, std, generator)
        if found is not None:
            return found
    rng = twister_of(generator)
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if size is None:
            raise TypeError("normal() received an invalid combination of arguments: with numbers "
                            "for mean and std, a size is needed")
        if not std >= 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
        kind = float_dtype("normal", dtype, out)
        shape = options.sizes("normal", (size,))
        return new_random("normal", shape,
                          lambda n, d, at: streams.normal(rng, n, d, mean, std, True, at), out,
                          kind, layout, device, pin_memory, requires_grad)
    return _normal_around(mean, std, rng, out)


def _around_by_code(mean, std, generator) -> Tensor | None:
    """The same of floats of one kind, where nothing is recorded of them, by native code."""
    kind, shapes = None, []
    for t in (mean, std):
        if type(t) is not Tensor:
            if type(t) not in (float, int):
                return None
            continue
        sig = t.sig
        if sig.dtype not in _CHANCES or sig.device is not CPU or sig.tag is not None or (
                not sig.numel or kind not in (None, sig.dtype)) or (
                t.node is not None and modes.grad):
            return None
        kind = sig.dtype
        shapes.append(tuple(sig.shape))
    if kind is None:
        return None
    x: Any = empty(signature(kind, shapes[0] if shapes[0] == shapes[-1] else
                             sh.broadcast("normal", *shapes)))
    if type(std) is not Tensor:
        return x.normal_(0.0, std, generator=generator).add_(mean)
    _refuse_negative(std)
    return x.normal_(generator=generator).mul_(std).add_(mean)


def _refuse_negative(std: Any) -> None:
    """A deviation below zero, or one that is no number, is an error."""
    def refuse() -> Exception:
        return RuntimeError("normal expects all elements of std >= 0.0")

    if checkers:
        engine.check_none((std.detach() >= 0).logical_not().sum(), refuse)
    elif not convert.item(std.detach().min()) >= 0:
        raise refuse()


def _normal_around(mean, std, rng, out) -> Tensor:
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    for t in tensors:
        if t.sig.dtype.kind not in "fc":
            raise RuntimeError(f"normal: expects a floating point tensor, got {t.sig.dtype}")
    if isinstance(std, Tensor) and std.sig.dtype.kind == "c":
        raise RuntimeError("normal expects standard deviation to be non-complex")
    kind = dt.promote(tensors[0].sig.dtype, tensors[-1].sig.dtype)
    shape = sh.broadcast("normal", *(tuple(t.sig.shape) for t in tensors))
    if on_meta(*tensors):
        return empty(signature(kind, shape, None, META))
    carrier = streams.NUMBERS[kind.name].kind
    form = 3 if len(tensors) == 2 else 2 if tensors[0] is std else 1    # of torch's
    mean, std = (engine.to_array(v.detach()).astype(carrier) if isinstance(v, Tensor) else v
                 for v in (mean, std))
    values = streams.normal_around(rng, mean, std, kind.name)
    return drawn("normal", values.reshape(shape), kind, tensors, out, form)


@interception.drawing
def bernoulli(input, p=None, *, generator=None, out=None):
    """1 with the probability that each element gives, or p, else 0."""
    if type(input) is Tensor and p is None and out is None:
        drawn_so = _with_chances(input, generator)
        if drawn_so is not None:
            return drawn_so
    _tensor("bernoulli", input)
    rng, kind = twister_of(generator), input.sig.dtype
    if p is not None:
        x = empty(create_like.like_signature("bernoulli", input, None, None, None))
        return bernoulli_(x, p, generator=generator)
    if kind.kind != "f":
        raise NotImplementedError(f'"bernoulli_tensor_cpu_p_" not implemented for \'{kind}\'')
    if on_meta(input):
        return empty(input.sig)
    values = streams.bernoulli_each(rng, engine.to_array(input.detach()), kind.name)
    return drawn("bernoulli", values.reshape(input.sig.shape), kind, (input,), out)


def _with_chances(x: Any, generator) -> Tensor | None:
    """The same by native code, where nothing is recorded and all chances are fractions."""
    sig = x.sig
    if sig.dtype not in _CHANCES or not sig.contiguous or sig.device is not CPU or (
            sig.tag is not None or not sig.numel or (x.node is not None and modes.grad)):
        return None
    name, n = sig.dtype.name, sig.numel
    if checkers:
        engine.check_none(((x >= 0) & (x <= 1)).logical_not().sum(), _no_chance)
    elif not likeness.fractions(name)(x.ptr, n):
        return None
    out = empty(signature(sig.dtype, sig.shape))
    streams.fill("bernoulli_each", name, name)(twister_of(generator).state, out.ptr, x.ptr, n)
    return out


def _no_chance() -> Exception:
    return RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false")


_CHANCES = (dt.float32, dt.float64)


def _tensor(name: str, x) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not "
                        f"{type(x).__name__}")


@interception.drawing
def poisson(input, generator=None):
    """A Poisson number for each rate."""
    _tensor("poisson", input)
    kind = input.sig.dtype
    if kind.kind != "f":
        raise NotImplementedError(f'"poisson_cpu" not implemented for \'{kind}\'')
    if on_meta(input):
        return empty(input.sig)
    values = rejection.poisson(twister_of(generator), engine.to_array(input.detach()), kind.name)
    return drawn("poisson", values.reshape(input.sig.shape), kind, (input,))


@interception.drawing
def binomial(count, prob, generator=None):
    """A binomial number for each count and probability."""
    for t in (count, prob):
        _tensor("binomial", t)
        if t.sig.dtype.kind != "f":
            raise ValueError(f"binomial only supports floating-point dtypes for count and prob, "
                             f"got {t.sig.dtype}")
    kind = count.sig.dtype
    counts, chances = np.broadcast_arrays(engine.to_array(count.detach()),
                                          engine.to_array(prob.detach()))
    values = rejection.binomial(twister_of(generator), counts, chances, kind.name)
    return drawn("binomial", values.reshape(counts.shape), kind, (count, prob))


MOST_CATEGORIES = 2**24  # what float32 counts one by one


@interception.drawing
def multinomial(input, num_samples, replacement=False, *, generator=None, out=None):
    """Numbers of categories, drawn by weight, for a vector or for each row of weights."""
    _tensor("multinomial", input)
    sig = input.sig
    if sig.rank not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if sig.dtype.kind != "f":
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: "
                           f"{sig.dtype}")
    if out is not None and out.sig.dtype is not dt.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {spoken(out.sig.dtype)}")
    n, categories = num_samples, sig.shape[-1]
    if categories > MOST_CATEGORIES:
        raise RuntimeError("number of categories cannot exceed 2^24")
    if n <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and n > categories:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without "
                           "replacement")
    shape = (n,) if sig.rank == 1 else (sig.shape[0], n)
    if sig.device is META:
        return empty(signature(dt.int64, shape, None, META))
    if out is None and sig.contiguous and sig.dtype in (dt.float32, dt.float64) and sig.numel:
        return _chosen(twister_of(generator), input, n, replacement, signature(dt.int64, shape))
    values = rejection.multinomial(twister_of(generator), engine.to_array(input.detach()), n,
                                   replacement, sig.dtype.name)
    return drawn("multinomial", np.asarray(values).reshape(shape), dt.int64, (), out)


def _chosen(rng, input: Tensor, n: int, replacement: bool, out) -> Tensor:
    """multinomial by native code."""
    sig = input.sig
    given = (input.ptr, sig.shape[-1], sig.numel, sig.dtype.name)
    if n == 1:
        chosen, times = empty(out), empty(signature(sig.dtype, sig.shape))
        rejection.choose_one(rng, *given, times.ptr, chosen.ptr)
        return chosen
    if replacement:
        chosen, spare = empty(out), empty(signature(dt.float64, (out.numel + sig.shape[-1],)))
        rejection.choose_again(rng, *given, n, spare.ptr, chosen.ptr)
        return chosen
    rejection.demand_fit(*given)
    times = empty(signature(sig.dtype, sig.shape))
    streams.exponential(rng, sig.numel, sig.dtype.name, 1.0, times.ptr)
    speed = engine.without_grad(registry["true_divide"], make(sig, input.mem, input.ptr), times)
    return registry["topk"](speed, n)[1]


class GammaBack:
    """Goes back from gamma samples to their shapes: samples move so that their quantiles stay."""

    def name(self) -> str:
        return "StandardGammaBackward0"

    def pull(self, node, g):
        shapes, samples = kept_values(node)
        return [g * standard_gamma_grad(shapes, samples)]


@interception.drawing
def standard_gamma(input, generator=None):
    """A gamma number of scale 1 for each shape; the gradient is that of its quantile."""
    _tensor("_standard_gamma", input)
    sig, kind = input.sig, input.sig.dtype
    if kind not in (dt.float32, dt.float64):
        raise NotImplementedError(f'"gamma" not implemented for \'{kind}\'')
    if sig.device is META:
        return empty(sig)
    shapes = np.ascontiguousarray(convert.raw_array(input)).ravel()
    wrong = np.isnan(shapes)
    drawn_at = np.where(wrong, 1, shapes) if wrong.any() else shapes
    values = rejection.standard_gamma(twister_of(generator), drawn_at, kind.name)
    x = convert.copied(np.where(wrong, np.nan, values).astype(kind.numpy).reshape(sig.shape), kind)
    if modes.grad and input.node is not None:
        kept = (input, make(x.sig, x.mem, x.ptr))
        x.node = new_node(GammaBack(), (edge_of(input),), kept, (x.sig,))
    return x


def standard_gamma_grad(input, output):
    """How samples of the gamma distribution move with their shapes."""
    values = slopes.gamma_slope(convert.raw_array(input.detach()),
                                convert.raw_array(output.detach()))
    return convert.copied(values.reshape(output.sig.shape).astype(output.sig.dtype.numpy),
                          output.sig.dtype)


def dirichlet_grad(x, alpha, total):
    """How shares of Dirichlet samples move with their parameters, out of 1 - x."""
    values = share_slopes.beta_slope(*(convert.raw_array(v.detach()) for v in (x, alpha, total)))
    return convert.copied(values.reshape(x.sig.shape).astype(x.sig.dtype.numpy), x.sig.dtype)


def install() -> None:
    Tensor.bernoulli, Tensor.multinomial = bernoulli, multinomial
