"""Data that needs no download: a small set in the package, readers of files, and generators."""

from flambeau.datasets.arrays import DataError, ImageDataset
from flambeau.datasets.cifar import CIFAR10, CIFAR100
from flambeau.datasets.digits import load_digits
from flambeau.datasets.generators import make_copy_task, make_moons, make_spirals
from flambeau.datasets.idx import MNIST, FashionMNIST, read_idx
from flambeau.datasets.text import Characters, load_python_text

__all__ = [
    "CIFAR10", "CIFAR100", "Characters", "DataError", "FashionMNIST", "ImageDataset", "MNIST",
    "load_digits", "load_python_text", "make_copy_task", "make_moons", "make_spirals", "read_idx",
]
