"""1,797 handwritten digits of 8 by 8 pixels; README.md says where they come from."""

from importlib import resources

import numpy

import flambeau

DARKEST = 16
# Of each digit every fifth image is kept for testing: no random numbers, and both parts balanced.
SPLITS = {
    "train": lambda nth: nth % 5 != 4,
    "test":  lambda nth: nth % 5 == 4,
    None:    lambda nth: nth >= 0,
}  # fmt: skip


def load_digits(
    split: str | None = None, flat: bool = False
) -> "tuple[flambeau.Tensor, flambeau.Tensor]":
    """Images, float32 in 0..1, and labels, int64.

    `split` is "train" (1,442 images), "test" (the other 355) or None (all of them).
    Images have the shape (N, 1, 8, 8), or (N, 64) if `flat`.
    """
    if split not in SPLITS:
        raise ValueError(f"load_digits: no split {split!r}; there are 'train', 'test' and None")
    with (resources.files(__package__) / "digits.npz").open("rb") as file:
        arrays = numpy.load(file)
        images, labels = arrays["images"], arrays["labels"]
    chosen = SPLITS[split](nth_of_its_digit(labels))
    shape = (-1, 64) if flat else (-1, 1, 8, 8)
    images = images[chosen].reshape(shape).astype(numpy.float32) / DARKEST
    labels = labels[chosen].astype(numpy.int64)
    return flambeau.from_numpy(images), flambeau.from_numpy(labels)


def nth_of_its_digit(labels: numpy.ndarray) -> numpy.ndarray:
    """For each image, how many of the same digit stand before it."""
    seen = numpy.cumsum(labels[:, None] == numpy.arange(10), axis=0)
    return numpy.take_along_axis(seen, labels[:, None].astype(int), axis=1)[:, 0] - 1
