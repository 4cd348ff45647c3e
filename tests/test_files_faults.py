"""Files that are cut, damaged or hostile, disks that are full, processes that are killed."""

import contextlib
import io
import json
import os
import pickle
import random
import resource
import signal
import struct
import subprocess
import sys
import textwrap
import time
import zipfile

import pytest

import flambeau as torch
from flambeau import safetensors
from flambeau.serialization import archive, restricted

#: what a bad file may raise; never a crash, a wrong tensor or a command run
REFUSALS = (RuntimeError, pickle.UnpicklingError, EOFError)


def checkpoint(**options) -> bytes:
    file = io.BytesIO()
    torch.manual_seed(0)
    torch.save({"weight": torch.randn(40, 50), "bias": torch.randn(50), "epoch": 3,
                "names": ["a", "b"]}, file, **options)
    return file.getvalue()


def rezipped(change, source=None) -> io.BytesIO:
    """A checkpoint with its records changed by change(name, data) -> data or None."""
    given, out = zipfile.ZipFile(io.BytesIO(source or checkpoint())), io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for name in given.namelist():
            data = change(name.partition("/")[2], given.read(name))
            if data is not None:
                target.writestr(name, data)
    out.seek(0)
    return out


def with_pickle(data: bytes) -> io.BytesIO:
    return rezipped(lambda name, old: data if name == "data.pkl" else old)


