"""Statistics of samples: quantiles, covariance, histograms and counts."""

from __future__ import annotations

import math

from ..core import dtype as dt
from ..core import shape as sh
from .declare import T, Ts, composite, engine, library, registry
from .reduce import mean, sum
from .refusal import no_kernel
from .sort import sort

# -- quantiles -----------------------------------------------------------------------------------

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _check_quantile(name: str, input, q, interpolation: str) -> None:
    if not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty, got {tuple(input.shape)}")
    if input.dtype not in (dt.float32, dt.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype, got "
                           f"{input.dtype}")
    if q.dim() > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor, got {q.dim()} dimensions")
    if q.dtype is not input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor, got "
                           f"{q.dtype} and {input.dtype}")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint "
                           f"or nearest, but got {interpolation}")


def _quantile(name: str, input, q, dim, keepdim: bool, interpolation: str, ignore_nan: bool):
    if not hasattr(q, "dtype"):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        q = engine.tensor(float(q), input.dtype)
    elif q.numel() and not bool(((q >= 0) & (q <= 1)).all()):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    _check_quantile(name, input, q, interpolation)
    rank = input.dim()
    if dim is None:
        shape = [1] * rank
        rows = engine.reshape(input, (-1,))
    else:
        dim = sh.wrap_dim(dim, rank, name)
        shape = [1 if d == dim else n for d, n in enumerate(input.shape)]
        rows = _last(input, dim)
    found = _ranked(sort(rows, -1)[0], engine.reshape(q, (-1,)), interpolation, ignore_nan)
    if not keepdim:
        shape = [] if dim is None else [n for d, n in enumerate(shape) if d != dim]
    lead = (q.shape[0],) if q.dim() else ()
    return engine.reshape(registry["movedim"](found, -1, 0), (*lead, *shape))


def _last(x, dim: int):
    """Dimension `dim` moved to the end."""
    return registry["movedim"](x, dim, -1) if x.dim() else engine.reshape(x, (1,))


def _ranked(ordered, q, interpolation: str, ignore_nan: bool):
    """Elements of sorted rows at fractional ranks q (last - 0)."""
    size = ordered.shape[-1]
    unknown = (ordered != ordered).detach()
    if ignore_nan:
        counts = sum(unknown.logical_not(), -1, True)
        ranks = (q * (counts - 1)).clamp_min(0)
    else:
        ranks = q * (size - 1)
        ranks = registry["expand"](ranks, (*ordered.shape[:-1], q.shape[0]))
        spoiled = registry["any"](unknown, -1, True)
        ranks = registry["where"](spoiled, float(size - 1), ranks)
    if interpolation in ("lower", "higher", "nearest"):
        rounded = {"lower": ranks.floor, "higher": ranks.ceil, "nearest": ranks.round}
        return registry["gather"](ordered, -1, rounded[interpolation]().to(dt.int64))
    below = ranks.to(dt.int64)
    weights = ranks - below if interpolation == "linear" else 0.5 * (ranks != below)
    low = registry["gather"](ordered, -1, below)
    high = registry["gather"](ordered, -1, ranks.ceil().to(dt.int64))
    return registry["lerp"](low, high, engine.cast(weights, ordered.dtype))


@composite
def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """The q-th quantiles over `dim`, or over everything."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@composite
def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """The q-th quantiles of what is not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


# -- covariance ----------------------------------------------------------------------------------


def _check_weights(name: str, weights, observations: int, kinds: str) -> None:
    if weights.dim() > 1:
        raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got "
                           f"{weights.dim()}")
    if weights.dtype.kind not in kinds:
        raise RuntimeError(f"cov(): expected {name} to have "
                           f"{'integral' if kinds == 'iu' else 'floating point'} dtype but got "
                           f"{weights.dtype}")
    if weights.numel() != observations:
        raise RuntimeError(f"cov(): expected {name} to have the same numel as there are "
                           f"observations in the input but got {weights.numel()} != {observations}")
    if weights.numel() and bool((weights.detach() < 0).any()):
        raise RuntimeError(f"cov(): {name} cannot be negative")


