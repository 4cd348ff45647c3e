"""Transfer: load a checkpoint (.pt, as PyTorch writes them), freeze most of it, train a new head.

python transfer.py [checkpoint.pt]: without one, a network is trained on digits 0-4 and saved first.
"""

import sys
import tempfile
from pathlib import Path

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.datasets import load_digits

torch.manual_seed(0)
images, labels = load_digits(flat=True)
low = labels < 5


def network(classes):
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU(),
                         nn.Linear(32, classes))


def train(model, images, labels, steps):
    # what is frozen has no gradient, and an optimizer should not hold it
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    for _ in range(steps):
        chosen = torch.randint(len(labels), (32,))
        loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def accuracy(model, images, labels):
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


if len(sys.argv) > 1:
    path = Path(sys.argv[1])
else:
    path = Path(tempfile.mkdtemp()) / "low_digits.pt"
    first = network(5)
    train(first, images[low], labels[low], 300)
    torch.save(first.state_dict(), path)
    print(f"digits 0-4: {accuracy(first, images[low], labels[low]):.1%}, saved as {path.name}")

model = network(5)
print(model.load_state_dict(torch.load(path, weights_only=True)))
for parameter in model.parameters():
    parameter.requires_grad_(False)
model[4] = nn.Linear(32, 5)  # a new head, which learns

few = torch.randperm(int((~low).sum()))[:100]  # digits 5-9, and only a hundred of them
new_images, new_labels = images[~low], labels[~low] - 5
train(model, new_images[few], new_labels[few], 200)
print(f"digits 5-9, the head alone: {accuracy(model, new_images, new_labels):.1%}")

for parameter in model.parameters():  # and now all of it, as fine-tuning
    parameter.requires_grad_(True)
train(model, new_images[few], new_labels[few], 100)
print(f"digits 5-9, all of it:      {accuracy(model, new_images, new_labels):.1%}")
