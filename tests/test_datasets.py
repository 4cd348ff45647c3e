"""Data sets: readers of files on disk, with clear words about bad ones; text; generators."""

import gzip
import pickle
import struct

import numpy as np
import pytest

import flambeau as torch
from flambeau import datasets
from flambeau.utils.data import DataLoader


def idx(array) -> bytes:
    codes = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}
    head = bytes([0, 0, codes[array.dtype.name], array.ndim])
    return head + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(
        array.dtype.newbyteorder(">")).tobytes()


@pytest.fixture
def digits(tmp_path):
    """Ten images and labels in MNIST's files."""
    chance = np.random.default_rng(0)
    images = chance.integers(0, 256, (10, 28, 28), dtype=np.uint8)
    labels = np.arange(10, dtype=np.uint8)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    return tmp_path, images, labels


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32", "float32", "float64"])
def test_idx_files_of_every_kind(tmp_path, kind):
    array = np.arange(24).reshape(2, 3, 4).astype(kind)
    for name, data in (("a", idx(array)), ("a.gz", gzip.compress(idx(array)))):
        (tmp_path / name).write_bytes(data)
        found = datasets.read_idx(tmp_path / name)
        assert found.dtype == array.dtype and (found == array).all()


def test_mnist_from_files(digits):
    root, images, _ = digits
    found = datasets.MNIST(root)
    assert len(found) == 10 and found.data.shape == (10, 1, 28, 28)
    image, label = found[3]
    assert label == 3 and np.allclose(image[0].numpy(), images[3] / np.float32(255))
    assert repr(found) == "MNIST(10 images of 1x28x28, 10 classes)"
    batch, numbers = next(iter(DataLoader(found, batch_size=4)))
    assert batch.shape == (4, 1, 28, 28) and numbers.tolist() == [0, 1, 2, 3]
    assert np.allclose(batch[:, 0].numpy(), images[:4] / np.float32(255))
    changed = datasets.MNIST(root, transform=lambda x: x.flatten(), target_transform=str)
    assert changed[2][0].shape == (784,) and changed[2][1] == "2"
    everything, _ = found.tensors()
    assert everything.dtype is torch.float32 and float(everything.max()) <= 1


def test_mnist_that_is_missing_or_damaged(digits):
    root, images, _ = digits
    with pytest.raises(datasets.DataError, match=r"t10k-images-idx3-ubyte.*download"):
        datasets.MNIST(root, train=False)
    path = root / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    for bad, why in ((whole[:-1], "and has only"), (whole + b"x", "and has more"),
                     (whole[:10], "cut in its header"), (b"", "no IDX"), (b"nonsense", "no IDX"),
                     (idx(images[:9]), "do not belong together"),
                     (b"\0\0\x08\x03" + b"\xff" * 12, "damaged")):
        path.write_bytes(bad)
        with pytest.raises(datasets.DataError, match=why):
            datasets.MNIST(root)
    path.write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(datasets.DataError, match="damaged or incomplete"):
        datasets.MNIST(root)
    path.write_bytes(whole)
    (root / "train-labels-idx1-ubyte").write_bytes(idx(np.full(10, 11, np.uint8)))
    with pytest.raises(datasets.DataError, match="a label is 11"):
        datasets.MNIST(root)


def test_fashion_mnist_has_its_own_classes(digits):
    assert datasets.FashionMNIST(digits[0]).classes[9] == "Ankle boot"


def cifar_rows(count, labels_before=1, seed=0):
    chance = np.random.default_rng(seed)
    rows = chance.integers(0, 256, (count, labels_before + 3072), dtype=np.uint8)
    rows[:, labels_before - 1] = np.arange(count) % 10
    return rows


