"""How fast this machine is: a few ops and a training step, eager and compiled.

  flambeau bench                  flambeau alone
  flambeau bench --against torch  beside PyTorch, if it is installed, in alternating processes
  flambeau bench --threads 2

The whole comparison lives in the repository: `./run bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import flambeau
from flambeau.cli.arguments import count
from flambeau.cli.usage import UsageError

HELP = "a few figures about speed"
ROUNDS = 3

MEASURE = '''
import json, sys, time
name, threads = sys.argv[1], int(sys.argv[2])
torch = __import__(name)
nn, F = torch.nn, torch.nn.functional
torch.set_num_threads(threads)
torch.manual_seed(0)

def best(run, seconds=0.4):
    """Seconds of one call, the best found in about this time."""
    run(); run()
    began = time.perf_counter(); run(); once = time.perf_counter() - began
    calls = max(1, min(1000, int(0.005 / max(once, 1e-7))))
    found, until = once, time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        for _ in range(calls):
            run()
        found = min(found, (time.perf_counter() - began) / calls)
    return found

a, b = torch.rand(8, 8), torch.rand(8, 8)
large, square = torch.rand(1_000_000), torch.rand(512, 512)
model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(64, 784), torch.randint(0, 10, (64,))

def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()

figures = {
    "a + b, 8 x 8": lambda: a + b,
    "exp of a million": lambda: torch.exp(large),
    "softmax, 512 x 512": lambda: torch.softmax(square, -1),
    "matmul, 512 x 512": lambda: square @ square,
    "training step, 784-128-10": step,
}
found = {title: best(run) for title, run in figures.items()}
if name == "flambeau" and hasattr(torch, "compile"):
    compiled = torch.compile(step)
    found["the same step, compiled"] = best(compiled)
print(json.dumps(found))
'''


def add_arguments(form: argparse.ArgumentParser) -> None:
    form.add_argument("--against", choices=["torch"], help="compare with this library")
    form.add_argument("--threads", type=count, default=flambeau.get_num_threads(),
                      help="how many (%(default)s)")


def main(options: argparse.Namespace) -> int:
    if options.against and find_spec(options.against) is None:
        raise UsageError(f"{options.against} is not installed: pip install {options.against}")
    libraries = ["flambeau", *([options.against] if options.against else [])]
    best: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS if options.against else 1):
        for library in libraries:
            for title, seconds in measured(library, options.threads).items():
                row = best.setdefault(title, {})
                row[library] = min(seconds, row.get(library, seconds))
    plural = "s" if options.threads > 1 else ""
    print(f"{f'{options.threads} thread{plural}':<28}" + "".join(f"{n:>14}" for n in libraries))
    for title, row in best.items():
        cells = "".join(f"{row[n] * 1e6:>11,.1f} us" for n in libraries if n in row)
        ratio = f"{row['torch'] / row['flambeau']:>7.1f} x" if "torch" in row else ""
        print(f"{title:<28}{cells}{ratio}")
    return 0


def measured(library: str, threads: int) -> dict[str, float]:
    """The figures of a library, from a process of its own."""
    home = str(Path(flambeau.__file__).parent.parent)
    settings = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
                "PYTHONPATH": os.pathsep.join([home, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", MEASURE, library, str(threads)], env=settings,
                          capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"{library} could not be measured:\n{done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])
