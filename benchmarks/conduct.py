"""How kernels behave in company: a busy neighbour, other thread counts, other Python threads, fork.

Each group prints what it finds and returns (what, found, least wanted) rows for the verdict.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parent.parent


def in_process(question: str, library="flambeau", threads=2, **environment):
    """The answer of `answer_<question>` of this file, from a process with a library of its own."""
    count = str(threads)
    environ = {**os.environ, "OMP_NUM_THREADS": count, "PYTHONPATH": str(ROOT), **environment}
    out = subprocess.run([sys.executable, __file__, question, library, count], env=environ,
                         check=True, capture_output=True, text=True, timeout=600)
    return json.loads(out.stdout.splitlines()[-1])


# -- a busy neighbour -------------------------------------------------------------------------


def training_steps(torch):
    """The house MLP, the MNIST MLP and the MNIST CNN: one training step each."""
    nn, rng = torch.nn, numpy.random.default_rng(0)

    def images(*shape):
        return torch.from_numpy(rng.standard_normal(shape, dtype="f4"))

    torch.manual_seed(0)
    labels = torch.from_numpy(rng.integers(0, 10, 64))
    cnn = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))
    house = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    mlp = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    rows = (("house MLP", house, images(80, 3), images(80, 1), nn.MSELoss(), 400),
            ("MNIST MLP", mlp, images(64, 784), labels, nn.CrossEntropyLoss(), 200),
            ("MNIST CNN", cnn, images(64, 1, 28, 28), labels, nn.CrossEntropyLoss(), 5))
    for name, model, x, y, measure, calls in rows:
        optimizer = torch.optim.Adam(model.parameters())

        def step(model=model, x=x, y=y, measure=measure, optimizer=optimizer):
            optimizer.zero_grad()
            measure(model(x), y).backward()
            optimizer.step()

        yield name, step, calls


def answer_steps(torch):
    """Seconds per training step: the middle one of several timings, not the luckiest."""
    found = {}
    for name, step, calls in training_steps(torch):
        for _ in range(3):
            step()
        times = []
        for _ in range(7):
            began = time.perf_counter()
            for _ in range(calls):
                step()
            times.append((time.perf_counter() - began) / calls)
        found[name] = sorted(times)[len(times) // 2]
    return found


def neighbour(quick: bool) -> list[tuple]:
    """Training steps on 2 threads, alone and beside a process that keeps one core busy."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        print("\nneighbour: needs two cores")
        return []
    print(f"\nneighbour{'alone us':>22}{'beside one us':>15}{'times':>8}")
    rows = []
    for library in ("flambeau",) if quick else ("flambeau", "torch"):
        alone = in_process("steps", library)
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            os.sched_setaffinity(busy.pid, {cores[1]})
            beside = in_process("steps", library)
        finally:
            busy.kill()
            busy.wait()
        for name, before in alone.items():
            times = beside[name] / before
            print(f"{library:<9} {name:<10}{before * 1e6:>11.1f}{beside[name] * 1e6:>15.1f}"
                  f"{times:>8.2f}", flush=True)
            if library == "flambeau":
                rows.append((f"beside a busy process, {name}: 2.2 / times as long", 2.2 / times, 1))
    return rows


# -- threads ----------------------------------------------------------------------------------


def answer_digests(torch):
    """A digest of every result of many kernels at sizes that are worth two threads."""
    import kernel_cases

    picked = {name: case for group in ("small", "conv", "attention", "lstm", "optimizer")
              for name, case in kernel_cases.GROUPS[group].cases.items()}
    for group in ("elementwise", "rows", "reduce", "move"):
        picked |= {name: case for name, case in kernel_cases.GROUPS[group].cases.items()
                   if name.endswith((" 1M", " tall"))}
    for group in ("random", "sort"):
        picked |= {name: case for name, case in kernel_cases.GROUPS[group].cases.items()
                   if "4096" not in name}
    found = {}
    for name, case in picked.items():
        results = case(torch)()
        digest = hashlib.sha256()
        for t in results if isinstance(results, (tuple, list)) else (results,):
            digest.update(numpy.ascontiguousarray(numpy.asarray(t.detach())).tobytes())
        found[name] = digest.hexdigest()
    return found


def answer_crowd(torch):
    """Eight Python threads issue kernels at once; how many got what one alone gets."""
    rng = numpy.random.default_rng(1)
    a, b = (torch.from_numpy(rng.standard_normal((384, 384), dtype="f4")) for _ in range(2))

    def work():
        c = torch.relu(a @ b) + a
        return torch.softmax(c, 1).sum(0) + torch.sort(c.reshape(-1))[0][:384]

    wanted, right = numpy.asarray(work()), []

    def many():
        right.append(all(numpy.array_equal(numpy.asarray(work()), wanted) for _ in range(10)))

    crowd = [threading.Thread(target=many) for _ in range(8)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(300)
    return {"right": sum(right)}


class Products:
    """A dataset whose items are large enough for several threads."""

    def __init__(self, torch):
        self.torch, self.a = torch, torch.ones(384, 384)

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return (self.a @ self.a).mean() + i


def answer_fork(torch):
    """Kernels in forked workers of a process that has used its own threads."""
    data = Products(torch)
    first = float(data[0])
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2,
                                         multiprocessing_context="fork")
    got = [float(v) for batch in loader for v in batch]
    return {"right": int(got == [first + i for i in range(8)])}


def threads(quick: bool) -> list[tuple]:
    """1 and 2 threads bitwise equal; a crowd of Python threads; fork."""
    print("\nthreads", flush=True)
    one, two = (in_process("digests", threads=n) for n in (1, 2))
    differ = [name for name in one if one[name] != two[name]]
    print(f"{len(one) - len(differ)} of {len(one)} kernels bitwise equal on 1 and 2 threads")
    if differ:
        print("  not: " + ", ".join(differ))
    crowd, fork = in_process("crowd"), in_process("fork")
    return [("kernels that differ between 1 and 2 threads (negative)", -len(differ), 0),
            ("Python threads at once with right results", crowd["right"], 8),
            ("right results in forked workers", fork["right"], 1)]


# -- bandwidth --------------------------------------------------------------------------------


def answer_bandwidth(torch):
    """Bytes per second of large elementwise ops and of a plain copy, in GB."""
    n = 16_777_216
    x, y = torch.ones(n), torch.ones(n)
    source, target = numpy.ones(n, "f4"), numpy.ones(n, "f4")
    cases = {"copy": (lambda: numpy.copyto(target, source), 2), "add": (lambda: x + y, 3),
             "mul by a number": (lambda: x * 2.0, 2), "add_": (lambda: x.add_(y), 3),
             "relu_": (lambda: x.relu_(), 2)}
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(12):
        for name, (run, _) in cases.items():
            began = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - began)
    return {name: cases[name][1] * 4 * n / seconds / 1e9 for name, seconds in best.items()}


def bandwidth(quick: bool) -> list[tuple]:
    """Large elementwise ops beside the machine's copy, on one thread."""
    found = in_process("bandwidth", threads=1)
    print("\nbandwidth, 16M elements, GB/s: "
          + ", ".join(f"{name} {value:.1f}" for name, value in found.items()))
    copy = found.pop("copy")
    return [(f"bandwidth of {name} beside a copy", value / copy, 0.8)
            for name, value in found.items()]


GROUPS = {"bandwidth": bandwidth, "threads": threads, "neighbour": neighbour}


if __name__ == "__main__":
    asked, library, count = sys.argv[1:]
    module = __import__(library)
    module.set_num_threads(int(count))
    print(json.dumps(globals()[f"answer_{asked}"](module)))