def old_pickle(images, labels, key=b"labels") -> bytes:
    """A pickle as Python 2 and the numpy of then wrote it: texts are bytes."""
    def text(value):
        return b"U" + bytes([len(value)]) + value

    raw = images.tobytes()
    array = (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b")
             + b"tR(K\x01(" + b"M" + struct.pack("<H", len(images)) + b"M" + struct.pack("<H", 3072)
             + b"tcnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|")
             + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", len(raw))
             + raw + b"tb")
    numbers = b"](" + b"".join(b"K" + bytes([n]) for n in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(key) + numbers + b"u."


def test_cifar_in_all_its_versions(tmp_path):
    rows = [cifar_rows(4, seed=n) for n in range(5)]
    for way in ("binary", "old", "new"):
        root = tmp_path / way
        folder = root / ("cifar-10-batches-bin" if way == "binary" else "cifar-10-batches-py")
        folder.mkdir(parents=True)
        for n, part in enumerate(rows, 1):
            images, labels = part[:, 1:], part[:, 0].tolist()
            if way == "binary":
                part.tofile(folder / f"data_batch_{n}.bin")
            else:
                data = old_pickle(images, labels) if way == "old" else pickle.dumps(
                    {b"data": np.ascontiguousarray(images), b"labels": labels}, 4)
                (folder / f"data_batch_{n}").write_bytes(data)
        found = datasets.CIFAR10(root)
        assert len(found) == 20 and found.data.shape == (20, 3, 32, 32), way
        assert (found.data[4].numpy().ravel() == rows[1][0, 1:]).all()
        assert found.targets.tolist() == [0, 1, 2, 3] * 5 and found.classes[3] == "cat"


def test_cifar_100(tmp_path):
    (tmp_path / "cifar-100-binary").mkdir()
    rows = cifar_rows(6, 2)
    rows.tofile(tmp_path / "cifar-100-binary" / "test.bin")
    found = datasets.CIFAR100(tmp_path, train=False)
    assert found.targets.tolist() == [0, 1, 2, 3, 4, 5] and found.classes[7] == "7"
    names = [f"name{n}" for n in range(100)]
    (tmp_path / "cifar-100-binary" / "fine_label_names.txt").write_text("\n".join(names))
    assert datasets.CIFAR100(tmp_path, train=False).classes[7] == "name7"


class Runs:
    def __reduce__(self):
        return eval, ("open('marker', 'w')",)


def test_bad_cifar_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(datasets.DataError, match=r"no test_batch\.bin"):
        datasets.CIFAR10(tmp_path, train=False)
    path = tmp_path / "test_batch"
    good = old_pickle(cifar_rows(3)[:, 1:], [1, 2, 3])
    for bad, why in ((pickle.dumps({"data": Runs()}), "do not trust"), (good[:-50], "damaged"),
                     (b"hello", "damaged"), (pickle.dumps([1]), "not a dictionary"),
                     (pickle.dumps({"data": 3, "labels": []}), "has no 'data'"),
                     (old_pickle(cifar_rows(3)[:, 1:], [1, 2]), "has no 'data'"),
                     (old_pickle(cifar_rows(3)[:, 1:], [1, 2, 30]), "a label is 30")):
        path.write_bytes(bad)
        with pytest.raises(datasets.DataError, match=why):
            datasets.CIFAR10(tmp_path, train=False)
    assert not (tmp_path / "marker").exists()
    (tmp_path / "test_batch.bin").write_bytes(bytes(3073 + 5))
    with pytest.raises(datasets.DataError, match="no multiple of 3073"):
        datasets.CIFAR10(tmp_path, train=False)


def test_text_of_the_standard_library():
    text = datasets.load_python_text(20_000)
    assert len(text) == 20_000 and text == datasets.load_python_text(20_000)
    assert "import" in text and text.count("\n") > 100
    examples = datasets.Characters(text, 16)
    x, y = examples[100]
    assert examples.decode(x) == text[100:116] and examples.decode(y) == text[101:117]
    batch, target = next(iter(DataLoader(examples, batch_size=8, shuffle=True)))
    assert batch.shape == target.shape == (8, 16) and batch[:, 1:].equal(target[:, :-1])
    assert examples[len(examples) - 1][1].shape == (16,)
    with pytest.raises(IndexError):
        examples[len(examples)]
    with pytest.raises(ValueError, match="vocabulary"):
        examples.encode("\u4e2d")


def test_points_in_the_plane():
    x, y = datasets.make_spirals(300, noise=0.0)
    assert x.shape == (300, 2) and y.bincount().tolist() == [100, 100, 100]
    assert x.dtype is torch.float32 and float(x.norm(dim=1).max()) == pytest.approx(1)
    x, y = datasets.make_moons(100, noise=0.0)
    assert np.allclose(x[y == 0].norm(dim=1).numpy(), 1, atol=1e-6)
    a = datasets.make_moons(10, generator=torch.Generator().manual_seed(1))[0]
    b = datasets.make_moons(10, generator=torch.Generator().manual_seed(1))[0]
    assert a.equal(b)
    with pytest.raises(ValueError, match="make_moons"):
        datasets.make_moons(0)


def test_the_copy_task():
    x, y = datasets.make_copy_task(50, length=4, symbols=5, delay=3)
    assert x.shape == y.shape == (50, 11) and x.dtype is torch.int64
    assert x[:, :4].equal(y[:, 7:]) and x[:, :4].min() >= 1 and x[:, :4].max() <= 5
    assert (x[:, 6] == 6).all() and (y[:, :7] == 0).all() and (x[:, 7:] == 0).all()
