"""save and load: what is written comes back, sharing, layout and all; and files by any door."""

import gc
import io
import mmap
import os
import pathlib
import pickle
import stat
import sys
import zipfile
import zlib
from collections import Counter, OrderedDict

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn, safetensors, serialization
from flambeau.devices.cpu import checksum

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
          torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
          torch.complex128, torch.uint16, torch.uint32, torch.uint64]


def through(obj, **options):
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return torch.load(file, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_every_dtype_comes_back(dtype, shape):
    x = (torch.arange(6)[:max(1, int(np.prod(shape)))].to(dtype).reshape(shape) if 0 not in shape
         else torch.empty(shape, dtype=dtype))
    found = through(x)
    assert found.dtype is dtype and found.shape == x.shape
    assert found.double().tolist() == x.double().tolist() if not dtype.is_complex else (
        found.tolist() == x.tolist())


def test_views_share_their_storage_again():
    x = torch.arange(12.).reshape(3, 4)
    found = through({"whole": x, "turned": x.t(), "part": x[1:, ::2]})
    assert found["turned"].stride() == (1, 4) and found["part"].storage_offset() == 4
    assert found["part"].tolist() == x[1:, ::2].tolist()
    found["whole"].fill_(7.)
    assert found["part"].eq(7).all() and found["turned"].eq(7).all()


def test_structures_and_values():
    given = {"none": None, "yes": True, "int": -5, "long": 10**30, "float": 2.5, "text": "é",
             "bytes": b"\x00\xff", "tuple": (1, (2,), ()), "set": {1, 2}, "complex": 1 + 2j,
             "counter": Counter("aab"), "ordered": OrderedDict(a=1), 3: "key", (1, "x"): "pair",
             "array": bytearray(b"ab"), "dtype": torch.bfloat16, "device": torch.device("cpu"),
             "size": torch.Size([2, 3])}
    found = through(given)
    assert found == given and type(found["ordered"]) is OrderedDict
    assert type(found["size"]) is torch.Size and found["dtype"] is torch.bfloat16


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("zipped", [True, False])
def test_protocols_and_both_formats(protocol, zipped):
    file = io.BytesIO()
    given = {"w": torch.arange(4.), "b": b"bytes", "s": {1}, "l": [torch.ones(2).bfloat16()]}
    torch.save(given, file, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    for trust in (False, True):
        file.seek(0)
        found = torch.load(file, weights_only=not trust)
        assert found["w"].tolist() == [0, 1, 2, 3] and found["b"] == b"bytes"
        assert found["l"][0].dtype is torch.bfloat16


def test_parameters_and_requires_grad():
    found = through([nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True),
                     nn.Parameter(torch.ones(1), requires_grad=False), torch.ones(2) * 2])
    assert type(found[0]) is nn.Parameter and found[0].requires_grad
    assert type(found[1]) is torch.Tensor and found[1].requires_grad and found[1].is_leaf
    assert not found[2].requires_grad and not found[3].requires_grad


def test_results_of_operations_are_saved_as_leaves():
    x = torch.ones(2, requires_grad=True)
    assert through(x * 3).tolist() == [3, 3]


def test_attributes_of_tensors():
    x = torch.ones(2)
    x.note = "kept"
    p = nn.Parameter(torch.ones(2))
    p.rank = 3
    found = through([x, p])
    assert found[0].note == "kept" and found[1].rank == 3 and type(found[1]) is nn.Parameter


def test_meta_tensors_and_mapping_to_meta():
    found = through({"m": torch.empty(3, 4, device="meta"), "x": torch.ones(2)},
                    map_location="meta")
    assert found["m"].is_meta and found["x"].is_meta and found["x"].shape == (2,)


def test_storages_by_themselves():
    x = torch.arange(3, dtype=torch.int16)
    found = through([torch.UntypedStorage(b"abc"), x.storage()])
    assert found[0].tolist() == [97, 98, 99] and found[1].dtype is torch.int16
    assert found[1].tolist() == [0, 1, 2]


def test_a_storage_seen_as_two_types_is_refused():
    x = torch.ones(2)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        through([x, x.view(torch.int32)])


def test_training_state_comes_back():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    found = through({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3})
    assert type(found["model"]) is OrderedDict
    assert found["model"]._metadata == model.state_dict()._metadata
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    other.load_state_dict(found["model"])
    again = torch.optim.Adam(other.parameters(), lr=0.5)
    again.load_state_dict(found["optimizer"])
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert a.equal(b)
        assert again.state[b]["exp_avg"].equal(optimizer.state[a]["exp_avg"])
    assert again.param_groups[0]["lr"] == 0.1


def test_whole_modules_need_trust():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3, bias=False))
    model[0].weight = model[2].weight = nn.Parameter(torch.randn(3, 3))
    with pytest.raises(pickle.UnpicklingError, match="add_safe_globals"):
        through(model)
    found = through(model, weights_only=False)
    assert found[0].weight is found[2].weight and repr(found) == repr(model)
    x = torch.randn(2, 3)
    assert found(x).equal(model(x))


