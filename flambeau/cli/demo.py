"""Train a small network to read handwritten digits, and say how well it does."""

import argparse
import time

import flambeau
import flambeau.nn.functional as F
from flambeau import nn, optim
from flambeau.cli.progress import Progress
from flambeau.datasets import load_digits

HELP = "train a small network to read handwritten digits"
SMOOTHING = 0.95


def add_arguments(form: argparse.ArgumentParser) -> None:
    form.add_argument("--epochs", type=count, default=40, help="passes over the data (%(default)s)")
    form.add_argument("--batch", type=count, default=32, help="images per step (%(default)s)")
    form.add_argument("--lr", type=float, default=1e-3, help="Adam's step size (%(default)s)")
    form.add_argument("--seed", type=int, default=0, help="of all random numbers (%(default)s)")


def count(text: str) -> int:
    """A whole number of at least one; argparse names the type in its complaint."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def main(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    flambeau.manual_seed(options.seed)
    images, labels = load_digits("train", flat=True)
    model = build()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"a network of {parameters:,} parameters, {len(labels):,} images of 8 x 8 pixels")
    train(model, images, labels, options)
    right, total = score(model, *load_digits("test", flat=True))
    seconds = time.perf_counter() - began
    print(
        f"test accuracy {right / total:.1%}: {right} of {total} digits it had never seen, "
        f"after {seconds:.1f} s"
    )
    return 0


def build() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train(
    model: nn.Module,
    images: flambeau.Tensor,
    labels: flambeau.Tensor,
    options: argparse.Namespace,
) -> None:
    optimizer = optim.Adam(model.parameters(), lr=options.lr)
    steps_per_epoch = -(-len(labels) // options.batch)
    figures = Figures()
    with Progress(options.epochs * steps_per_epoch) as progress:
        for epoch in range(1, options.epochs + 1):
            for chosen in flambeau.randperm(len(labels)).split(options.batch):
                x, y = images[chosen], labels[chosen]
                logits = model(x)
                loss = F.cross_entropy(logits, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                figures.update(loss.item(), (logits.argmax(1) == y).float().mean().item())
                progress.advance(f"epoch {epoch:>2}/{options.epochs}  {figures}")


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


def score(
    model: nn.Module, images: flambeau.Tensor, labels: flambeau.Tensor
) -> tuple[int, int]:
    """How many images the model reads right, and how many there are."""
    model.eval()
    with flambeau.no_grad():
        guesses = model(images).argmax(1)
    return int((guesses == labels).sum()), len(labels)
