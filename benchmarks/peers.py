"""Training steps of the same models in five libraries: equal losses first, then how fast.

    python benchmarks/peers.py                                  all models, 1 and 2 threads
    python benchmarks/peers.py --model gpt,house --threads 1    models whose names hold these words
    python benchmarks/peers.py --library jax,mlx                these beside flambeau

PyTorch, JAX (jit), tinygrad (TinyJit), MLX (compile) and flambeau (compile), each in the way its
own documentation shows, in processes that take turns. Weights and data are flambeau's. A ratio is a
library's time over flambeau's: above 1 flambeau is faster.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import duel
import model_cases
import numpy
import peer_models

STEPS = 5  # whose losses are compared
#: but fewer, at least, of a library that needs more than so many seconds for them
FEW, PATIENCE = 2, 5.0
OURS = "flambeau compiled"

#: name -> how torch and flambeau run a step, or the module with what another library needs
LIBRARIES = {
    OURS:                 "segments",
    "flambeau fullgraph": "fullgraph",
    "torch":              "eager",
    "torch compiled":     "segments",
    "jax jit":            "peer_jax",
    "tinygrad jit":       "peer_tinygrad",
    "mlx compiled":       "peer_mlx",
}  # fmt: skip

#: what the figures of a table are
EXPLAINED = (
    "A step in µs, in brackets its ratio to that of flambeau compiled, and the seconds that",
    "import, building and the first step take. Nothing is random: there is no dropout, and the",
    "VAE's noise is data. The trees are the same in every step: a jit that unrolls them would have",
    "to compile others anew.",
)

#: library -> a program it calls that no wheel brings, and what to say where it is missing
PROGRAMS = {
    "tinygrad jit": ("clang", "it compiles for the CPU with clang, not found here"),
}  # fmt: skip


# -- the process that measures --------------------------------------------------------------------


def like_torch(library: str, how: str, threads: int, model: str):
    """A step of torch or flambeau, from model_cases.py."""
    torch = importlib.import_module(library)
    torch.set_num_threads(threads)
    peer_models.without_chance(torch, peer_models.noise())
    torch.manual_seed(0)
    step = model_cases.MODELS[model][0](torch)
    return step if how == "eager" else torch.compile(step, fullgraph=how == "fullgraph")


def build(library: str, threads: int, model: str, numbers: str):
    how = LIBRARIES[library]
    if not how.startswith("peer_"):
        return like_torch(library.split()[0], how, threads, model)
    peer = importlib.import_module(how)
    return peer.training(peer_models.read(model, numbers, peer.kernel))


def serve(library: str, threads: int) -> None:
    """Answer questions, one JSON line each: a model to build, or seconds to measure it for."""
    count = str(threads)
    eigen = "true" if threads > 1 else "false"
    os.environ |= {"PJRT_NPROC": count, "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={eigen}",
                   "JAX_PLATFORMS": "cpu", "DEV": "CPU", "NUM_CPU_THREADS": count}
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "build" in asked:
                began = time.perf_counter()
                run = build(library, threads, asked["build"], asked["numbers"])
                losses = [run().item()]
                start = time.perf_counter() - began
                until = time.perf_counter() + PATIENCE
                while len(losses) < FEW or (len(losses) < STEPS and time.perf_counter() < until):
                    losses.append(run().item())
                answer = {"start": start, "losses": losses}
            else:
                answer = {"best": duel.best_within(run, asked["seconds"])}
        except Exception as error:
            answer = {"fault": f"{type(error).__name__}: {error}".splitlines()[0][:160]}
        print(json.dumps(answer), file=answers, flush=True)


# -- the process that asks ------------------------------------------------------------------------


def compare(model: str, threads: int, rounds: int, seconds: float, libraries) -> dict[str, dict]:
    """library -> its first step and a step in seconds, and its losses; or a fault."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import flambeau

    found: dict[str, dict] = {}
    peers: dict[str, duel.Peer] = {}
    with tempfile.TemporaryDirectory() as folder:
        numbers = str(Path(folder) / "numbers.npz")
        peer_models.write(model, flambeau, numbers)
        try:
            for name in libraries:
                program, missing = PROGRAMS.get(name, ("", ""))
                if program and not shutil.which(program):
                    found[name] = {"fault": missing}
                    continue
                peers[name] = duel.Peer(__file__, name, threads)
                found[name] = peers[name].ask(build=model, numbers=numbers)
                judge(found[name], found[OURS], model_cases.MODELS[model][2])
            take_turns(peers, found, rounds * seconds)
        finally:
            for peer in peers.values():
                peer.close()
    return found


