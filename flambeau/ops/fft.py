"""Fourier transforms: three of them on arrays, and torch's family made of those."""

from __future__ import annotations

from functools import lru_cache

from ..core import dtype as dt
from ..core import shape as sh
from ..core.lazily import np
from .declare import T, composite, engine, library, registry
from .product import conjugate

#: how a transform is scaled, by torch's norm, forwards and backwards: not, by 1/sqrt(n), by 1/n
FORWARD = {None: "none", "backward": "none", "ortho": "root", "forward": "n"}
INVERSE = {None: "n", "backward": "n", "ortho": "root", "forward": "none"}


def complex_of(d: dt.dtype) -> dt.dtype:
    return (d if d.kind in "fc" else dt.default_float()).to_complex()


def real_of(d: dt.dtype) -> dt.dtype:
    return (d if d.kind in "fc" else dt.default_float()).to_real()


def _sized(shape, dims, sizes) -> tuple[int, ...]:
    found = list(shape)
    for d, n in zip(dims, sizes, strict=True):
        found[d] = n
    return tuple(found)


# -- the three transforms ------------------------------------------------------------------------


def resized(x, shape):
    """Cut off at the end of each dimension, or lengthened by zeros, to a shape."""
    ends = [n - old for n, old in zip(shape, x.shape, strict=True)]
    pad = [v for end in reversed(ends) for v in (0, end)]
    return registry["constant_pad_nd"](x, tuple(pad), 0) if any(ends) else x


@library(method=False, function_form=False, backward="FftC2CBackward0")
def fft_c2c(x: T, sizes, dims, scale, forward):
    """A transform of complex or real numbers over some dimensions, brought to some sizes."""
    return _sized(x.shape, dims, sizes), complex_of(x.dtype)


@fft_c2c.gradient
def fft_c2c(g, x_meta, sizes, dims, scale, forward):
    back = resized(fft_c2c(g, sizes, dims, scale, not forward), x_meta.shape)
    return back if x_meta.dtype.kind == "c" else registry["real"](back)


