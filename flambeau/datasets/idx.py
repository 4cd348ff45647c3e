"""MNIST and its kin: images and labels in IDX files on disk, packed by gzip or plain."""

from __future__ import annotations

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy

import flambeau
from flambeau.datasets.arrays import DataError, ImageDataset, Transform, first_existing

#: the third byte of a file -> what its elements are
ELEMENTS = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MOST_BYTES = 1 << 34
DIGITS = tuple("0 - zero,1 - one,2 - two,3 - three,4 - four,5 - five,6 - six,7 - seven,8 - eight,"
               "9 - nine".split(","))
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
           "Bag", "Ankle boot")


def read_idx(path: str | Path) -> numpy.ndarray:
    """The array in an IDX file, plain or packed by gzip."""
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as file:
            return _array(Path(path), file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"read_idx: {path} is damaged or incomplete: {error}") from error


def _array(path: Path, file) -> numpy.ndarray:  # type: ignore[no-untyped-def]
    head = file.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in ELEMENTS or not 0 < head[3] < 9:
        raise DataError(f"read_idx: {path} is no IDX file: it begins with {head!r}")
    sizes = file.read(4 * head[3])
    if len(sizes) < 4 * head[3]:
        raise DataError(f"read_idx: {path} is cut in its header")
    shape = tuple(numpy.frombuffer(sizes, ">u4").tolist())
    kind = numpy.dtype(ELEMENTS[head[2]])
    wanted = prod(shape) * kind.itemsize
    if wanted > MOST_BYTES:
        raise DataError(f"read_idx: {path} claims {shape}, {wanted} bytes: it is damaged")
    data = file.read(wanted + 1)
    if len(data) != wanted:
        less = f"only {len(data)}" if len(data) < wanted else "more"
        raise DataError(f"read_idx: {path} claims {shape}, {wanted} bytes, and has {less}")
    return numpy.frombuffer(data, kind).reshape(shape).astype(kind.newbyteorder("="))


class MNIST(ImageDataset):
    """60,000 and 10,000 handwritten digits of 28 x 28 pixels, from IDX files under `root`."""

    folder, names = "MNIST", DIGITS
    source = "https://ossci-datasets.s3.amazonaws.com/mnist/"

    def __init__(self, root: str | Path, train: bool = True, transform: Transform = None,
                 target_transform: Transform = None) -> None:
        part = "train" if train else "t10k"
        images = read_idx(self._find(root, f"{part}-images", "idx3-ubyte"))
        labels = read_idx(self._find(root, f"{part}-labels", "idx1-ubyte"))
        kind = type(self).__name__
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise DataError(f"{kind}: {images.shape} images and {labels.shape} labels do not "
                            "belong together")
        if labels.size and not 0 <= labels.min() <= labels.max() < len(self.names):
            raise DataError(f"{kind}: a label is {labels.max()}; there are {len(self.names)} "
                            "classes")
        super().__init__(flambeau.from_numpy(numpy.ascontiguousarray(images))[:, None],
                         flambeau.from_numpy(labels.astype(numpy.int64)), self.names, transform,
                         target_transform)

    def _find(self, root: str | Path, name: str, kind: str) -> Path:
        files = tuple(f"{name}{mark}{kind}{ending}" for ending in ("", ".gz") for mark in "-.")
        return first_existing(type(self).__name__, root, ("", "raw", self.folder,
                                                          f"{self.folder}/raw"), files, self.source)


class FashionMNIST(MNIST):
    """60,000 and 10,000 pictures of clothes, in the format of MNIST."""

    folder, names = "FashionMNIST", CLOTHES
    source = "https://github.com/zalandoresearch/fashion-mnist"
