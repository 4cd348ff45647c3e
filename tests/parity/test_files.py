"""Files between flambeau and torch: what one writes the other reads, in every format."""

import io
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau  # noqa: E402
from flambeau import safetensors  # noqa: E402

DTYPES = ("bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 "
          "complex128").split()


def given(lib):
    """An object with all that checkpoints have, made with either library."""
    lib.manual_seed(0)
    x = lib.randn(4, 5)
    model = lib.nn.Sequential(lib.nn.Linear(5, 3), lib.nn.BatchNorm1d(3), lib.nn.Linear(3, 1))
    optimizer = lib.optim.Adam(model.parameters(), lr=0.01)
    model(x).sum().backward()
    optimizer.step()
    return {
        "whole": x, "turned": x.t(), "part": x[1:, 1::2], "again": x, "wide": x[0].expand(3, 5),
        "parameter": lib.nn.Parameter(lib.ones(2)), "leaf": lib.ones(2, requires_grad=True),
        "frozen": lib.nn.Parameter(lib.ones(2), requires_grad=False),
        "empty": lib.empty(0, 3), "number": lib.tensor(3.5), "meta": lib.empty(2, 3, device="meta"),
        "model": model.state_dict(), "optimizer": optimizer.state_dict(),
        "dtypes": {name: lib.arange(6).to(getattr(lib, name)).reshape(2, 3) for name in DTYPES},
        "values": [1, -2.5, None, True, 10**25, "é", b"\x00\xff", (1, (2,)), {1, 2}, 1j],
        "size": x.shape, "dtype": lib.bfloat16, "device": lib.device("cpu"),
    }


def plain(obj):
    """An object of either library as one of neither."""
    if isinstance(obj, (torch.Tensor, flambeau.Tensor)):
        kind = "Parameter" if isinstance(obj, (torch.nn.Parameter, flambeau.nn.Parameter)) else ""
        facts = (kind, str(obj.dtype), tuple(obj.shape), tuple(obj.stride()), obj.requires_grad,
                 obj.storage_offset(), obj.is_leaf)
        if obj.is_meta:
            return facts
        values = obj.detach()
        values = values.float() if str(obj.dtype) == "torch.bfloat16" else values
        return (*facts, np.ascontiguousarray(values.numpy()).tobytes())
    if isinstance(obj, dict):
        return type(obj).__name__, {key: plain(value) for key, value in obj.items()}, plain(
            getattr(obj, "_metadata", None))
    if isinstance(obj, (torch.Size, flambeau.Size)):
        return "Size", tuple(obj)
    if isinstance(obj, (list, tuple)):
        return type(obj).__name__, [plain(value) for value in obj]
    if isinstance(obj, (torch.dtype, torch.device, flambeau.dtype, flambeau.device)):
        return str(obj)
    return obj


PAIRS = {"there": (flambeau, torch), "back": (torch, flambeau)}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("way", PAIRS)
def test_checkpoints_between_libraries(tmp_path, way, weights_only, zipped):
    writer, reader = PAIRS[way]
    source = given(writer)
    writer.save(source, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    found = reader.load(tmp_path / "a.pt", weights_only=weights_only)
    assert plain(found) == plain(source)
    assert found["whole"].data_ptr() == found["turned"].data_ptr() == found["again"].data_ptr()
    found["whole"].fill_(3)
    assert bool((found["part"] == 3).all())


@pytest.mark.parametrize("way", PAIRS)
def test_mapped_files_between_libraries(tmp_path, way):
    writer, reader = PAIRS[way]
    source = given(writer)
    writer.save(source, tmp_path / "a.pt")
    assert plain(reader.load(tmp_path / "a.pt", mmap=True)) == plain(source)


@pytest.mark.parametrize("way", PAIRS)
@pytest.mark.parametrize("protocol", [2, 4])
def test_buffers_and_protocols(way, protocol):
    writer, reader = PAIRS[way]
    source, file = given(writer), io.BytesIO()
    writer.save(source, file, pickle_protocol=protocol)
    file.seek(0)
    assert plain(reader.load(file, weights_only=protocol == 2)) == plain(source)


@pytest.mark.parametrize("way", PAIRS)
def test_whole_modules_between_libraries(tmp_path, way):
    writer, reader = PAIRS[way]
    nn = writer.nn
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(18, 4), nn.LayerNorm(4), nn.Dropout(0.5), nn.Unflatten(1, (1, 4)),
        nn.MultiheadAttention(4, 2) if reader is torch else
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.LSTM(4, 3)).eval()
    writer.save(model, tmp_path / "m.pt")
    found = reader.load(tmp_path / "m.pt", weights_only=False)
    assert repr(found) == repr(model)
    image = np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype("f4")
    with torch.no_grad(), flambeau.no_grad():
        ours, theirs = writer.from_numpy(image), reader.from_numpy(image)
        for mine, its in zip(model, found, strict=True):
            attends = isinstance(mine, nn.MultiheadAttention)
            ours = mine(ours, ours, ours)[0] if attends else mine(ours)
            theirs = its(theirs, theirs, theirs)[0] if attends else its(theirs)
        ours, theirs = ours[0], theirs[0]
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)