# -- cut and damaged -----------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("trust", [False, True])
def test_cut_at_every_twentieth(tmp_path, zipped, trust):
    whole = checkpoint(_use_new_zipfile_serialization=zipped)
    for part in range(20):
        path = tmp_path / "cut.pt"
        path.write_bytes(whole[:len(whole) * part // 20])
        with pytest.raises(REFUSALS) as caught:
            torch.load(path, weights_only=not trust)
        assert str(caught.value)


def test_cut_by_its_last_bytes():
    whole = checkpoint()
    for less in (1, 2, 21, 22, 23, 60):
        with pytest.raises(RuntimeError, match="damaged or incomplete"):
            torch.load(io.BytesIO(whole[:-less]))


def test_an_empty_file_and_one_read_to_its_end(tmp_path):
    (tmp_path / "empty.pt").touch()
    with pytest.raises(EOFError, match="Ran out of input"):
        torch.load(tmp_path / "empty.pt")
    file = io.BytesIO()
    torch.save(1, file)
    with pytest.raises(EOFError, match=r"seek\(0\)"):
        torch.load(file)


@pytest.mark.parametrize("data", [b"hello, world, this is no checkpoint", b"\x89PNG\r\n" * 10,
                                  b"PK\x03\x04" + b"\0" * 100, b"\x80\x02", b"\x80\x02}q\x00."])
def test_files_that_are_no_checkpoints(data):
    for trust in (False, True):
        with pytest.raises(REFUSALS):
            torch.load(io.BytesIO(data), weights_only=not trust)


def test_a_flipped_bit_in_a_storage_is_found():
    data = bytearray(checkpoint())
    at = data.index(b"/data/0") + 2000
    data[at] ^= 4
    with pytest.raises(RuntimeError, match="checksum"):
        torch.load(io.BytesIO(bytes(data)))


def test_flipped_bytes_never_crash():
    whole, chance = checkpoint(), random.Random(0)
    end = whole.index(b".format_version") + 100
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(3):
            at = chance.randrange(end) if chance.random() < 0.5 else -chance.randrange(1, 900)
            data[at] = chance.randrange(256)
        with contextlib.suppress(*REFUSALS):
            torch.load(io.BytesIO(bytes(data)))


def test_random_pickles_never_crash():
    chance = random.Random(1)
    body = zipfile.ZipFile(io.BytesIO(checkpoint())).read("archive/data.pkl")
    for _ in range(2000):
        data = bytearray(body)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)

        def storage(identity):
            raise RuntimeError("none here")

        with contextlib.suppress(*REFUSALS):
            restricted.Reader(bytes(data), storage).load()


def test_a_record_that_is_missing():
    with pytest.raises(RuntimeError, match="no record 'data/0'"):
        torch.load(rezipped(lambda name, data: None if name == "data/0" else data))
    with pytest.raises(RuntimeError, match=r"no record 'data.pkl'"):
        torch.load(rezipped(lambda name, data: None if name == "data.pkl" else data))


# -- hostile pickles -----------------------------------------------------------------------------


class Runs:
    """Pickled, a command."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"echo run > {self.marker}",)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_runs_a_command_does_not(tmp_path, zipped, protocol):
    marker, path = tmp_path / "marker", tmp_path / "bad.pt"
    torch.save({"w": torch.ones(2), "x": Runs(marker)}, path, pickle_protocol=protocol,
               _use_new_zipfile_serialization=zipped)
    with pytest.raises(pickle.UnpicklingError, match="do not trust this file"):
        torch.load(path)
    with pytest.raises(pickle.UnpicklingError, match="system"):
        torch.load(path, mmap=zipped)
    assert not marker.exists()
    torch.load(path, weights_only=False)  # which shows that it was live
    assert marker.exists()


@pytest.mark.parametrize("body", [
    b"c__builtin__\neval\n(V1+1\ntR.",
    b"cbuiltins\ngetattr\n(cbuiltins\nset\nX\x07\x00\x00\x00__doc__tR.",
    b"ctorch\nTensor\n(J\xff\xff\xff\x7ftR.",
    b"ccollections\nOrderedDict\n}X\x08\x00\x00\x00__init__K\x01sb.",
    b"ccollections\nOrderedDict\nN}X\x01\x00\x00\x00aK\x01s\x86b.",
    b"ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00itemsK\x01sb.",
    b"ctorch._utils\n_rebuild_tensor_v2\n}X\x0c\x00\x00\x00__defaults__)sb.",
    b"ctorch.storage\nos\n.",
    b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",
    b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
    b"cflambeau.serialization\nload\n.",
    b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.",
], ids=repr)
def test_tricks_with_pickles_are_refused(body):
    with pytest.raises(REFUSALS):
        torch.load(with_pickle(b"\x80\x02" + body))


def test_nothing_in_the_library_can_be_changed_by_a_file():
    from flambeau.serialization import rebuild
    before = rebuild.tensor_v2.__defaults__
    body = (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}X\x0c\x00\x00\x00__defaults__"
            b"K\x05\x85s\x86b.")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(with_pickle(body))
    assert rebuild.tensor_v2.__defaults__ == before


def test_deep_and_shared_structures_end_soon():
    deep = b"\x80\x02" + b"(" * 200_000 + b"." * 1
    with pytest.raises(REFUSALS):
        torch.load(with_pickle(deep))
    nested = b"\x80\x02)" + b"\x85" * 300_000 + b"."
    torch.load(with_pickle(nested))  # a tuple in a tuple in a tuple: harmless until hashed
    as_key = b"\x80\x02})" + b"\x85" * 300_000 + b"K\x01s."
    with pytest.raises(pickle.UnpicklingError, match="too many parts"):
        torch.load(with_pickle(as_key))
    laughs = b"\x80\x02})" + b"q\x00h\x00h\x00\x87" * 60 + b"K\x01s."
    begun = time.monotonic()
    with pytest.raises(pickle.UnpicklingError, match="too many parts"):
        torch.load(with_pickle(laughs))
    in_set = b"\x80\x02cbuiltins\nset\n])" + b"\x85" * 300_000 + b"a\x85R."
    with pytest.raises(pickle.UnpicklingError, match="too many parts"):
        torch.load(with_pickle(in_set))
    assert time.monotonic() - begun < 20


def tensor_pickle(offset=0, size=(2,), stride=(1,), numel=2000, key="0", kind="FloatStorage"):
    """A pickle of one tensor, with whatever numbers."""
    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def number(value):
        data = value.to_bytes(17, "little", signed=True)
        return b"\x8a\x11" + data

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    return (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage")
            + b"ctorch\n" + kind.encode() + b"\n" + text(key) + text("cpu") + number(numel) + b"tQ"
            + number(offset) + numbers(size) + numbers(stride) + b"\x89ccollections\nOrderedDict\n"
            + b")RtR.")


def test_the_pickles_of_these_tests_are_otherwise_good():
    assert torch.load(with_pickle(tensor_pickle())).shape == (2,)


@pytest.mark.parametrize("numbers", [
    {"numel": 10**15}, {"numel": 2001}, {"numel": -1}, {"numel": 2**100},
    {"offset": -1}, {"offset": 1999}, {"offset": 2**63}, {"size": (-1,)}, {"stride": (-1,)},
    {"size": (2001,)}, {"size": (3,), "stride": (1000,)}, {"size": (2, 2)},
    {"size": (2**62, 2**62), "stride": (0, 0)}, {"size": (2**40,)}, {"key": "../../etc/passwd"},
    {"key": "99"}, {"kind": "QInt8Storage"}, {"size": (1,) * 100, "stride": (1,) * 100},
], ids=str)
def test_tensors_that_reach_out_of_their_storage(numbers):
    for trust in (False, True):
        with pytest.raises(REFUSALS + (AttributeError,)):
            torch.load(with_pickle(tensor_pickle(**numbers)), weights_only=not trust)


def test_one_storage_cannot_be_two():
    one, other = tensor_pickle(numel=4)[2:-1], tensor_pickle(numel=2000)[2:-1]
    with pytest.raises(RuntimeError, match="said to be both"):
        torch.load(with_pickle(b"\x80\x02" + one + other + b"\x86."))


# -- hostile archives ----------------------------------------------------------------------------


def patched_entry(data: bytes, name: bytes, field: int, value: bytes) -> bytes:
    """The archive with a field of a record's entry in the table of contents changed."""
    at = data.rindex(name) - 46
    assert data[at:at + 4] == b"PK\x01\x02"
    return data[:at + field] + value + data[at + field + len(value):]


@pytest.mark.parametrize(("field", "value"), [
    (24, b"\xfe\xff\xff\xff"), (20, b"\xfe\xff\xff\xff"), (42, b"\xf0\xff\xff\x7f"),
    (28, b"\xff\xff"), (30, b"\xff\xff"), (42, b"\0\0\0\0"),
])
def test_a_zip_with_absurd_sizes(field, value):
    bad = patched_entry(checkpoint(), b"archive/data/0", field, value)
    with pytest.raises(RuntimeError, match="damaged or incomplete"):
        torch.load(io.BytesIO(bad))


def test_a_zip_of_exabytes(tmp_path):
    """Sizes of 64 bits: nothing is allocated for what is not there."""
    extra = struct.pack("<HHQQQ", 1, 24, 1 << 60, 1 << 60, 0)
    name = b"archive/data/0"
    entry = archive._CENTRAL.pack(0x02014B50, 45, 45, 0, 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF,
                                  len(name), len(extra), 0, 0, 0, 0, 0xFFFFFFFF) + name + extra
    body = b"PK\x03\x04" + b"\0" * 60
    end = archive._END.pack(0x06054B50, 0, 0, 1, 1, len(entry), len(body), 0)
    with pytest.raises(RuntimeError, match="claims 1152921504606846976 bytes"):
        torch.load(io.BytesIO(body + entry + end))
    end64 = archive._END64.pack(0x06064B50, 44, 45, 45, 0, 0, 1 << 60, 1 << 60, 1 << 60, 0)
    locator = archive._LOCATOR.pack(0x07064B50, 0, len(body), 1)
    end = archive._END.pack(0x06054B50, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    with pytest.raises(RuntimeError, match="does not fit"):
        torch.load(io.BytesIO(body + end64 + locator + end))


def test_a_packed_bomb_is_refused():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        given = zipfile.ZipFile(io.BytesIO(checkpoint()))
        for name in given.namelist():
            target.writestr(name, given.read(name))
    assert torch.load(io.BytesIO(out.getvalue()))["epoch"] == 3  # packed, but honest
    bad = patched_entry(out.getvalue(), b"archive/data/0", 24, struct.pack("<I", 1 << 30))
    with pytest.raises(RuntimeError, match="damaged or incomplete"):
        torch.load(io.BytesIO(bad))


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "archive/../../evil", "C:\\evil",
                                  "archive/..\\..\\evil"])
