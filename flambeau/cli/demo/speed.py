"""Training steps per second, eager and compiled, each measured in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import flambeau
import flambeau.nn.functional as F
from flambeau import nn, optim
from flambeau.cli.demo.network import build
from flambeau.compiler import compile
from flambeau.datasets import load_digits


def small() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


NETWORKS = {"the network above": build, "an MLP of 64-64-10": small}
WAYS = {"eager": lambda step: step, "compiled": compile}


def table(batch: int) -> str:
    """A line for each network, a column for each way to run it."""
    lines = [f"{'training steps per second':<28}" + "".join(f"{way:>10}" for way in WAYS)]
    for name in NETWORKS:
        figures = "".join(f"{in_process(name, way, batch):>10}" for way in WAYS)
        lines.append(f"  {name:<26}{figures}")
    return "\n".join(lines)


def in_process(name: str, way: str, batch: int) -> str:
    home = str(Path(flambeau.__file__).parent.parent)
    settings = {**os.environ,
                "PYTHONPATH": os.pathsep.join([home, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-m", __name__, name, way, str(batch)], env=settings,
                          capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "failed"


def training_step(model: nn.Module, x: flambeau.Tensor, y: flambeau.Tensor) -> Callable:
    optimizer = optim.SGD(model.parameters(), lr=1e-3)

    def step() -> flambeau.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def pace(step: Callable, seconds: float = 0.7) -> float:
    """Calls per second, the best of short spells."""
    for _ in range(3):
        step()
    best, until = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        for _ in range(5):
            step()
        best = max(best, 5 / (time.perf_counter() - began))
    return best


def main() -> None:
    name, way, batch = sys.argv[1:]
    images, labels = load_digits("train")
    step = training_step(NETWORKS[name](), images[:int(batch)], labels[:int(batch)])
    print(f"{pace(WAYS[way](step)):,.0f}")


if __name__ == "__main__":
    main()
