"""CIFAR-10 and CIFAR-100 from files on disk: the binary version or the pickled one.

The pickles are read by a machine that makes arrays, texts and lists, and runs nothing.
"""

from __future__ import annotations

import mmap
import pickle
from math import prod
from pathlib import Path
from typing import Any

import numpy

import flambeau
from flambeau.datasets.arrays import DataError, ImageDataset, Transform, first_existing
from flambeau.serialization import restricted

SHAPE = (3, 32, 32)
PIXELS = prod(SHAPE)
SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"
CLASSES10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
             "truck")


# -- pickled arrays ------------------------------------------------------------------------------


class _Kind:
    """What a file says of an array's elements; only bytes and integers are known."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code if isinstance(code, str) else code.decode("ascii")
        if self.code not in ("u1", "|u1", "i4", "i8", "b1"):
            raise restricted.Refused(f"an array of {self.code!r:.20}")

    def __setstate__(self, state: Any) -> None:
        if state[1] == ">":
            raise restricted.Refused("an array in another byte order")


class _Array:
    """An array that is being made."""

    def __init__(self, *_: Any) -> None:
        self.value = numpy.empty(0, numpy.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, data = state
        raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else bytes(data)
        found = numpy.frombuffer(raw, kind.code)
        self.value = found.reshape(shape, order="F" if by_columns else "C")


class _Named:
    """The name of numpy's array class, which _reconstruct is given and ignores."""


_ARRAY_NAMES = {
    **{f"numpy.{core}.multiarray._reconstruct": _Array for core in ("core", "_core")},
    "numpy.ndarray": _Named, "numpy.dtype": _Kind,
}


class _ArrayReader(restricted.Reader):
    """Reads pickles of dictionaries, lists, texts and arrays."""

    def find(self, module: str, name: str) -> Any:
        found = _ARRAY_NAMES.get(f"{module}.{name}")
        if found is None:
            return super().find(module, name)
        self.callable[id(found)] = found
        return found


def read_pickled(path: str | Path) -> dict[str, Any]:
    """The dictionary in a pickled file of CIFAR, with texts for keys."""
    def no_storage(_identity: Any) -> Any:
        raise restricted.Refused("a storage in a data set")

    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0,
                                                 access=mmap.ACCESS_READ) as data:
            found = _ArrayReader(data, no_storage).load()
    except (pickle.UnpicklingError, RuntimeError, ValueError) as error:
        raise DataError(f"read_pickled: {path} is damaged, incomplete or no file of CIFAR: "
                        f"{error}") from error
    if not isinstance(found, dict):
        raise DataError(f"read_pickled: {path} holds a {type(found).__name__}, not a dictionary")
    return {_text(key): value.value if isinstance(value, _Array) else value
            for key, value in found.items()}


def _text(key: Any) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


# -- the data sets -------------------------------------------------------------------------------


class CIFAR10(ImageDataset):
    """50,000 and 10,000 coloured pictures of 32 x 32 pixels in ten classes, from files on disk."""

    folders = ("", "cifar-10-batches-bin", "cifar-10-batches-py")
    parts = {True: tuple(f"data_batch_{n}" for n in range(1, 6)), False: ("test_batch",)}
    labels_before, key, count = 1, "labels", 10

    def __init__(self, root: str | Path, train: bool = True, transform: Transform = None,
                 target_transform: Transform = None) -> None:
        pieces = [self._read(root, part) for part in self.parts[bool(train)]]
        images = numpy.concatenate([images for images, _ in pieces]).reshape(-1, *SHAPE)
        labels = numpy.concatenate([labels for _, labels in pieces]).astype(numpy.int64)
        if labels.size and not 0 <= labels.min() <= labels.max() < self.count:
            raise DataError(f"{type(self).__name__}: a label is {labels.max()}; there are "
                            f"{self.count} classes")
        super().__init__(flambeau.from_numpy(images), flambeau.from_numpy(labels),
                         self._classes(root), transform, target_transform)

    def _read(self, root: str | Path, part: str) -> tuple[numpy.ndarray, numpy.ndarray]:
        path = first_existing(type(self).__name__, root, self.folders, (f"{part}.bin", part),
                              SOURCE)
        if path.suffix == ".bin":
            return self._read_binary(path)
        found = read_pickled(path)
        images, labels = found.get("data"), found.get(self.key)
        if (not isinstance(images, numpy.ndarray) or images.dtype != numpy.uint8
                or images.ndim != 2 or images.shape[1] != PIXELS or not isinstance(labels, list)
                or len(labels) != len(images) or not all(type(n) is int for n in labels)):
            raise DataError(f"{type(self).__name__}: {path} has no 'data' of (N, {PIXELS}) bytes "
                            f"with as many {self.key!r}")
        return images, numpy.array(labels)

    def _read_binary(self, path: Path) -> tuple[numpy.ndarray, numpy.ndarray]:
        data = numpy.fromfile(path, numpy.uint8)
        row = self.labels_before + PIXELS
        if not data.size or data.size % row:
            raise DataError(f"{type(self).__name__}: {path} has {data.size} bytes, no multiple of "
                            f"{row}: it is damaged or incomplete")
        rows = data.reshape(-1, row)
        return rows[:, self.labels_before:], rows[:, self.labels_before - 1]

    def _classes(self, root: str | Path) -> tuple[str, ...]:
        return CLASSES10


class CIFAR100(CIFAR10):
    """The same in a hundred classes."""

    folders = ("", "cifar-100-binary", "cifar-100-python")
    parts = {True: ("train",), False: ("test",)}
    labels_before, key, count = 2, "fine_labels", 100

    def _classes(self, root: str | Path) -> tuple[str, ...]:
        """The names stand in a file beside the images; without it they are numbers."""
        for folder in self.folders:
            plain, pickled = (Path(root, folder, name) for name in (
                "fine_label_names.txt", "meta"))
            if plain.is_file():
                names = tuple(plain.read_text(encoding="utf-8").split())
            elif pickled.is_file():
                names = tuple(map(_text, read_pickled(pickled).get("fine_label_names", ())))
            else:
                continue
            if len(names) == self.count:
                return names
        return tuple(map(str, range(self.count)))