@composite
def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariance matrix of variables in rows, observations in columns."""
    if input.dim() > 2:
        raise RuntimeError("cov(): expected input to have two or fewer dimensions but got an input "
                           f"with {input.dim()} dimensions")
    if input.dtype.kind == "b":
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input if input.dim() == 2 else engine.reshape(input, (1, -1))
    observations = x.shape[1]
    weights = None
    if fweights is not None:
        _check_weights("fweights", fweights, observations, "iu")
        weights = fweights
    if aweights is not None:
        _check_weights("aweights", aweights, observations, "f")
        weights = aweights if weights is None else weights * aweights
    if weights is not None:
        weights = engine.reshape(weights, (-1,))
    if x.dtype.kind not in "fc":
        x = engine.cast(x, dt.default_float())
    if weights is None:
        total, centre = observations, mean(x, 1, True)
    else:
        total = sum(weights)
        if observations and not bool(total.detach() != 0):
            raise RuntimeError("cov(): weights sum to zero, can't be normalized")
        centre = sum(x * weights, 1, True) / total
    freedom = _freedom(total, weights, aweights, correction)
    apart = x - centre
    other = registry["transpose"](apart if weights is None else apart * weights, 0, 1)
    if other.dtype.kind == "c":
        other = registry["conj"](other)
    apart, other = (engine.cast(v, dt.promote(apart.dtype, other.dtype)) for v in (apart, other))
    return registry["squeeze"](registry["matmul"](apart, other) / freedom)


def _freedom(total, weights, aweights, correction):
    if weights is None:
        return max(total - correction, 0)
    if correction == 0:
        freedom = total
    elif aweights is None:
        freedom = total - correction
    else:
        freedom = total - correction * sum(weights * aweights) / total
    return registry["clamp_min"](freedom, 0)


@composite
def corrcoef(input):
    """The correlation matrix of variables in rows."""
    if input.dim() > 2:
        raise RuntimeError("corrcoef(): expected input to have two or fewer dimensions but got an "
                           f"input with {input.dim()} dimensions")
    together = cov(input)
    if not together.dim():
        return together / together
    deviation = registry["sqrt"](registry["diagonal"](together))
    if deviation.dtype.kind == "c":
        deviation = registry["real"](deviation)
    ratio = together / deviation.unsqueeze(-1) / deviation.unsqueeze(0)
    if ratio.dtype.kind == "c":
        real, imag = (registry[part](ratio) for part in ("real", "imag"))
        return registry["complex"](real.clamp(-1, 1), imag.clamp(-1, 1))
    return ratio.clamp(-1, 1)


# -- counts --------------------------------------------------------------------------------------


@library
def bincount(input: T, weights: T = None, minlength=0):
    """How often each number occurs, or the sum of its weights."""
    if input.dtype.kind not in "iu":
        raise no_kernel("bincount_cpu", input.dtype)
    if input.rank != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs, got "
                           f"{input.dtype} of shape {tuple(input.shape)}")
    if minlength < 0:
        raise RuntimeError(f"minlength should be >= 0, got {minlength}")
    if weights is not None and tuple(weights.shape) != tuple(input.shape):
        raise RuntimeError("bincount: weights should be 1-d and have the same length as input, "
                           f"got {tuple(weights.shape)} and {tuple(input.shape)}")


@library(method=False, function_form=False)
def even_histogram(input: T, bins, low, high):
    """How many elements lie in each of `bins` equal intervals."""
    return (bins,)


def _range(name: str, input, low: float, high: float) -> tuple[float, float]:
    """The interval to count in: the given one, or where the elements are."""
    if low == high and input.numel():
        low, high = float(input.detach().min()), float(input.detach().max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"{name}: range of [{low}, {high}] is not finite")
    if low == high:
        low, high = low - 1, high + 1
    return low, high


@composite
def histc(input, bins=100, min=0, max=0):
    """How many elements lie in each of `bins` equal intervals between min and max."""
    if input.dtype.kind in "bc":
        raise no_kernel("histogram_cpu", input.dtype)
    if bins <= 0:
        raise RuntimeError(f"torch.histc(): bins must be > 0, but got {bins}")
    if min > max:
        raise RuntimeError(f"torch.histc: max must be larger than min, got [{min}, {max}]")
    if input.dtype.kind in "iu":
        raise no_kernel("histogram_cpu", input.dtype)
    low, high = _range("torch.histc", input, min, max)
    return even_histogram(input.detach(), bins, low, high)


@library(method=False, function_form=False)
def binned(input: T, edges: Ts, weight: T = None, density=False):
    """Weights of points (rows) added up in a grid of bins."""
    return tuple(e.numel - 1 for e in edges), input.dtype


def _edges(name: str, points, bins: list, given_range):
    """The borders of the bins of each coordinate."""
    edges = []
    for k, count in enumerate(bins):
        if hasattr(count, "dtype"):
            if count.dtype is not points.dtype:
                raise RuntimeError(f"torch.{name}(): input tensor and bins tensors should have the "
                                   f"same dtype, but got {points.dtype} and {count.dtype}")
            edges.append(count.detach())
            continue
        if count <= 0:
            raise RuntimeError(f"torch.{name}(): bins must be > 0, but got {count} for dimension "
                               f"{k}")
        if given_range is None:
            low, high = (0.0, 0.0) if not points.shape[0] else _extent(points, k)
        else:
            low, high = given_range[2 * k], given_range[2 * k + 1]
            if low > high:
                raise RuntimeError(f"torch.{name}(): min should not exceed max, got min {low} max "
                                   f"{high} for dimension {k}")
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(f"torch.{name}(): dimension {k}'s range [{low}, {high}] is not "
                               "finite")
        if low == high:
            low, high = (0.0, 1.0) if not points.shape[0] and given_range is None else (
                low - 0.5, high + 0.5)
        edges.append(engine.linspace(low, high, count + 1, dtype=points.dtype))
    return edges


def _extent(points, k: int) -> tuple[float, float]:
    column = points.detach().narrow(1, k, 1)
    return float(column.min()), float(column.max())


def _histogram(name: str, points, bins: list, given_range, weight, density: bool):
    if points.dtype.kind != "f":
        raise no_kernel("histogramdd", points.dtype)
    if weight is not None:
        if weight.dtype is not points.dtype:
            raise RuntimeError(f"torch.{name}(): if weight tensor is provided, input tensor and "
                               f"weight tensor should have the same dtype, got {points.dtype}, "
                               f"{weight.dtype}")
        if weight.numel() != points.shape[0]:
            raise RuntimeError(f"torch.{name}(): if weight tensor is provided it should have the "
                               "same shape as the input tensor excluding its innermost dimension, "
                               f"got {weight.numel()} weights for {points.shape[0]} points")
        weight = engine.reshape(weight.detach(), (-1,))
    edges = _edges(name, points, bins, given_range)
    return binned(points.detach(), edges, weight, bool(density)), edges


@composite
def histogram(input, bins, *, range=None, weight=None, density=False):
    """How many elements lie in each bin, and the borders of the bins."""
    points = engine.reshape(input, (-1, 1))
    found, edges = _histogram("histogram", points, [bins], range, weight, density)
    return engine.named(histogram, (found, edges[0]))


@composite(method=False)
def histogramdd(input, bins, range=None, weight=None, density=False):
    """How many points (rows) lie in each bin of a grid, and the borders of its bins."""
    if input.dim() < 2:
        raise RuntimeError("torch.histogramdd(): input tensor should have at least 2 dimensions, "
                           f"but got {input.dim()}")
    coordinates = input.shape[-1]
    bins = [bins] * coordinates if isinstance(bins, int) else list(bins)
    if len(bins) != coordinates:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension "
                           f"of the input, which is {coordinates}, but got {len(bins)}")
    points = engine.reshape(input, (-1, coordinates))
    found, edges = _histogram("histogramdd", points, bins, range, weight, density)
    return engine.named(histogramdd, (found, tuple(edges)))
