"""One program run by flambeau and by torch: the same seed, the same losses, the same weights."""

import math

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
STEPS = 50


def train(lib, model, optimizer, batches, loss_of):
    """Losses of each step and the final parameters, as numpy arrays."""
    losses = []
    for batch in batches:
        loss = loss_of(model, *batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: p.detach().numpy().copy() for name, p in model.state_dict().items()}


def classify(lib):
    return lambda model, x, y: lib.nn.functional.cross_entropy(model(x), y)


def images_and_labels(lib, digits, size=32, flat=True):
    images, labels = digits
    images = lib.from_numpy(images if flat else images.reshape(-1, 1, 8, 8))
    labels = lib.from_numpy(labels)
    order = lib.randperm(len(labels))[: STEPS * size]
    order = order if len(order) == STEPS * size else lib.cat([order] * 2)[: STEPS * size]
    return [(images[chosen], labels[chosen]) for chosen in order.split(size)]


def mlp(lib, digits, optimizer="Adam"):
    nn = lib.nn
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(),
                          nn.Linear(16, 10))  # fmt: skip
    update = getattr(lib.optim, optimizer)(model.parameters(), **OPTIMIZERS[optimizer])
    return train(lib, model, update, images_and_labels(lib, digits), classify(lib))


def cnn(lib, digits):
    nn = lib.nn
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.25), nn.Linear(64, 10))  # fmt: skip
    update = lib.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    return train(lib, model, update, images_and_labels(lib, digits, 16, False), classify(lib))


def lstm(lib, _):
    nn = lib.nn

    class Next(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 12)
            self.lstm = nn.LSTM(12, 16, num_layers=2, batch_first=True, dropout=0.1)
            self.out = nn.Linear(16, 11)

        def forward(self, x):
            return self.out(self.lstm(self.embedding(x))[0]).transpose(1, 2)

    model = Next()
    update = lib.optim.Adam(model.parameters(), lr=3e-3)
    return train(lib, model, update, sequences(lib, 11, 8, 12), classify(lib))


def sequences(lib, words, size, length):
    """Counting up from a random start: what comes next is certain."""
    starts = lib.randint(0, words, (STEPS, size, 1))
    whole = (starts + lib.arange(length + 1)) % words
    return [(each[:, :-1].contiguous(), each[:, 1:].contiguous()) for each in whole]


def transformer(lib, digits):
    nn = lib.nn

    class Rows(nn.Module):
        """The rows of an image as a sequence."""

        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(8, 16)
            layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.out = nn.Linear(16, 10)

        def forward(self, x):
            return self.out(self.encoder(self.embed(x.squeeze(1))).mean(1))

    model = Rows()
    update = lib.optim.AdamW(model.parameters(), lr=2e-3)
    return train(lib, model, update, images_and_labels(lib, digits, 16, False), classify(lib))


def gpt(lib, _):
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                     nn.Linear(4 * width, width), nn.Dropout(0.1))

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2)
                       for t in self.qkv(self.norm1(x)).chunk(3, -1))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(seen.transpose(1, 2).reshape(batch, length, width))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self, words=13, width=24, length=12):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block(width, 3) for _ in range(2))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
            self.head.weight = self.words.weight
            nn.init.normal_(self.words.weight, std=1 / math.sqrt(width))

        def forward(self, x):
            x = self.words(x) + self.places(lib.arange(x.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)).transpose(1, 2)

    model = GPT()
    update = lib.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    rates = lib.optim.lr_scheduler.OneCycleLR(update, 3e-3, total_steps=STEPS + 1)

    def loss_of(model, x, y):
        rates.step()
        loss = F.cross_entropy(model(x), y)
        return loss

    result = train(lib, model, update, sequences(lib, 13, 6, 12), loss_of)
    assert lib.nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 0
    return result


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits("train", flat=True)
    return images.numpy(), labels.numpy()


def both(program, digits, *args):
    results = []
    for lib in (flambeau, torch):
        lib.manual_seed(0)
        results.append(program(lib, digits, *args))
    return results


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("program", [mlp, cnn, lstm, transformer, gpt], ids=lambda p: p.__name__)
def test_50_steps_follow_torch(digits, program):
    (losses, weights), (expected, expected_weights) = both(program, digits)
    assert len(losses) == STEPS and expected[-1] < 0.9 * expected[0]
    numpy.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert weights.keys() == expected_weights.keys()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_follow_torch(digits, optimizer):
    (losses, weights), (expected, expected_weights) = both(mlp, digits, optimizer)
    numpy.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-5)
    for name, value in expected_weights.items():
        numpy.testing.assert_allclose(weights[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
