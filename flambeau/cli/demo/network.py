"""The network of the digits demo."""

from __future__ import annotations

from flambeau import nn

WIDTH = 8


def build() -> nn.Module:
    w = WIDTH
    return nn.Sequential(
        nn.Conv2d(1, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(),
        nn.Conv2d(w, 2 * w, 3, padding=1), nn.BatchNorm2d(2 * w), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(2 * w, 4 * w, 3, padding=1), nn.BatchNorm2d(4 * w), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * w * 16, 10))
