"""Short-time Fourier transforms: a signal cut into overlapping frames, and put together again."""

from __future__ import annotations

from .declare import T, composite, engine, library, registry
from .fft import fft_c2c, fft_c2r, fft_r2c, resized


@library(method=False, function_form=False)
def overlap_add(frames: T, hop):
    """Frames (..., count, width) added at steps of `hop`."""
    *lead, count, width = frames.shape
    return (*lead, (count - 1) * hop + width)


@overlap_add.gradient
def overlap_add(g, frames_meta, hop):
    return g.unfold(-1, frames_meta.shape[-1], hop)


def _centred(window, n_fft: int):
    """A window shorter than a frame sits in its middle."""
    short = n_fft - window.shape[0]
    if not short:
        return window
    return registry["nn.functional.pad"](window, (short // 2, short - short // 2))


def _check_window(name: str, window, win_length: int, n_fft: int) -> None:
    if not 0 < win_length <= n_fft:
        raise RuntimeError(f"{name}: expected 0 < win_length <= n_fft, but got win_length="
                           f"{win_length} and n_fft={n_fft}")
    if window is not None and (window.dim() != 1 or window.shape[0] != win_length):
        raise RuntimeError(f"{name}: expected a 1D window tensor of size equal to win_length="
                           f"{win_length}, but got window with size {list(window.shape)}")


@composite
def stft(input, n_fft, hop_length=None, win_length=None, window=None, center=True,
         pad_mode="reflect", normalized=False, onesided=None, return_complex=None,
         align_to_window=None):
    """Spectra of overlapping frames of a signal: (..., frequencies, frames)."""
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    is_complex = input.dtype.is_complex or (window is not None and window.dtype.is_complex)
    return_complex = _complex_wanted(return_complex, is_complex)
    x = input.unsqueeze(0) if input.dim() == 1 else input
    if x.dim() != 2:
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, but got {input.dim()}D")
    if input.dtype.kind not in "fc":
        raise RuntimeError("stft: expected a tensor of floating point or complex values, but got "
                           f"{input.dtype.name}")
    if center:
        x = registry["nn.functional.pad"](x.unsqueeze(0), (n_fft // 2, n_fft // 2),
                                          mode=pad_mode).squeeze(0)
    if not 0 < n_fft <= x.shape[-1]:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {x.shape[-1]}, but got n_fft={n_fft}")
    if hop <= 0:
        raise RuntimeError(f"stft: expected hop_length > 0, but got hop_length={hop}")
    _check_window("stft", window, width, n_fft)
    frames = x.unfold(-1, n_fft, hop)
    if window is not None:
        frames = frames * _centred(window, n_fft)
    elif width < n_fft:
        frames = frames * _centred(engine.full((width,), 1.0, x.dtype), n_fft)
    half = not is_complex if onesided is None else onesided
    if half and is_complex:
        raise RuntimeError("stft: Cannot have onesided output if window or input is complex")
    scale = "root" if normalized else "none"
    out = (fft_r2c(frames, (n_fft,), (2,), scale) if half else
           fft_c2c(frames, (n_fft,), (2,), scale, True)).transpose(1, 2)
    out = out.squeeze(0) if input.dim() == 1 else out
    return out if return_complex else registry["view_as_real"](out)


def _complex_wanted(wanted, is_complex: bool) -> bool:
    if wanted is None and not is_complex:
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs, "
                           "and will further require that return_complex=True in a future PyTorch "
                           "release.")
    return True if wanted is None else wanted


@composite
def istft(input, n_fft, hop_length=None, win_length=None, window=None, center=True,
          normalized=False, onesided=None, length=None, return_complex=False):
    """The signal whose stft is given: frames added together, divided by what windows add up to."""
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    _check_spectrum(input, n_fft, hop, onesided, return_complex)
    _check_window("istft", window, width, n_fft)
    half = input.shape[-2] != n_fft if onesided is None else onesided
    x = (input.unsqueeze(0) if input.dim() == 2 else input).transpose(1, 2)
    scale = "root" if normalized else "n"
    if return_complex:
        frames = fft_c2c(x, (n_fft,), (2,), scale, False)
    elif half:
        frames = fft_c2r(x, (n_fft,), (2,), scale)
    else:
        frames = fft_c2r(resized(x, (*x.shape[:2], n_fft // 2 + 1)), (n_fft,), (2,), scale)
    if window is None:
        window = engine.full((width,), 1.0, frames.dtype.to_real())
    window = _centred(window, n_fft)
    count = x.shape[1]
    y = overlap_add(frames * window, hop)
    envelope = overlap_add((window * window).expand((count, n_fft)), hop)
    start = n_fft // 2 if center else 0
    total = y.shape[-1]
    end = start + length if length is not None else total - n_fft // 2 if center else total
    y, envelope = (t.narrow(-1, start, min(end, total) - start) for t in (y, envelope))
    if float(registry["abs"](envelope).min()) < 1e-11:
        raise RuntimeError("istft: window overlap add min: 1")
    y = y / envelope
    if end > total:
        y = resized(y, (y.shape[0], end - start))
    return y.squeeze(0) if input.dim() == 2 else y


def _check_spectrum(input, n_fft: int, hop: int, onesided, return_complex: bool) -> None:
    if not input.dtype.is_complex:
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from "
                           "stft with return_complex=True.")
    if not input.numel():
        raise RuntimeError("istft: input tensor cannot be empty.")
    if input.dim() not in (2, 3):
        raise RuntimeError("istft: expected a tensor with 2 or 3 dimensions, but got "
                           f"{input.dim()}")
    if hop <= 0:
        raise RuntimeError(f"istft: expected hop_length > 0, but got hop_length={hop}")
    bins = input.shape[-2]
    half = bins != n_fft if onesided is None else onesided
    wanted = n_fft // 2 + 1 if half else n_fft
    if bins != wanted:
        raise RuntimeError(f"istft: expected the frequency dimension (3rd to the last) of the "
                           f"input tensor to match n_fft / 2 + 1 when onesided=True, or n_fft "
                           f"otherwise: got {bins}, wanted {wanted}")
    if return_complex and half:
        raise RuntimeError("istft: cannot have onesided input if return_complex=True")
