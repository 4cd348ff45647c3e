"""Data sets that are tensors in memory: images and labels, one gather for a whole batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau
from flambeau.utils.data import Dataset

Transform = Callable[[Any], Any] | None


class DataError(RuntimeError):
    """A file of a data set is missing or damaged; the message says which and what to do."""


class ImageDataset(Dataset):
    """Images, uint8 of (N, channels, height, width), with a label each.

    `dataset[i]` is an image as float32 in 0..1 and a number; `tensors()` are all of them.
    """

    def __init__(self, images: flambeau.Tensor, labels: flambeau.Tensor,
                 classes: tuple[str, ...], transform: Transform = None,
                 target_transform: Transform = None) -> None:
        self.data, self.targets, self.classes = images, labels, classes
        self.class_to_idx = {name: index for index, name in enumerate(classes)}
        self.transform, self.target_transform = transform, target_transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._sample(_scaled(self.data[index]), int(self.targets[index]))

    def __getitems__(self, indices: list[int]) -> list[tuple[Any, Any]]:
        chosen = flambeau.tensor(list(indices))
        images = _scaled(self.data[chosen])
        return [self._sample(*pair) for pair in zip(
            images, self.targets[chosen].tolist(), strict=True)]

    def _sample(self, image: Any, label: Any) -> tuple[Any, Any]:
        image = image if self.transform is None else self.transform(image)
        return image, label if self.target_transform is None else self.target_transform(label)

    def tensors(self) -> tuple[flambeau.Tensor, flambeau.Tensor]:
        """All images, float32 in 0..1, and all labels, int64."""
        return _scaled(self.data), self.targets

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.data.shape[1:]))
        return f"{type(self).__name__}({len(self)} images of {shape}, {len(self.classes)} classes)"


def _scaled(images: flambeau.Tensor) -> flambeau.Tensor:
    return images.float() / 255


def first_existing(name: str, root: str | Path, folders: tuple[str, ...],
                   files: tuple[str, ...], source: str) -> Path:
    """The first of some files that is in one of some folders under `root`."""
    candidates = [Path(root, folder, file) for folder in folders for file in files]
    for path in candidates:
        if path.is_file():
            return path
    looked = ", ".join(str(Path(root, folder)) for folder in folders)
    raise DataError(f"{name}: no {files[0]} in {looked}; download it from {source} and put it "
                    "there (nothing is downloaded by itself)")