def test_names_that_lead_out_of_the_archive(name):
    out = rezipped(lambda _name, data: data)
    with zipfile.ZipFile(out, "a") as target:
        target.writestr(name, b"x")
    out.seek(0)
    with pytest.raises(RuntimeError, match=r"leads out of the archive|names, not one"):
        torch.load(out)


def test_records_that_stand_twice_or_overlap():
    out = rezipped(lambda _name, data: data)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(out, "a") as target:
        target.writestr("archive/data/0", b"x" * 8000)
    out.seek(0)
    with pytest.raises(RuntimeError, match="stands twice"):
        torch.load(out)
    good = checkpoint()
    first = zipfile.ZipFile(io.BytesIO(good)).getinfo("archive/data/0").header_offset
    bad = patched_entry(good, b"archive/data/1", 42, struct.pack("<I", first + 64))
    with pytest.raises(RuntimeError, match="overlap"):
        torch.load(io.BytesIO(bad))


# -- safetensors ---------------------------------------------------------------------------------


def st_file(table, data=b"", length=None) -> bytes:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(start, end, shape=None, dtype="F32"):
    return {"dtype": dtype, "shape": [(end - start) // 4] if shape is None else shape,
            "data_offsets": [start, end]}


@pytest.mark.parametrize(("data", "why"), [
    (b"", "HeaderTooSmall"),
    (st_file({}, length=1 << 62), "HeaderTooLarge"),
    (st_file({}, length=99), "InvalidHeaderLength"),
    (st_file(b"{nonsense"), "InvalidHeader"),
    (st_file(b"[" * 100_000), "InvalidHeader"),
    (st_file(b"[]"), "no dictionary"),
    (st_file(b'{"a":1}'), "InvalidHeader"),
    (st_file(b'{"a":' + json.dumps(entry(0, 4)).encode() + b',"a":'
             + json.dumps(entry(0, 4)).encode() + b"}", bytes(4)), "twice"),
    (st_file({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)), "overlap or leave a hole"),
    (st_file({"a": entry(0, 4), "b": entry(8, 12)}, bytes(12)), "overlap or leave a hole"),
    (st_file({"a": entry(4, 8)}, bytes(8)), "overlap or leave a hole"),
    (st_file({"a": entry(0, 8)}, bytes(4)), "MetadataIncompleteBuffer"),
    (st_file({"a": entry(0, 4)}, bytes(8)), "MetadataIncompleteBuffer"),
    (st_file({"a": entry(0, 8, [3])}, bytes(8)), "TensorInvalidInfo"),
    (st_file({"a": entry(0, 4, [-1])}, bytes(4)), "shape"),
    (st_file({"a": entry(0, 4, [1 << 70])}, bytes(4)), "shape"),
    (st_file({"a": entry(8, 4)}, bytes(8)), r"shape|TensorInvalidInfo"),
    (st_file({"a": entry(0, 4, [1], "F7")}, bytes(4)), "F7"),
    (st_file({"__metadata__": {"a": 1}}), "metadata"),
], ids=lambda value: str(value)[:30])
def test_hostile_safetensors(data, why):
    with pytest.raises(safetensors.SafetensorError, match=why):
        safetensors.load(data)


def test_safetensors_cut_at_every_twentieth():
    whole = safetensors.save({"a": torch.randn(50), "b": torch.randn(9)})
    for part in range(20):
        with pytest.raises(safetensors.SafetensorError):
            safetensors.load(whole[:len(whole) * part // 20])


# -- full disks and killed processes -------------------------------------------------------------


def run(text, *arguments, **options):
    code = "import sys, flambeau as torch\n" + textwrap.dedent(text)
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)],
                            stdout=subprocess.PIPE, text=True, **options)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB, where one can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = sys.platform == "linux" and os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True,
        check=False).returncode == 0
    if not mounted:
        pytest.skip("no right to mount a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=False)


def check_old_survives(folder, save):
    path = folder / "a.pt"
    torch.save({"epoch": 1, "w": torch.ones(100)}, path)
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="the old file is unchanged") as caught:
        save(path)
    assert isinstance(caught.value, OSError) and str(path) in str(caught.value)
    assert path.read_bytes() == before and os.listdir(folder) == ["a.pt"]
    assert torch.load(path)["epoch"] == 1


