"""Stop and go on as if nothing had happened: model, optimizer, schedule, random numbers, place."""

import tempfile
from pathlib import Path

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.datasets import load_digits

images, labels = load_digits("train", flat=True)
STEPS = 60


def fresh():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)


def train(model, optimizer, scheduler, first, last):
    for _ in range(first, last):
        chosen = torch.randint(len(labels), (32,))
        loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return loss.item()


def save(path, model, optimizer, scheduler, step):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(), "random": torch.get_rng_state(),
                "step": step}, path)


def load(path):
    kept = torch.load(path)  # weights_only: a file cannot run code
    parts = fresh()
    for part, name in zip(parts, ("model", "optimizer", "scheduler"), strict=True):
        part.load_state_dict(kept[name])
    torch.set_rng_state(kept["random"])
    return parts, kept["step"]


straight = fresh()
print(f"without a stop:        loss {train(*straight, 0, STEPS):.6f}")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "checkpoint.pt"
    parts = fresh()
    train(*parts, 0, STEPS // 2)
    save(path, *parts, STEPS // 2)
    del parts  # the process might end here
    resumed, step = load(path)
    print(f"stopped at {step}, resumed: loss {train(*resumed, step, STEPS):.6f}")

same = all(torch.equal(a, b) for a, b in zip(straight[0].parameters(), resumed[0].parameters()))
print("the same to the last bit:", same)
