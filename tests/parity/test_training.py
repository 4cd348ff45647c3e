"""One program run by flambeau and by torch: the same seed, the same losses, the same weights."""

import numpy
import pytest
import torch

import flambeau
from flambeau.datasets import load_digits

OPTIMIZERS = {
    "SGD":   {"lr": 0.1, "momentum": 0.9},
    "Adam":  {"lr": 1e-3},
    "AdamW": {"lr": 1e-3, "weight_decay": 0.1},
}  # fmt: skip


def train(lib, optimizer, images, labels, steps=30, batch=32):
    """Losses of each step and the final parameters, as numpy arrays, computed with `lib`."""
    lib.manual_seed(0)
    nn = lib.nn
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(),
                          nn.Linear(16, 10))  # fmt: skip
    update = getattr(lib.optim, optimizer)(model.parameters(), **OPTIMIZERS[optimizer])
    images, labels = lib.from_numpy(images), lib.from_numpy(labels)
    losses = []
    for chosen in lib.randperm(len(labels))[: steps * batch].split(batch):
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        update.zero_grad()
        loss.backward()
        update.step()
        losses.append(loss.item())
    return losses, {name: p.detach().numpy() for name, p in model.state_dict().items()}


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits("train", flat=True)
    return images.numpy(), labels.numpy()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_follows_torch(digits, optimizer):
    losses, weights = train(flambeau, optimizer, *digits)
    expected_losses, expected_weights = train(torch, optimizer, *digits)
    assert expected_losses[-1] < expected_losses[0]
    numpy.testing.assert_allclose(losses, expected_losses, rtol=1e-4, atol=1e-5)
    assert weights.keys() == expected_weights.keys()
    for name, expected in expected_weights.items():
        numpy.testing.assert_allclose(weights[name], expected, rtol=1e-3, atol=1e-4, err_msg=name)
