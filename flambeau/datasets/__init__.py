"""Small data sets that ship with the package, as tensors ready to train on."""

from flambeau.datasets.digits import load_digits

__all__ = ["load_digits"]