def test_training_goes_on_in_the_other_library(tmp_path):
    """A run that changes libraries in the middle ends where one that does not ends."""
    def steps(lib, model, optimizer, count):
        x = lib.arange(12.).reshape(4, 3) / 10
        for _ in range(count):
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.step()

    def make(lib):
        lib.manual_seed(3)
        model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 1))
        return model, lib.optim.AdamW(model.parameters(), lr=0.05)

    whole, optimizer = make(torch)
    steps(torch, whole, optimizer, 8)
    for writer, reader in PAIRS.values():
        model, optimizer = make(writer)
        steps(writer, model, optimizer, 4)
        writer.save({"m": model.state_dict(), "o": optimizer.state_dict()}, tmp_path / "c.pt")
        model, optimizer = make(reader)
        state = reader.load(tmp_path / "c.pt")
        model.load_state_dict(state["m"])
        optimizer.load_state_dict(state["o"])
        steps(reader, model, optimizer, 4)
        for a, b in zip(whole.parameters(), model.parameters(), strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_attributes_of_tensors_between_libraries():
    for writer, reader in PAIRS.values():
        x, file = writer.ones(2), io.BytesIO()
        p = writer.nn.Parameter(writer.ones(1))
        x.note, p.rank = "kept", 3
        writer.save([x, p], file)
        file.seek(0)
        found = reader.load(file)
        assert found[0].note == "kept" and found[1].rank == 3


def test_errors_are_of_the_same_type(tmp_path):
    def caught(lib, path, **options):
        try:
            lib.load(str(path), **options)
        except Exception as error:
            return type(error)
        return None

    path = tmp_path / "a.pt"
    torch.save(given(torch), path)
    whole = path.read_bytes()
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    assert caught(flambeau, tmp_path / "module.pt") is caught(torch, tmp_path / "module.pt")
    for content in (b"", b"no checkpoint at all"):
        path.write_bytes(content)
        assert caught(flambeau, path) is caught(torch, path), content
    for content in (whole[:-30], whole[:len(whole) // 2]):
        path.write_bytes(content)  # torch raises a RuntimeError, or an OSError of its reader
        assert issubclass(caught(flambeau, path), RuntimeError)
        assert caught(torch, path) in (RuntimeError, OSError)
    assert caught(flambeau, tmp_path / "none.pt") is caught(torch, tmp_path / "none.pt")


def test_safetensors_between_packages(tmp_path):
    package = pytest.importorskip("safetensors.torch")
    path = tmp_path / "a.safetensors"
    names = [name for name in DTYPES if name != "complex128"]

    def tensors(lib):
        found = {name: lib.arange(6).to(getattr(lib, name)).reshape(2, 3) for name in names}
        return found | {"zero": lib.tensor(2.5), "none": lib.empty(0, 4), "é": lib.ones(3)}

    safetensors.save_file(tensors(flambeau), path, {"format": "pt"})
    found = package.load_file(path)
    assert plain(dict(sorted(found.items()))) == plain(dict(sorted(tensors(torch).items())))
    package.save_file(tensors(torch), path, {"format": "pt"})
    found = safetensors.load_file(path)
    assert plain(dict(sorted(found.items()))) == plain(dict(sorted(tensors(flambeau).items())))
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert os.path.getsize(path) == len(package.save(tensors(torch), {"format": "pt"}))