def judge(row: dict, ours: dict, tolerance: float) -> None:
    """Losses must be those of flambeau: or the row has a fault."""
    if "losses" in row and "losses" in ours:
        theirs = numpy.array(row["losses"])
        right = numpy.array(ours["losses"][:len(theirs)])
        row["error"] = float(numpy.abs(theirs - right).max() / numpy.abs(right).max())
        if not row["error"] <= tolerance:
            row["fault"] = f"losses {row['losses']}, but flambeau's are {ours['losses']}"


def take_turns(peers: dict, found: dict[str, dict], seconds: float) -> None:
    """Measure those without a fault in short turns, until each has had its time."""
    left = {name: seconds for name in peers if "fault" not in found[name]}
    while left:
        for name in list(left):
            if peers[name].threads > 1:
                time.sleep(duel.REST)
            began = time.perf_counter()
            answer = peers[name].ask(seconds=min(seconds, duel.TURN))
            left[name] -= time.perf_counter() - began
            row = found[name]
            row["step"] = min(row.get("step", math.inf), answer.get("best", math.inf))
            if "fault" in answer:
                row["fault"] = answer["fault"]
            if "fault" in answer or left[name] <= 0:
                del left[name]


def chosen(models: str = "", libraries: str = "") -> dict[str, list[str]]:
    """model -> libraries, of those whose names hold one of these words; flambeau always."""
    def holds(name: str, words: str) -> bool:
        return not words or any(word in name.lower() for word in words.lower().split(","))

    return {model: [name for name in LIBRARIES
                    if name == OURS or holds(name, libraries)]
            for model in model_cases.MODELS if holds(model, models)}


# -- what is said ---------------------------------------------------------------------------------


def cells(found: dict[str, dict], names) -> list[str]:
    """What a row of the table says of each library."""
    ours, texts = found[OURS].get("step"), []
    for name in names:
        row = found.get(name)
        if row is None or "fault" in row:
            texts.append("" if row is None else "-")
            continue
        step = row["step"] * 1e6
        ratio = f" ({row['step'] / ours:.2f})" if ours and name != OURS else ""
        texts.append(f"{step:,.{0 if step >= 1000 else 1}f}{ratio}, {row['start']:.1f} s")
    return texts


def faults(found: dict[str, dict]) -> list[str]:
    return [f"{name}: {row['fault']}" for name, row in found.items() if "fault" in row]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="", help="words in the names of models, any of them")
    parser.add_argument("--library", default="", help="words in the names of libraries")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--serve", choices=LIBRARIES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, int(options.threads))
        return 0
    models = chosen(options.model, options.library)
    names = [name for name in LIBRARIES if any(name in each for each in models.values())]
    failed = False
    for threads in map(int, options.threads.split(",")):
        print(f"\n{f'{threads} thread(s)':<14}" + "".join(f"{name:>28}" for name in names))
        for model, libraries in models.items():
            found = compare(model, threads, options.rounds, options.seconds, libraries)
            print(f"{model:<14}" + "".join(f"{text:>28}" for text in cells(found, names)))
            for fault in faults(found):
                print(f"    {fault}", flush=True)
            # A library that is not here is no failure; other losses are.
            failed |= any("fault" in row and ("losses" in row or name.startswith("flambeau"))
                          for name, row in found.items())
    print("", *EXPLAINED, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