@library(method=False, function_form=False, backward="FftR2CBackward0")
def fft_r2c(x: T, sizes, dims, scale):
    """A transform of real numbers; half of the last dimension, which tells the rest."""
    return _sized(x.shape, dims, (*sizes[:-1], sizes[-1] // 2 + 1)), complex_of(x.dtype)


@fft_r2c.gradient
def fft_r2c(g, x_meta, sizes, dims, scale):
    whole = resized(g, _sized(g.shape, dims, sizes))
    return resized(registry["real"](fft_c2c(whole, sizes, dims, scale, False)), x_meta.shape)


@library(method=False, function_form=False, backward="FftC2RBackward0")
def fft_c2r(x: T, sizes, dims, scale):
    """Real numbers from half of a spectrum: the inverse of fft_r2c, up to scale."""
    return _sized(x.shape, dims, sizes), real_of(x.dtype)


@fft_c2r.gradient
def fft_c2r(g, x_meta, sizes, dims, scale):
    half = fft_r2c(g, sizes, dims, scale)
    n, kept = sizes[-1], sizes[-1] // 2 + 1
    # Each frequency but the first and the middle one stands for two.
    counts = ((1, 1.0), (n - kept, 2.0), (2 * kept - n - 1, 1.0))
    weights = registry["cat"]([engine.full((m,), v, g.dtype) for m, v in counts if m], 0)
    weights = engine.reshape(weights, (kept,) + (1,) * (g.dim() - 1 - dims[-1]))
    back = resized(half * weights, x_meta.shape)
    return back if x_meta.dtype.kind == "c" else registry["real"](back)


# -- arguments -----------------------------------------------------------------------------------


def _check(name: str, dtype: dt.dtype, real: bool = False) -> None:
    if dtype in (dt.float16, dt.bfloat16):
        raise RuntimeError(f"{name}: Unsupported dtype {dtype.name}; convert to float32 first")
    if real and dtype.kind == "c":
        raise RuntimeError(f"{name} expects a real input tensor, but got {dtype.name}")


def _scale(name: str, table: dict, norm) -> str:
    if norm not in table:
        raise RuntimeError(f'{name}: Invalid normalization mode: "{norm}"; expected "forward", '
                           '"backward" or "ortho"')
    return table[norm]


def _positive(name: str, sizes) -> None:
    for n in sizes:
        if n < 1:
            raise RuntimeError(f"{name}: Invalid number of data points ({n}) specified")


@lru_cache(maxsize=4096, typed=True)
def _one(name: str, dtype: dt.dtype, shape, n, dim: int, norm, forward: bool, real: bool = False,
         half: bool = False):
    """(sizes, dims, scale) of a transform over one dimension, of real numbers only if said so;
    `half`: what is given is half a spectrum."""
    _check(name, dtype, real)
    if not shape:
        raise IndexError(f"{name}: Dimension specified as {dim} but tensor has no dimensions")
    d = sh.wrap_dim(dim, len(shape), name)
    size = (2 * (shape[d] - 1) if half else shape[d]) if n is None else int(n)
    _positive(name, (size,))
    return (size,), (d,), _scale(name, FORWARD if forward else INVERSE, norm)


def _several(name: str, x, s, dim, half: bool = False):
    """(sizes, dims) of a transform over several dimensions; `half`: the last one is half there."""
    s = (s,) if isinstance(s, int) else s
    dim = (dim,) if isinstance(dim, int) else dim
    if dim is not None:
        if dim and not x.dim():
            raise IndexError(f"{name}: Dimension specified as {dim[0]} but tensor has no "
                             "dimensions")
        dims = tuple(sh.wrap_dim(d, x.dim(), name) for d in dim)
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"{name}: FFT dims must be unique")
        if s is not None and len(s) != len(dims):
            raise RuntimeError(f"{name}: When given, dim and shape arguments must have the same "
                               f"length, got {len(dims)} and {len(s)}")
    elif s is not None:
        if len(s) > x.dim():
            raise RuntimeError(f"{name}: Got shape with {len(s)} values but input tensor only has "
                               f"{x.dim()} dimensions.")
        dims = tuple(range(x.dim() - len(s), x.dim()))
    else:
        dims = tuple(range(x.dim()))
    sizes = [x.shape[d] for d in dims]
    if half and dims:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if s is not None:
        sizes = [have if n == -1 else int(n) for n, have in zip(s, sizes, strict=True)]
    _positive(name, sizes)
    return tuple(sizes), dims


# -- one dimension -------------------------------------------------------------------------------


@composite(where="fft")
def fft(input, n=None, dim=-1, norm=None):
    """The discrete Fourier transform along one dimension."""
    return fft_c2c(input, *_one("fft", input.dtype, input.shape, n, dim, norm, True), True)


@composite(where="fft")
def ifft(input, n=None, dim=-1, norm=None):
    """The inverse of fft."""
    return fft_c2c(input, *_one("ifft", input.dtype, input.shape, n, dim, norm, False), False)


@composite(where="fft")
def rfft(input, n=None, dim=-1, norm=None):
    """The transform of real numbers: its first half, which tells the rest."""
    return fft_r2c(input, *_one("rfft", input.dtype, input.shape, n, dim, norm, True, True))


@composite(where="fft")
def irfft(input, n=None, dim=-1, norm=None):
    """The inverse of rfft; n says whether the result is odd."""
    return fft_c2r(input, *_one("irfft", input.dtype, input.shape, n, dim, norm, False, half=True))


@composite(where="fft")
def hfft(input, n=None, dim=-1, norm=None):
    """The real transform of half of a signal that equals its mirrored conjugate."""
    return fft_c2r(conjugate(input), *_one("hfft", input.dtype, input.shape, n, dim, norm, True,
                                           half=True))


@composite(where="fft")
def ihfft(input, n=None, dim=-1, norm=None):
    """The inverse of hfft."""
    return fft_r2c(input, *_one("ihfft", input.dtype, input.shape, n, dim, norm, False,
                                True)).conj()


# -- several dimensions ----------------------------------------------------------------------------


def _complex_several(name, x, s, dim, norm, forward: bool):
    _check(name, x.dtype)
    sizes, dims = _several(name, x, s, dim)
    scale = _scale(name, FORWARD if forward else INVERSE, norm)
    return fft_c2c(x, sizes, dims, scale, forward) if dims else engine.cast(x, complex_of(x.dtype))


def _some(name: str, sizes, dims):
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    return sizes, dims


@composite(where="fft")
def fftn(input, s=None, dim=None, norm=None):
    """The discrete Fourier transform over several dimensions, all unless told."""
    return _complex_several("fftn", input, s, dim, norm, True)


@composite(where="fft")
def ifftn(input, s=None, dim=None, norm=None):
    """The inverse of fftn."""
    return _complex_several("ifftn", input, s, dim, norm, False)


@composite(where="fft")
def rfftn(input, s=None, dim=None, norm=None):
    """fftn of real numbers: half of the last dimension."""
    _check("rfftn", input.dtype, True)
    sizes, dims = _some("rfftn", *_several("rfftn", input, s, dim))
    return fft_r2c(input, sizes, dims, _scale("rfftn", FORWARD, norm))


@composite(where="fft")
def irfftn(input, s=None, dim=None, norm=None):
    """The inverse of rfftn."""
    _check("irfftn", input.dtype)
    sizes, dims = _some("irfftn", *_several("irfftn", input, s, dim, half=True))
    return fft_c2r(input, sizes, dims, _scale("irfftn", INVERSE, norm))


@composite(where="fft")
def hfftn(input, s=None, dim=None, norm=None):
    """hfft over several dimensions, the last of which is halved."""
    _check("hfftn", input.dtype)
    sizes, dims = _some("hfftn", *_several("hfftn", input, s, dim, half=True))
    return fft_c2r(conjugate(input), sizes, dims, _scale("hfftn", FORWARD, norm))


@composite(where="fft")
def ihfftn(input, s=None, dim=None, norm=None):
    """The inverse of hfftn."""
    _check("ihfftn", input.dtype, True)
    sizes, dims = _some("ihfftn", *_several("ihfftn", input, s, dim))
    return fft_r2c(input, sizes, dims, _scale("ihfftn", INVERSE, norm)).conj()


@composite(where="fft")
def fft2(input, s=None, dim=(-2, -1), norm=None):
    """fftn over the last two dimensions."""
    return fftn(input, s, dim, norm)


@composite(where="fft")
def ifft2(input, s=None, dim=(-2, -1), norm=None):
    """ifftn over the last two dimensions."""
    return ifftn(input, s, dim, norm)


@composite(where="fft")
def rfft2(input, s=None, dim=(-2, -1), norm=None):
    """rfftn over the last two dimensions."""
    return rfftn(input, s, dim, norm)


@composite(where="fft")
def irfft2(input, s=None, dim=(-2, -1), norm=None):
    """irfftn over the last two dimensions."""
    return irfftn(input, s, dim, norm)


@composite(where="fft")
def hfft2(input, s=None, dim=(-2, -1), norm=None):
    """hfftn over the last two dimensions."""
    return hfftn(input, s, dim, norm)


@composite(where="fft")
def ihfft2(input, s=None, dim=(-2, -1), norm=None):
    """ihfftn over the last two dimensions."""
    return ihfftn(input, s, dim, norm)


# -- frequencies -----------------------------------------------------------------------------------


@composite(where="fft")
def fftfreq(n, d=1.0, *, dtype=None, layout=None, device=None, requires_grad=False):
    """The frequencies of fft's bins, in cycles per unit of the spacing d."""
    return new_vector(_bins(n, True) / (n * d), dtype, device, requires_grad)


@composite(where="fft")
def rfftfreq(n, d=1.0, *, dtype=None, layout=None, device=None, requires_grad=False):
    """The frequencies of rfft's bins."""
    return new_vector(_bins(n, False) / (n * d), dtype, device, requires_grad)


@lru_cache(maxsize=16)
def _bins(n: int, whole: bool):
    """The numbers of bins, those of negative frequencies last if the spectrum is whole."""
    bins, half = np.arange(n if whole else n // 2 + 1), n // 2
    return (bins + half) % n - half if whole and n else bins


def new_vector(values, dtype, device=None, requires_grad: bool = False):
    """A tensor of computed numbers, made as creation functions make theirs."""
    out = engine.tensor(values, dtype or dt.default_float())
    out = out if device is None else out.to(device)
    return out.requires_grad_() if requires_grad else out


@composite(where="fft")
def fftshift(input, dim=None):
    """Bring frequency zero to the middle."""
    dims = _shifted_dims(input, dim)
    return input.roll([input.shape[d] // 2 for d in dims], dims)


@composite(where="fft")
def ifftshift(input, dim=None):
    """The inverse of fftshift."""
    dims = _shifted_dims(input, dim)
    return input.roll([(input.shape[d] + 1) // 2 for d in dims], dims)


def _shifted_dims(x, dim) -> list[int]:
    dims = range(x.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim
    return [sh.wrap_dim(d, x.dim(), "fftshift") for d in dims]