class Settings:
    def __init__(self, rate):
        self.rate = rate


def test_classes_that_the_user_declares_safe():
    with pytest.raises(pickle.UnpicklingError, match=r"(?s)Weights only load failed.*Settings"):
        through(Settings(3))
    with serialization.safe_globals([Settings]):
        assert through(Settings(3)).rate == 3
        assert Settings in serialization.get_safe_globals()
    assert serialization.get_safe_globals() == []
    serialization.add_safe_globals([Settings])
    try:
        assert through(Settings(4)).rate == 4
    finally:
        serialization.clear_safe_globals()
    with pytest.raises(pickle.UnpicklingError):
        through(Settings(3))
    file = io.BytesIO()
    torch.save([Settings(1), torch.ones(1)], file)
    file.seek(0)
    names = serialization.get_unsafe_globals_in_checkpoint(file)
    assert [name.rpartition(".")[2] for name in names] == ["Settings"]


# -- places --------------------------------------------------------------------------------------


def with_location(location):
    """A checkpoint whose storage claims another device."""
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    source, out = zipfile.ZipFile(file), io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("data.pkl"):
                old = b"X\x03\x00\x00\x00cpu"
                assert old in data
                data = data.replace(old, b"X" + len(location).to_bytes(4, "little")
                                    + location.encode())
            target.writestr(name, data)
    out.seek(0)
    return out


@pytest.mark.parametrize("place", [
    "cpu", torch.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage])
def test_map_location(place):
    assert torch.load(with_location("cuda:0"), map_location=place).tolist() == [1, 1]


def test_a_device_that_is_not_here_says_what_to_do():
    with pytest.raises(RuntimeError, match=r"map_location=torch.device\('cpu'\)"):
        torch.load(with_location("cuda:0"))
    with pytest.raises(RuntimeError, match="don't know how to restore"):
        torch.load(with_location("moon"))


def test_a_function_is_told_the_location():
    told = []
    torch.load(with_location("cuda:1"), map_location=lambda s, where: told.append(where) or s)
    assert told == ["cuda:1"]


# -- the archive ---------------------------------------------------------------------------------


