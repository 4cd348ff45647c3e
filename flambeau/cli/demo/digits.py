"""The digits: a small convolutional network, its progress, its mistakes, and how fast it was."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import flambeau
import flambeau.nn.functional as F
from flambeau import nn, optim
from flambeau.cli.demo import report, speed
from flambeau.cli.demo.network import build
from flambeau.cli.progress import Progress
from flambeau.cli.usage import UsageError
from flambeau.datasets import load_digits

SMOOTHING = 0.95


def main(options: argparse.Namespace) -> int:
    folder = Path(options.picture).resolve().parent
    if not folder.is_dir():
        raise UsageError(f"no folder {folder} for the picture")
    began = time.perf_counter()
    images, labels = load_digits("train")
    model = build()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"A convolutional network of {parameters:,} parameters learns from {len(labels):,} "
          f"handwritten digits of 8 x 8 pixels,\non {flambeau.get_num_threads()} thread(s) of the "
          f"CPU. Kernels are compiled as they are first met.\n", flush=True)
    history = train(model, images, labels, options)
    images, labels = load_digits("test")
    guesses = read(model, images)
    right, total = int((guesses == labels).sum()), len(labels)
    print(f"\ntest accuracy {right / total:.1%}: {right} of {total} digits it had never seen, "
          f"after {time.perf_counter() - began:.1f} s\n", flush=True)
    print(report.in_terminal(history, images, labels, guesses))
    Path(options.picture).write_bytes(report.as_png(history, images, labels, guesses))
    print(f"\nThe same as a picture: {options.picture}\n", flush=True)
    print(speed.table(options.batch))
    print(report.WHAT_NEXT)
    return 0


def train(model: nn.Module, images: flambeau.Tensor, labels: flambeau.Tensor,
          options: argparse.Namespace) -> list[float]:
    """The loss of every step."""
    optimizer = optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01)
    steps = options.epochs * -(-len(labels) // options.batch)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=steps)
    figures, history = Figures(), []
    with Progress(steps) as progress:
        for epoch in range(1, options.epochs + 1):
            for chosen in flambeau.randperm(len(labels)).split(options.batch):
                x, y = images[chosen], labels[chosen]
                logits = model(x)
                loss = F.cross_entropy(logits, y, label_smoothing=0.1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                history.append(loss.item())
                figures.update(history[-1], (logits.argmax(1) == y).float().mean().item())
                progress.advance(f"epoch {epoch:>2}/{options.epochs}  {figures}")
    return history


class Figures:
    """Loss and accuracy, smoothed over recent steps so that they can be read while they change."""

    def __init__(self) -> None:
        self.weight = self.loss = self.accuracy = 0.0

    def update(self, loss: float, accuracy: float) -> None:
        self.weight = SMOOTHING * self.weight + 1 - SMOOTHING
        share = (1 - SMOOTHING) / self.weight
        self.loss += share * (loss - self.loss)
        self.accuracy += share * (accuracy - self.accuracy)

    def __str__(self) -> str:
        return f"loss {self.loss:.4f}  accuracy {self.accuracy:6.1%}"


def read(model: nn.Module, images: flambeau.Tensor) -> flambeau.Tensor:
    """Which digit the model sees in each image."""
    model.eval()
    with flambeau.no_grad():
        return model(images).argmax(1)
