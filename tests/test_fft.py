"""Fourier transforms against numpy, their gradients, short-time transforms, windows."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch

NORMS = [None, "forward", "backward", "ortho"]


def real(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def both(shape):
    return real(shape) + 1j * real(shape, 1)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [None, 5, 12])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_dimension(name, n, norm):
    a = real((3, 8)) if name in ("rfft", "ihfft") else both((3, 8))
    for dim in (-1, 0):
        found = getattr(torch.fft, name)(torch.tensor(a), n, dim, norm)
        wanted = getattr(np.fft, name)(a, n, dim, norm)
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-12)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "irfft2"])
def test_several_dimensions(name):
    a = real((3, 4, 6)) if name == "rfftn" else both((3, 4, 6))
    np.testing.assert_allclose(getattr(torch.fft, name)(torch.tensor(a), dim=(0, 2)).numpy(),
                               getattr(np.fft, name)(a, axes=(0, 2)), atol=1e-12)


def test_dtypes():
    assert torch.fft.fft(torch.ones(4)).dtype is torch.complex64
    assert torch.fft.rfft(torch.ones(4, dtype=torch.int64)).dtype is torch.complex64
    assert torch.fft.irfft(torch.ones(4, dtype=torch.complex128)).dtype is torch.float64
    with pytest.raises(RuntimeError, match="real input"):
        torch.fft.rfft(torch.ones(4, dtype=torch.complex64))
    with pytest.raises(RuntimeError, match="data points"):
        torch.fft.fft(torch.ones(4), n=0)
    with pytest.raises(RuntimeError, match="normalization"):
        torch.fft.fft(torch.ones(4), norm="none")


@pytest.mark.parametrize("n", [None, 5, 9])
@pytest.mark.parametrize("name", ["fft", "rfft", "irfft"])
def test_gradients(name, n):
    """A transform is linear: its gradient must be its adjoint, <F x, y> = <x, F* y>."""
    a = torch.tensor(both((7,)) if name == "irfft" else real((7,)), requires_grad=True)
    out = getattr(torch.fft, name)(a, n)
    y = torch.tensor(real(out.shape, 2) + 1j * real(out.shape, 3)) if out.is_complex() else (
        torch.tensor(real(out.shape, 2)))
    (g,) = torch.autograd.grad(out, a, y)
    step = torch.tensor(both((7,)) if name == "irfft" else real((7,), 5))
    forward = (y.conj() * getattr(torch.fft, name)(step, n)).sum()
    back = (g.conj() * step).sum()
    first, second = (t.real.item() if t.is_complex() else t.item() for t in (forward, back))
    assert first == pytest.approx(second, rel=1e-9)


def test_shifts_and_frequencies():
    for n in (7, 8):
        a = torch.fft.fftfreq(n, 0.5)
        np.testing.assert_allclose(a.numpy(), np.fft.fftfreq(n, 0.5), rtol=1e-6)
        np.testing.assert_allclose(torch.fft.rfftfreq(n).numpy(), np.fft.rfftfreq(n), rtol=1e-6)
        np.testing.assert_allclose(torch.fft.fftshift(a).numpy(), np.fft.fftshift(a.numpy()))
        assert torch.equal(torch.fft.ifftshift(torch.fft.fftshift(a)), a)


@pytest.mark.parametrize("center", [True, False])
def test_stft_of_a_signal_comes_back(center):
    signal = torch.tensor(real((2, 256)))
    window = torch.hann_window(64, dtype=torch.float64) + 0.1
    spectrum = torch.stft(signal, 64, 16, window=window, center=center, return_complex=True)
    assert spectrum.shape[:2] == (2, 33)
    again = torch.istft(spectrum, 64, 16, window=window, center=center, length=256)
    np.testing.assert_allclose(again.numpy(), signal.numpy(), atol=1e-9)


def test_windows():
    for name in ("hanning", "hamming", "blackman", "bartlett"):
        ours = {"hanning": "hann"}.get(name, name)
        found = getattr(torch.signal.windows, ours)(9)
        np.testing.assert_allclose(found.numpy(), getattr(np, name)(9), atol=1e-6)
        periodic = getattr(torch, f"{ours}_window")(8)
        np.testing.assert_allclose(periodic.numpy(), getattr(np, name)(9)[:8], atol=1e-6)
    np.testing.assert_allclose(torch.kaiser_window(9, False, 5.0).numpy(), np.kaiser(9, 5.0),
                               atol=1e-6)
    assert torch.hann_window(0).shape == (0,)
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.hann_window(-1)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 7, 12, 31, 32, 60, 64, 97, 128, 210, 256, 1024])
@pytest.mark.parametrize("rows", [(), (1,), (3,), (4,), (2, 5)])
def test_lengths_and_rows_by_machine_code(n, rows):
    """Twice, as what was met before goes another way."""
    rng = np.random.default_rng(n)
    real = rng.standard_normal((*rows, n))
    both = real + 1j * rng.standard_normal((*rows, n))
    for name, given in (("fft", real), ("fft", both), ("ifft", both), ("rfft", real)):
        want = getattr(np.fft, name)(given)
        for _ in range(2):
            found = getattr(torch.fft, name)(torch.tensor(given)).numpy()
            assert np.abs(found - want).max() <= 1e-14 * max(1, n) ** 0.5 * np.abs(want).max()
    for size in (2 * n, 2 * n + 1):
        want = np.fft.irfft(both, size)
        for _ in range(2):
            found = torch.fft.irfft(torch.tensor(both), size).numpy()
            assert np.abs(found - want).max() <= 1e-13


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("size", [None, 3, 8])
def test_dimensions_cut_off_or_filled_up(dim, size):
    x = np.random.default_rng(0).standard_normal((5, 4, 6))
    for _ in range(2):
        for laid in (torch.tensor(x), torch.tensor(x.T.copy()).permute(2, 1, 0)):
            assert np.allclose(torch.fft.fft(laid, size, dim).numpy(), np.fft.fft(x, size, dim))
            assert np.allclose(torch.fft.rfft(laid, size, dim).numpy(), np.fft.rfft(x, size, dim))


#: rows that go together, in twos, and alone; lengths of every factor, and one that needs memory
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 2, 9, 17, 37])
@pytest.mark.parametrize("n", [5, 8, 16, 49, 100, 255, 256, 512, 720, 4100])
def test_rows_together_and_alone(dtype, rows, n):
    rng = np.random.default_rng(n)
    real = rng.standard_normal((rows, n)).astype(dtype)
    both = (real + 1j * rng.standard_normal((rows, n))).astype(np.result_type(dtype, "complex64"))
    allowed = 8 * np.finfo(dtype).eps

    def close(found, want):
        assert np.abs(found.numpy() - want).max() <= allowed * np.abs(want).max()

    for given in (real, both):
        for x, dim in ((given, 1), (np.ascontiguousarray(given.T), 0)):
            wide = x.astype("complex128")
            close(torch.fft.fft(torch.tensor(x), dim=dim), np.fft.fft(wide, axis=dim))
            close(torch.fft.ifft(torch.tensor(x), dim=dim), np.fft.ifft(wide, axis=dim))
            close(torch.fft.irfft(torch.tensor(x), n, dim), np.fft.irfft(wide, n, dim))
    for size in (n, n + 3, n - 3):
        close(torch.fft.rfft(torch.tensor(real), size), np.fft.rfft(real.astype("f8"), size))
        close(torch.fft.ihfft(torch.tensor(real), size), np.fft.ihfft(real.astype("f8"), size))
        close(torch.fft.irfft(torch.tensor(both), size), np.fft.irfft(both.astype("c16"), size))
    close(torch.fft.rfft(torch.tensor(real.T.copy()), dim=0),
          np.fft.rfft(real.T.astype("f8"), axis=0))


def test_a_long_row_of_single_precision():
    x = np.random.default_rng(0).standard_normal(1 << 17).astype("float32")
    want = np.fft.rfft(x.astype("float64"))
    found = torch.fft.rfft(torch.tensor(x)).numpy()
    assert np.abs(found - want).max() <= 1e-6 * np.abs(want).max()
