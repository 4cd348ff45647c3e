"""Train something on data that ships with the package, and show what it learned.

  flambeau demo                   handwritten digits: a convolutional network, to 98% and more
  flambeau demo --model gpt       a character GPT on the sources of Python's standard library
"""

from __future__ import annotations

import argparse
import importlib

import flambeau
from flambeau.cli.arguments import count, rate

HELP = "train a network on data that ships with the package, and show what it learned"
MODELS = {
    "digits": "a convolutional network that reads handwritten digits",
    "gpt":    "a character GPT that writes Python",
}  # fmt: skip


def add_arguments(form: argparse.ArgumentParser) -> None:
    form.add_argument("--model", choices=MODELS, default="digits",
                      help="; ".join(f"{name}: {what}" for name, what in MODELS.items()))
    form.add_argument("--epochs", type=count, default=10,
                      help="digits: passes over the data (%(default)s)")
    form.add_argument("--steps", type=count, default=600, help="gpt: updates (%(default)s)")
    form.add_argument("--batch", type=count, default=32,
                      help="examples per step (%(default)s)")
    form.add_argument("--lr", type=rate, default=3e-3, help="highest step size (%(default)s)")
    form.add_argument("--seed", type=int, default=0, help="of all random numbers (%(default)s)")
    form.add_argument("--picture", metavar="FILE", default="flambeau-demo.png",
                      help="where the picture goes (%(default)s)")


def main(options: argparse.Namespace) -> int:
    flambeau.manual_seed(options.seed)
    return importlib.import_module(f"{__name__}.{options.model}").main(options)
