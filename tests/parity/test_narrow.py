"""Floats of eight bits and complex numbers of halves: bit by bit as torch has them."""

import io
import warnings

import numpy as np
import pytest
import torch

import flambeau
from flambeau import safetensors

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")


def patterns():
    """Floats of all exponents, among them those at every edge and halfway between neighbours."""
    rng = np.random.default_rng(0)
    bits = np.concatenate([
        rng.integers(0, 2**32, 50_000, np.uint64).astype(np.uint32),
        np.arange(0, 2**32, 2**16, np.uint64).astype(np.uint32),
        np.arange(0, 2**32, 2**16, np.uint64).astype(np.uint32) + np.uint32(1),
        np.arange(0, 2**32, 2**16, np.uint64).astype(np.uint32) - np.uint32(1)])
    return bits.view(np.float32)


@pytest.mark.parametrize("name", FLOAT8)
def test_eight_bits_from_float32_and_back(name):
    x = patterns()
    ours = flambeau.from_numpy(x).to(getattr(flambeau, name)).view(flambeau.uint8).numpy()
    theirs = torch.from_numpy(x).to(getattr(torch, name)).view(torch.uint8).numpy()
    np.testing.assert_array_equal(ours, theirs)
    codes = np.arange(256, dtype=np.uint8)
    back = flambeau.from_numpy(codes).view(getattr(flambeau, name)).float().numpy()
    wanted = torch.from_numpy(codes).view(getattr(torch, name)).float().numpy()
    np.testing.assert_array_equal(back.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("other", ["float64", "float16", "bfloat16", "int64", "int8", "bool"])
def test_eight_bits_and_other_dtypes(name, other):
    def there_and_back(lib):
        kind = getattr(lib, other)
        x = lib.tensor([0, 1, 2.5, -3.25, 100, -0.0, 1e-3]).to(kind).to(getattr(lib, name))
        return x.view(lib.uint8).tolist(), x.to(kind).float().tolist()

    assert there_and_back(flambeau) == there_and_back(torch)


def shown(lib, name):
    x = lib.tensor([1.0, 2.3, -4.5, 500, 1e-9]).to(getattr(lib, name))
    yield x
    yield x.type(), x[1].item(), x.tolist(), x.element_size(), x.dtype.is_signed
    yield lib.finfo(x.dtype)
    yield lib.cat([x, x])[3:7], x.reshape(5, 1).expand(5, 2), x == x, x.clone().fill_(2)
    yield x.index_select(0, lib.tensor([2, 0])), x.bool(), x.half()
    yield lib.full((2,), 3.3, dtype=x.dtype), lib.tensor([1.0, 2.0], dtype=x.dtype)
    yield lib.where(lib.tensor([True, False, True, True, False]), x, x)


@pytest.mark.parametrize("name", FLOAT8)
def test_eight_bits_look_as_in_torch(name):
    ours, theirs = ([str(v) for v in shown(lib, name)] for lib in (flambeau, torch))
    assert ours == theirs


@pytest.mark.parametrize("name", FLOAT8)
def test_eight_bits_are_promoted_to_nothing(name):
    messages = []
    for lib in (flambeau, torch):
        with pytest.raises(RuntimeError, match="Promotion for Float8 Types") as caught:
            lib.ones(2, dtype=getattr(lib, name)) + lib.ones(2)
        messages.append(str(caught.value))
    assert messages[0].startswith(messages[1])


@pytest.mark.parametrize("name", (*FLOAT8, "complex32"))
def test_checkpoints_are_exchanged(name):
    for writer, reader in ((flambeau, torch), (torch, flambeau)):
        file = io.BytesIO()
        x = writer.arange(1.0, 7).reshape(2, 3)
        writer.save({"x": x.to(getattr(writer, name)).t()}, file)
        file.seek(0)
        x = reader.load(file)["x"]
        assert x.dtype is getattr(reader, name) and tuple(x.shape) == (3, 2)
        assert x.float().tolist() == [[1, 4], [2, 5 if "e8m0" not in name else 4],
                                      [3 if "e8m0" not in name else 4, 6 if "e8m0" not in name
                                       else 8]]


def test_safetensors(tmp_path):
    kinds = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
    tensors = {k: flambeau.tensor([1.0, 2, 4]).to(getattr(flambeau, k)) for k in kinds}
    safetensors.save_file(tensors, tmp_path / "x.safetensors")
    found = safetensors.load_file(tmp_path / "x.safetensors")
    assert {k: v.dtype for k, v in found.items()} == {k: getattr(flambeau, k) for k in kinds}
    assert all(v.float().tolist() == [1, 2, 4] for v in found.values())
    assert b'"F8_E4M3"' in (tmp_path / "x.safetensors").read_bytes()


def test_eight_bits_in_a_compiled_function():
    def scaled(x):
        scale = x.abs().amax() / 448
        return (x / scale).to(flambeau.float8_e4m3fn).to(flambeau.float32) * scale

    x = flambeau.randn(64, 16)
    compiled = flambeau.compile(scaled)
    for _ in range(4):
        assert flambeau.equal(compiled(x), scaled(x))


# -- complex numbers of halves -------------------------------------------------------------------


def halves(lib):
    x = lib.tensor([1 + 2j, 2.3 - 1j, -4.5, 7e3, 1e-9j])
    y = x.chalf()
    yield y, x.to(lib.complex32), y.real, y.imag, y.abs(), y.type(), y.tolist(), y[1].item()
    yield y + y, y + 1, y * (1 + 2j), y[:3] + 1.5
    for kind in ("float16", "bfloat16", "float32", "float64", "int64", "complex64", "complex128"):
        yield kind, (y + lib.ones(5, dtype=getattr(lib, kind))).dtype
    yield lib.view_as_real(y), lib.view_as_complex(lib.ones(3, 2).half()), y == y, y.conj()
    yield lib.complex(lib.ones(2).half(), lib.ones(2).half()), lib.finfo(lib.complex32)
    yield lib.ones(3, dtype=lib.complex32), lib.tensor([1 + 1j], dtype=lib.complex32), y.half()
    yield lib.float16.to_complex(), lib.complex32.to_real(), lib.chalf, lib.chalf.itemsize
    lib.manual_seed(3)
    yield lib.rand(3, dtype=lib.complex32), lib.randn(3, dtype=lib.complex32)
    yield y.reshape(5, 1).expand(5, 2).t().contiguous(), lib.cat([y, y[:2]]), y.sgn()


def test_complex_halves_look_as_in_torch():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = ([str(v) for v in halves(lib)] for lib in (flambeau, torch))
    assert ours == theirs


def test_gradients_through_complex_halves():
    grads = []
    for lib in (flambeau, torch):
        x = lib.tensor([1 + 2j, 0.5 - 1j], requires_grad=True)
        (x.to(lib.complex32) * 2).to(lib.complex64).real.sum().backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]
