"""One small network trained by PyTorch, JAX, tinygrad, MLX and flambeau: same numbers, how fast.

    python benchmarks/peers.py               all that are installed, in alternating processes

784-128-10, batches of 64, SGD: each library in the way its own documentation shows, with its
compiler. The loss after twenty steps must agree before times are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parent.parent
STEPS, RATE = 20, 0.1


def numbers():
    """Weights and a batch, the same for all."""
    rng = numpy.random.default_rng(0)
    weights = [rng.standard_normal((784, 128), dtype="f4") * numpy.float32(0.05),
               numpy.zeros(128, "f4"),
               rng.standard_normal((128, 10), dtype="f4") * numpy.float32(0.05),
               numpy.zeros(10, "f4")]
    return weights, rng.standard_normal((64, 784), dtype="f4"), rng.integers(0, 10, 64)


def like_torch(torch, compiled: bool):
    weights, x, y = numbers()
    first, second = torch.nn.Linear(784, 128), torch.nn.Linear(128, 10)
    with torch.no_grad():
        for p, w in zip([first.weight, first.bias, second.weight, second.bias], weights):
            p.copy_(torch.from_numpy(numpy.ascontiguousarray(w.T)))
    model = torch.nn.Sequential(first, torch.nn.ReLU(), second)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = torch.compile(step) if compiled else step
    return lambda: float(run().detach())


def library(name: str, compiled: bool):
    def build():
        module = __import__(name)
        module.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        return like_torch(module, compiled)
    return build


def stepping(loss_of, state, slopes_of, compiled, read):
    """Descent where weights are values, as in JAX and MLX: a step is given some, and gives others.

    `slopes_of` and `compiled` are the library's own; `read` makes a number of loss and state.
    """
    @compiled
    def step(weights):
        loss, slopes = slopes_of(loss_of)(weights)
        return loss, [w - RATE * g for w, g in zip(weights, slopes)]

    def run():
        nonlocal state
        loss, state = step(state)
        return read(loss, state)
    return run


def jax():
    import jax
    import jax.numpy as jnp

    weights, x, y = numbers()
    x, y, state = jnp.asarray(x), jnp.asarray(y), [jnp.asarray(w) for w in weights]

    def loss_of(w):
        logits = jax.nn.relu(x @ w[0] + w[1]) @ w[2] + w[3]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    return stepping(loss_of, state, jax.value_and_grad, jax.jit, lambda loss, _: float(loss))


def tinygrad():
    from tinygrad import Context, Tensor, TinyJit, nn

    weights, x, y = numbers()
    state = [Tensor(w) for w in weights]
    x, y = Tensor(x), Tensor(y.astype("i4"))
    optimizer = nn.optim.SGD(state, lr=RATE)

    @TinyJit
    def step():
        optimizer.zero_grad()
        logits = (x @ state[0] + state[1]).relu() @ state[2] + state[3]
        loss = logits.sparse_categorical_crossentropy(y).backward()
        optimizer.step()
        return loss.realize()

    def run():
        with Context(TRAINING=1):
            return step().item()
    return run


def mlx():
    import mlx.core as mx
    import mlx.nn as nn

    mx.set_default_device(mx.cpu)
    weights, x, y = numbers()
    x, y, state = mx.array(x), mx.array(y.astype("i4")), [mx.array(w) for w in weights]

    def loss_of(w):
        logits = mx.maximum(x @ w[0] + w[1], 0) @ w[2] + w[3]
        return nn.losses.cross_entropy(logits, y, reduction="mean")

    def read(loss, state):
        mx.eval(state)
        return loss.item()

    return stepping(loss_of, state, mx.value_and_grad, mx.compile, read)


LIBRARIES = {
    "flambeau":          library("flambeau", False),
    "flambeau compiled": library("flambeau", True),
    "torch":             library("torch", False),
    "torch compiled":    library("torch", True),
    "jax jit":           jax,
    "tinygrad jit":      tinygrad,
    "mlx compiled":      mlx,
}  # fmt: skip


#: library -> a program it calls that no wheel brings, and what to say where it is missing
PROGRAMS = {
    "tinygrad jit": ("clang", "no figure: it compiles for the CPU with clang, not found here"),
}  # fmt: skip


def measure(name: str, seconds: float) -> dict:
    """Seconds from nothing to the end of the first step, and of later steps."""
    began = time.perf_counter()
    run = LIBRARIES[name]()
    losses = [run()]
    start = time.perf_counter() - began
    losses += [run() for _ in range(STEPS - 1)]
    best, until = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        for _ in range(10):
            run()
        best = min(best, (time.perf_counter() - began) / 10)
    return {"start": start, "step": best, "loss": losses[-1]}


def child(name: str, threads: int, seconds: float) -> dict:
    """What a process of its own measures; {"fault": ...} if it cannot."""
    program, missing = PROGRAMS.get(name, ("", ""))
    if program and not shutil.which(program):
        return {"fault": missing}
    count = str(threads)
    flags = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'} " \
            f"intra_op_parallelism_threads={count}"
    settings = {**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count,
                "XLA_FLAGS": flags, "DEV": "CPU", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, __file__, "--measure", name, "--seconds", str(seconds)], env=settings,
        capture_output=True, text=True)
    if done.returncode:
        return {"fault": (done.stderr.strip().splitlines() or ["it ended"])[-1][:160]}
    return json.loads(done.stdout.splitlines()[-1])


def compare(threads: int, rounds: int, seconds: float, without: tuple = ()) -> dict[str, dict]:
    """name -> best figures over alternating processes, or its fault."""
    found: dict[str, dict] = {}
    for _ in range(rounds):
        for name in [each for each in LIBRARIES if each not in without]:
            if "fault" in found.get(name, {}):
                continue
            here = child(name, threads, seconds)
            before = found.get(name)
            if before and "fault" not in here:
                here = {key: min(here[key], before[key]) for key in here}
            found[name] = here
    losses = [row["loss"] for row in found.values() if "loss" in row]
    for row in found.values():
        if "loss" in row and abs(row["loss"] - losses[0]) > 1e-3:
            row["fault"] = f"its loss is {row['loss']:.4f}, flambeau's {losses[0]:.4f}"
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", choices=LIBRARIES, help="this one, here; prints JSON")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.seconds)))
        return 0
    for threads in map(int, options.threads.split(",")):
        print(f"\n{threads} thread(s){'first step':>20}{'a step':>12}")
        for name, row in compare(threads, options.rounds, options.seconds).items():
            print(f"{name:<18}" + (row.get("fault") or
                                   f"{row['start']:>10.2f} s{row['step'] * 1e6:>10.1f} us"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
