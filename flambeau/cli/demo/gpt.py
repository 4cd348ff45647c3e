"""A GPT that learns to write Python, letter by letter, from the sources of the standard library."""

from __future__ import annotations

import argparse
import time

import flambeau
import flambeau.nn.functional as F
from flambeau import nn, optim
from flambeau.cli.progress import Progress
from flambeau.cli.terminal import chart
from flambeau.datasets import Characters, load_python_text

BLOCK, WIDTH, HEADS, LAYERS = 64, 96, 4, 3
LETTERS = 400_000
SAMPLES = 4  # how often a sample is printed while it learns


class Block(nn.Module):
    """Attention to what came before, then a layer on each letter; both added to what was there."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_layer = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked = nn.Linear(width, 3 * width)
        self.answered = nn.Linear(width, width)
        self.layer = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                   nn.Linear(4 * width, width))

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        batch, length, width = x.shape
        parts = self.asked(self.before_attention(x)).chunk(3, dim=-1)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                             for part in parts)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.answered(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.layer(self.before_layer(x))


class GPT(nn.Module):
    def __init__(self, letters: int, width: int = WIDTH, heads: int = HEADS,
                 layers: int = LAYERS, block: int = BLOCK) -> None:
        super().__init__()
        self.block = block
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(block, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, letters: flambeau.Tensor) -> flambeau.Tensor:
        places = flambeau.arange(letters.shape[1])
        return self.head(self.norm(self.blocks(self.letter(letters) + self.place(places))))

    @flambeau.no_grad()
    def write(self, start: flambeau.Tensor, length: int,
              temperature: float = 0.8) -> flambeau.Tensor:
        """`length` more letters after those of a row."""
        text = start[None]
        for _ in range(length):
            likely = self(text[:, -self.block:])[:, -1] / temperature
            text = flambeau.cat([text, flambeau.multinomial(F.softmax(likely, -1), 1)], 1)
        return text[0]


def main(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    data = Characters(load_python_text(LETTERS), BLOCK)
    model = GPT(len(data.vocabulary))
    parameters = sum(p.numel() for p in model.parameters())
    print(f"A GPT of {parameters:,} parameters reads {LETTERS:,} letters of Python's standard "
          f"library\nand learns to write the next one: {options.steps} steps of "
          f"{options.batch} x {BLOCK} letters.\n", flush=True)
    history = train(model, data, options)
    print(f"\n{chart(history, 'loss')}\n")
    print(f"What it writes now, after {time.perf_counter() - began:.0f} s:\n")
    print(sample(model, data, 400))
    print("\nwhat to try next\n  flambeau demo --model gpt --steps 3000\n"
          "  examples/char_gpt.py            the same in a short program of its own")
    return 0


def train(model: GPT, data: Characters, options: argparse.Namespace) -> list[float]:
    """The loss of every step; a few samples on the way."""
    optimizer = optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.99))
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=options.steps)
    offsets = flambeau.arange(BLOCK + 1)
    pause = max(1, options.steps // (SAMPLES + 1))
    history: list[float] = []
    with Progress(options.steps) as progress:
        for step in range(1, options.steps + 1):
            starts = flambeau.randint(len(data), (options.batch, 1))
            rows = data.data[starts + offsets]
            logits = model(rows[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            history.append(loss.item())
            progress.advance(f"loss {history[-1]:.3f}")
            if step % pause == 0 and step + pause <= options.steps:
                written = sample(model, data, 60).strip().replace("\n", "\n      | ")
                progress.say(f"      | {written}")
    return history


def sample(model: GPT, data: Characters, length: int) -> str:
    start = data.encode("\n    def ")
    return data.decode(model.write(start, length))