def test_a_full_disk_keeps_the_old_checkpoint(small_disk):
    check_old_survives(small_disk, lambda path: torch.save(torch.ones(2_000_000), path))
    safetensors.save_file({"w": torch.ones(10)}, small_disk / "b.safetensors")
    with pytest.raises(RuntimeError, match="No space"):
        safetensors.save_file({"w": torch.ones(2_000_000)}, small_disk / "b.safetensors")
    assert safetensors.load_file(small_disk / "b.safetensors")["w"].shape == (10,)


@pytest.mark.skipif(os.name != "posix", reason="limits of processes")
def test_a_limit_on_file_size_keeps_the_old_checkpoint(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def save(path):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limit[1]))
        try:
            torch.save(torch.ones(1_000_000), path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    try:
        check_old_survives(tmp_path, save)
    finally:
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_kill_while_saving(tmp_path):
    """Whenever the process is killed, the file is one whole checkpoint or another."""
    path = tmp_path / "a.pt"
    torch.save({"n": -1, "w": torch.full((1,), -1.)}, path)
    saver = """
        path, n = sys.argv[1], 0
        w = torch.ones(4_000_000)
        print("begun", flush=True)
        while True:
            n += 1
            torch.save({"n": n, "w": w.fill_(n)}, path)
    """
    chance = random.Random(0)
    for _ in range(4):
        process = run(saver, path)
        process.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.25))
        process.kill()
        process.wait()
        process.stdout.close()
        found = torch.load(path)
        assert found["w"].eq(found["n"]).all()
    left = [name for name in os.listdir(tmp_path) if name != "a.pt"]
    assert len(left) <= 4 and all(name.startswith(".a.pt.") for name in left)
    if sys.platform == "linux":
        assert len(left) <= 1  # a file has a name only for the moment before it is put in place
