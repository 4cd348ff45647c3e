"""ResNet-18 in one process and in two, of one thread each: flambeau beside torch over gloo.

    python benchmarks/data_parallel.py [--size 96] [--batch 16] [--steps 6] [--rounds 3]

Prints images per second (the best step of the slowest rank) and how much two processes gain, beside
what two processes gain that train apart, at the same moments: that is the most the machine allows.
"""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("flambeau", "torch")


def resnet18(nn):
    """torchvision's ResNet-18, from either library's layers."""

    class Block(nn.Module):
        def __init__(self, narrow, wide, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(narrow, wide, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(wide)
            self.conv2 = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(wide)
            self.relu = nn.ReLU()
            self.shortcut = None if narrow == wide else nn.Sequential(
                nn.Conv2d(narrow, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))

        def forward(self, x):
            out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            return self.relu(out + (x if self.shortcut is None else self.shortcut(x)))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
              nn.MaxPool2d(3, 2, 1)]
    narrow = 64
    for wide in (64, 128, 256, 512):
        layers += [Block(narrow, wide, 1 if wide == 64 else 2), Block(wide, wide, 1)]
        narrow = wide
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def work(options):
    """One rank: train, and say how long the best step took."""
    torch = importlib.import_module(options.worker)
    dist = importlib.import_module(f"{options.worker}.distributed")
    parallel = importlib.import_module(f"{options.worker}.nn.parallel")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = resnet18(torch.nn)
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    if several:
        dist.init_process_group("gloo")
    if several and not options.apart:
        model = parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    x = torch.randn(options.batch, 3, options.size, options.size)
    y = torch.randint(0, 1000, (options.batch,))
    best = float("inf")
    for _ in range(options.steps):
        if several:
            dist.barrier()
        began = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        best = min(best, time.perf_counter() - began)
    print(json.dumps({"seconds": best}), flush=True)
    if several:
        dist.destroy_process_group()


def measure(library, processes, options, apart=False):
    """Images per second of one run."""
    script = [str(Path(__file__).resolve()), "--worker", library, "--size", str(options.size),
              "--batch", str(options.batch), "--steps", str(options.steps)]
    script += ["--apart"] if apart else []
    starters = {
        ("flambeau", 2): ["-m", "flambeau.cli", "launch", "-n", "2"],
        ("torch", 2): ["-m", "torch.distributed.run", "--nproc-per-node", "2"],
    }
    command = [sys.executable, *starters.get((library, processes), []), *script]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths})
    # Lines of two ranks may run into each other.
    times = [float(found) for found in re.findall(r'"seconds": ([0-9.e-]+)', done.stdout)]
    if len(times) != processes:
        raise SystemExit(done.stderr)
    return processes * options.batch / max(times)


#: how many processes, whether they train apart
WAYS = ((1, False), (2, True), (2, False))


def main(options):
    best = {}
    for _ in range(options.rounds):
        for library in LIBRARIES:
            for way in WAYS:
                rate = measure(library, way[0], options, way[1])
                best[library, way] = max(best.get((library, way), 0), rate)
    print(f"ResNet-18, batch {options.batch} of 3x{options.size}x{options.size} per process")
    print(f"{'':10}{'1 process':>12}{'2 apart':>14}{'2 together':>14}{'gain':>8}{'of most':>9}")
    for library in LIBRARIES:
        one, apart, two = (best[library, way] for way in WAYS)
        print(f"{library:10}{one:9.1f}/s {apart:11.1f}/s {two:11.1f}/s {two / one:7.2f}x"
              f"{two / apart:8.0%}")


if __name__ == "__main__":
    form = argparse.ArgumentParser(description=__doc__)
    form.add_argument("--worker", choices=LIBRARIES, help=argparse.SUPPRESS)
    form.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    form.add_argument("--size", type=int, default=96)
    form.add_argument("--batch", type=int, default=16)
    form.add_argument("--steps", type=int, default=6)
    form.add_argument("--rounds", type=int, default=3)
    chosen = form.parse_args()
    (work if chosen.worker else main)(chosen)