def test_records_are_aligned_and_python_can_check_them(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({str(n): torch.randn(n + 1) for n in range(20)}, path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names[0] == "model/data.pkl"
        for name in ("version", "byteorder", ".data/serialization_id", ".format_version"):
            assert f"model/{name}" in names
        assert archive.read("model/byteorder").decode() == sys.byteorder
        assert len(archive.read("model/.data/serialization_id")) == 40
        raw = path.read_bytes()
        for info in archive.infolist():
            name, extra = (int.from_bytes(raw[info.header_offset + at:][:2], "little")
                           for at in (26, 28))
            assert (info.header_offset + 30 + name + extra) % 64 == 0


@pytest.mark.parametrize("dtype", [
    "int16", "int32", "float32", "float64", "complex64", "uint8", "bool"])
def test_files_of_the_other_byte_order(dtype):
    """As a machine of that order writes them: the archive says so, and its numbers are swapped."""
    expected = torch.arange(5).to(getattr(torch, dtype))
    ours, theirs = io.BytesIO(), io.BytesIO()
    torch.save(expected, ours)
    other = {"little": "big", "big": "little"}[sys.byteorder]
    with zipfile.ZipFile(ours) as source, zipfile.ZipFile(theirs, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("/byteorder"):
                content = other.encode()
            elif "/data/" in name:
                part = dtype.replace("complex64", "float32")
                content = np.frombuffer(content, part).byteswap().tobytes()
            target.writestr(name, content)
    theirs.seek(0)
    assert torch.equal(torch.load(theirs), expected)


def test_mmap_is_private_and_needs_a_path(tmp_path):
    path = tmp_path / "a.pt"
    x = torch.randn(1000)
    torch.save([x, x[10:20]], path)
    found = torch.load(path, mmap=True)
    assert found[0].equal(x) and found[1].equal(x[10:20])
    found[0].zero_()
    assert found[1].eq(0).all()
    assert torch.load(path)[0].equal(x)
    with pytest.raises(ValueError, match="mmap"):
        torch.load(io.BytesIO(path.read_bytes()), mmap=True)
    torch.save(x, path, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used"):
        torch.load(path, mmap=True)


@pytest.mark.skipif(os.name != "posix", reason="flags of mmap")
def test_shared_mapping_writes_to_the_file(tmp_path):
    path = tmp_path / "a.pt"
    torch.save(torch.ones(100), path)
    with serialization.set_default_mmap_options(mmap.MAP_SHARED):
        torch.load(path, mmap=True).fill_(5.)
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    file = path.read_bytes()
    assert np.full(100, 5, "f4").tobytes() in file


class Slow(io.RawIOBase):
    """A file that gives little at a time."""

    def __init__(self, data):
        self._inner = io.BytesIO(data)

    def read(self, count=-1):
        return self._inner.read(min(count, 7) if count > 0 else count)

    def readinto(self, buffer):
        return self._inner.readinto(memoryview(buffer)[:7])

    def seek(self, *args):
        return self._inner.seek(*args)

    def tell(self):
        return self._inner.tell()


def test_files_that_read_a_little_at_a_time():
    file = io.BytesIO()
    torch.save({"x": torch.arange(50)}, file)
    assert torch.load(Slow(file.getvalue()))["x"].tolist() == list(range(50))


def test_paths_and_open_files(tmp_path):
    for path in (tmp_path / "a.pt", str(tmp_path / "b.pt"), pathlib.PurePath(tmp_path, "c.pt")):
        torch.save(torch.ones(2), path)
        assert torch.load(path).tolist() == [1, 1]
    with open(tmp_path / "d.pt", "wb") as file:
        torch.save(torch.ones(3), file)
    with open(tmp_path / "d.pt", "rb") as file:
        assert torch.load(file).tolist() == [1, 1, 1]
    with pytest.raises(AttributeError, match="write"):
        torch.save(1, None)
    with pytest.raises(AttributeError, match="seek"):
        torch.load(5)
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "none.pt")


def test_checksums_can_be_left_out():
    serialization.set_crc32_options(False)
    try:
        assert through(torch.ones(3)).tolist() == [1, 1, 1]
    finally:
        serialization.set_crc32_options(True)


def test_skip_data():
    file = io.BytesIO()
    with serialization.skip_data():
        torch.save(torch.ones(3), file)
    file.seek(0)
    assert torch.load(file).tolist() == [0, 0, 0]


def test_loaded_memory_belongs_to_the_tensor(tmp_path):
    torch.save(torch.ones(4), tmp_path / "a.pt")
    found = torch.load(tmp_path / "a.pt", mmap=True)
    os.unlink(tmp_path / "a.pt")
    assert found.add_(1).tolist() == [2, 2, 2, 2]


def test_loaded_memory_comes_back_at_once(tmp_path):
    """No ring of references holds it until the collector runs."""
    torch.save(torch.ones(1_000_003), tmp_path / "a.pt")
    torch.load(tmp_path / "a.pt")
    gc.collect()
    gc.disable()
    try:
        places = {torch.load(tmp_path / "a.pt").data_ptr() for _ in range(4)}
    finally:
        gc.enable()
    assert len(places) == 1


# -- files are replaced as a whole ---------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="permissions and links")
def test_permissions_are_as_open_gives_them(tmp_path):
    before = os.umask(0o027)
    try:
        torch.save(1, tmp_path / "a.pt")
        open(tmp_path / "b", "w").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "a.pt").st_mode) == stat.S_IMODE(
        os.stat(tmp_path / "b").st_mode) == 0o640
    os.chmod(tmp_path / "a.pt", 0o604)
    torch.save(2, tmp_path / "a.pt")
    assert stat.S_IMODE(os.stat(tmp_path / "a.pt").st_mode) == 0o604
    assert torch.load(tmp_path / "a.pt") == 2


@pytest.mark.skipif(os.name != "posix", reason="permissions and links")
def test_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    torch.save(1, tmp_path / "real" / "a.pt")
    (tmp_path / "latest.pt").symlink_to(tmp_path / "real" / "a.pt")
    torch.save(2, tmp_path / "latest.pt")
    assert (tmp_path / "latest.pt").is_symlink() and torch.load(tmp_path / "real" / "a.pt") == 2
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.pt", "latest.pt", "real"]


def test_what_cannot_be_pickled_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.pt"
    torch.save(1, path)
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        torch.save([torch.ones(3), lambda: 0], path)
    assert torch.load(path) == 1 and os.listdir(tmp_path) == ["a.pt"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(RuntimeError, match="Parent directory"):
        torch.save(1, tmp_path / "no" / "a.pt")


# -- safetensors ---------------------------------------------------------------------------------


def test_safetensors_there_and_back(tmp_path):
    given = {str(d): torch.arange(6).to(d).reshape(2, 3) for d in DTYPES
             if d is not torch.complex128}
    given |= {"zero": torch.tensor(3.), "none": torch.empty(0, 2), "é": torch.ones(1)}
    safetensors.save_file(given, tmp_path / "a.safetensors", {"format": "pt"})
    for found in (safetensors.load_file(tmp_path / "a.safetensors"),
                  safetensors.load(safetensors.save(given))):
        assert found.keys() == given.keys()
        for name, x in given.items():
            assert found[name].dtype is x.dtype and found[name].shape == x.shape
            assert found[name].tolist() == x.tolist()


def test_safetensors_one_by_one(tmp_path):
    path = tmp_path / "a.safetensors"
    x = torch.arange(24.).reshape(4, 3, 2)
    safetensors.save_file({"x": x, "y": torch.ones(1)}, path, {"note": "n"})
    with safetensors.safe_open(path, framework="pt", device="cpu") as file:
        assert file.keys() == ["x", "y"] and file.metadata() == {"note": "n"}
        part = file.get_slice("x")
        assert part.get_shape() == [4, 3, 2] and part.get_dtype() == "F32"
        for key in (slice(1, 3), (slice(1, 3), slice(None, None, 2)), 2, (Ellipsis, 0),
                    slice(None, None, 2), slice(3, 1), slice(-2, None)):
            assert part[key].tolist() == x[key].tolist()
        with pytest.raises(safetensors.SafetensorError, match="does not contain"):
            file.get_tensor("z")


def test_safetensors_refuses_what_it_cannot_say():
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match="contiguous"):
        safetensors.save({"x": x.t()})
    with pytest.raises(RuntimeError, match="share memory"):
        safetensors.save({"x": x, "y": x})
    with pytest.raises(ValueError, match="complex128"):
        safetensors.save({"x": x.to(torch.complex128)})


def test_safetensors_of_tied_modules(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    safetensors.save_model(model, tmp_path / "m.safetensors")
    other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    assert safetensors.load_model(other, tmp_path / "m.safetensors") == ([], [])
    assert all(a.equal(b) for a, b in zip(
        model.state_dict().values(), other.state_dict().values(), strict=True))


# -- the checksum --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 63, 64, 4095, 4096, 4097, 65_536, 100_003])
def test_checksums_are_those_of_zlib(size):
    data = np.random.default_rng(size).integers(0, 256, size + 3, dtype=np.uint8).tobytes()
    for given in (data, bytearray(data), memoryview(bytearray(data))[3:]):
        for value in (0, 1234567, 0xFFFFFFFF):
            assert checksum.crc32(given, value) == zlib.crc32(given, value)
