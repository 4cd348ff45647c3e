"""Answers at batch 1, compiled, beside torch.compile's; and the time to a first compiled step.

    python benchmarks/inference.py                      all models, on 1 and 2 threads
    python benchmarks/inference.py --quick --threads 1  shorter, and noisier
    python benchmarks/inference.py --start              only the first compiled steps
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duel
import model_cases
from model_cases import HEADS, LENGTH, WIDE, gpt_parts, images

#: model -> seconds to its first compiled step that are allowed, with an empty and a warm cache
START = {"MNIST MLP": (1.0, 0.3), "MNIST CNN": (3.0, 0.6), "char GPT": (5.0, 1.0)}


def mlp(torch):
    nn = torch.nn
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, [images(torch, 1, 784)]


def cnn(torch):
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, [images(torch, 1, 1, 28, 28)]


def resnet(torch):
    return model_cases.resnet18_model(torch, stem=7), [images(torch, 1, 3, 224, 224)]


def gpt(torch):
    """A character GPT with a cache of keys and values: each call is given one token."""
    block, model = gpt_parts(torch)

    class Block(block):
        def __init__(self):
            super().__init__()
            for name in ("keys", "values"):
                self.register_buffer(name, torch.zeros(1, HEADS, LENGTH, WIDE // HEADS))

        def forward(self, x, place, mask):
            q, k, v = self.asked(x)
            self.keys.index_copy_(2, place, k)
            self.values.index_copy_(2, place, v)
            return self.answered(x, torch.nn.functional.scaled_dot_product_attention(
                q, self.keys, self.values, attn_mask=mask))

    class Model(model):
        def __init__(self):
            super().__init__(Block)
            self.register_buffer("past", torch.tril(torch.ones(LENGTH, LENGTH)) > 0)

        def forward(self, token, place):
            mask = self.past[place][None, None]
            x = self.token(token) + self.place(place)
            for block in self.blocks:
                x = block(x, place, mask)
            return self.head(self.ln(x))

    return Model(), [torch.tensor([[3]]), torch.tensor([0])]


CASES = {"MLP": mlp, "CNN": cnn, "ResNet-18, 224": resnet, "GPT, token by token": gpt}


def find(name: str):
    def build(torch):
        torch.manual_seed(0)
        model, inputs = CASES[name](torch)
        model.eval()
        compiled = torch.compile(model)

        def run():
            with torch.no_grad():
                return compiled(*inputs)

        if name.startswith("GPT"):
            place = inputs[1]

            def run():
                with torch.no_grad():
                    answer = compiled(*inputs)
                    place.add_(1).remainder_(64)
                    return answer
        return run
    return build


def first_steps() -> list[tuple]:
    """Seconds from a compiled function to its first compiled step, in fresh processes."""
    rows = []
    for model, allowed in START.items():
        with tempfile.TemporaryDirectory() as cache:
            for state, most in zip(("empty", "warm"), allowed, strict=True):
                root = Path(__file__).resolve().parent.parent
                environment = {**os.environ, "FLAMBEAU_CACHE": cache, "PYTHONPATH": str(root)}
                out = subprocess.run([sys.executable, __file__, "--first", model], check=True,
                                     env=environment, capture_output=True, text=True)
                seconds = json.loads(out.stdout)
                print(f"first compiled step of {model}, {state} cache: {seconds:.3f} s", flush=True)
                rows.append((f"{model}, {state} cache: allowed / taken", most / seconds, 1.0))
    return rows


def measure_first(model: str) -> float:
    import flambeau

    step = flambeau.compile(model_cases.MODELS[model][0](flambeau))
    began = time.perf_counter()
    for _ in range(2):  # the first call learns the path, the second is the compiled one
        step()
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--first", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        duel.serve(options.serve, int(options.threads), find)
        return 0
    if options.first:
        print(json.dumps(measure_first(options.first)))
        return 0
    rows = first_steps()
    for threads in [] if options.start else map(int, options.threads.split(",")):
        title = f"batch 1, {threads} thread{'s' if threads > 1 else ''}"
        print(f"\n{title:<24}{'torch us':>12}{'flambeau us':>12}{'ratio':>8}  error", flush=True)
        rounds, seconds = (3, 0.1) if options.quick else (6, 0.4)
        for result in duel.duel(__file__, list(CASES), threads, rounds, seconds, 1e-4):
            print(duel.line_of(result, 24), flush=True)
            rows.append((f"{title}: {result.name}", result.ratio, 1.0))
            if result.fault:
                rows.append((f"{title}: {result.name}: {result.fault}", -1, 0))
    return duel.verdict(rows)


if __name__ == "__main__":
    sys.exit(main())
