"""The models of benchmarks/models.py, each written once for both libraries.

A model is a function of the library that returns one training step: it clears gradients, runs
forward and backward, updates the parameters and returns the loss.
"""

from __future__ import annotations

import random

import numpy


def images(torch, *shape):
    rng = numpy.random.default_rng(len(shape))
    return torch.from_numpy(rng.standard_normal(shape, dtype="f4"))


def labels(torch, classes, *shape):
    return torch.from_numpy(numpy.random.default_rng(5).integers(0, classes, shape))


def supervised(torch, model, measure, x, y, optimizer="Adam", **options):
    """A training step on what `measure` makes of the model's answer."""
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), **options)

    def step():
        optimizer.zero_grad()
        loss = measure(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return step


def house_mlp(torch):
    nn = torch.nn
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    return supervised(torch, model, nn.MSELoss(), images(torch, 80, 3), images(torch, 80, 1))


def mnist_mlp(torch):
    nn = torch.nn
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return supervised(torch, model, nn.CrossEntropyLoss(), images(torch, 64, 1, 28, 28),
                      labels(torch, 10, 64))


def mnist_cnn(torch):
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(128, 10))
    return supervised(torch, model, nn.CrossEntropyLoss(), images(torch, 32, 1, 28, 28),
                      labels(torch, 10, 32))


def resnet18_model(torch, stem=3):
    """ResNet-18 with a small stem, or the usual one of 7x7 with stride 2 and pooling."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, before, width, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.relu = nn.ReLU(inplace=True)
            self.short = nn.Sequential()
            if stride != 1 or before != width:
                self.short = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False),
                                           nn.BatchNorm2d(width))

        def forward(self, x):
            out = self.relu(self.bn1(self.conv1(x)))
            return self.relu(self.bn2(self.conv2(out)) + self.short(x))

    layers = [nn.Conv2d(3, 64, stem, 1 if stem == 3 else 2, stem // 2, bias=False),
              nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    if stem != 3:
        layers.append(nn.MaxPool2d(3, 2, 1))
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, width, stride), Block(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def resnet18(torch):
    return supervised(torch, resnet18_model(torch), torch.nn.CrossEntropyLoss(),
                      images(torch, 8, 3, 32, 32), labels(torch, 10, 8), "SGD", lr=0.01,
                      momentum=0.9)


def lstm(torch):
    nn = torch.nn

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(1000, 200)
            self.rnn = nn.LSTM(200, 200, 2)
            self.out = nn.Linear(200, 1000)

        def forward(self, x):
            return self.out(self.rnn(self.embed(x))[0]).flatten(0, 1)

    words = labels(torch, 1000, 36, 20)
    return supervised(torch, Words(), nn.CrossEntropyLoss(), words[:-1], words[1:].reshape(-1))


#: the size of the GPTs, which know characters and answer with one
WIDE, HEADS, LAYERS, LENGTH, CHARACTERS = 128, 4, 4, 64, 65


def gpt_parts(torch):
    """(block, model) of a small GPT: all but what a block attends to, and how it is called."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)
            self.qkv, self.out = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
            self.up, self.down = nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)

        def asked(self, x):
            """Queries, keys and values, head by head."""
            b, t, c = x.shape
            return [z.view(b, t, HEADS, c // HEADS).transpose(1, 2)
                    for z in self.qkv(self.ln1(x)).split(WIDE, 2)]

        def answered(self, x, y):
            """What becomes of x, where attention found y."""
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(functional.gelu(self.up(self.ln2(x))))

    class Model(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.token, self.place = nn.Embedding(CHARACTERS, WIDE), nn.Embedding(LENGTH, WIDE)
            self.blocks = nn.Sequential(*[block() for _ in range(LAYERS)])
            self.ln = nn.LayerNorm(WIDE)
            self.head = nn.Linear(WIDE, CHARACTERS, bias=False)

    return Block, Model


def char_gpt(torch):
    block, model = gpt_parts(torch)

    class Block(block):
        def forward(self, x):
            q, k, v = self.asked(x)
            return self.answered(x, torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True))

    class Model(model):
        def forward(self, x):
            x = self.token(x) + self.place(torch.arange(x.shape[1]))
            return self.head(self.ln(self.blocks(x))).flatten(0, 1)

    text = labels(torch, CHARACTERS, 12, LENGTH + 1)
    return supervised(torch, Model(Block), torch.nn.CrossEntropyLoss(), text[:, :-1],
                      text[:, 1:].reshape(-1))


def noise_like(torch, x):
    """What a VAE adds; those who compare losses put numbers of their own in its place."""
    return torch.randn_like(x)


def vae(torch):
    nn, functional = torch.nn, torch.nn.functional

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.mean, self.spread = (nn.Linear(784, 400), nn.Linear(400, 20),
                                               nn.Linear(400, 20))
            self.down, self.out = nn.Linear(20, 400), nn.Linear(400, 784)

        def forward(self, x):
            h = functional.relu(self.up(x))
            mean, spread = self.mean(h), self.spread(h)
            z = mean + noise_like(torch, mean) * torch.exp(0.5 * spread)
            return torch.sigmoid(self.out(functional.relu(self.down(z)))), mean, spread

    def measure(found, x):
        again, mean, spread = found
        entropy = functional.binary_cross_entropy(again, x, reduction="sum")
        return entropy - 0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())

    x = torch.sigmoid(images(torch, 128, 784))
    return supervised(torch, Model(), measure, x, x)


def unet(torch):
    nn = torch.nn

    def double(before, width):
        return nn.Sequential(
            nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([double(1, 16), double(16, 32), double(32, 64)])
            self.pool = nn.MaxPool2d(2)
            self.widen = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2),
                                        nn.ConvTranspose2d(32, 16, 2, 2)])
            self.up = nn.ModuleList([double(64, 32), double(32, 16)])
            self.out = nn.Conv2d(16, 1, 1)

        def forward(self, x):
            seen = []
            for i, block in enumerate(self.down):
                x = block(x if i == 0 else self.pool(x))
                seen.append(x)
            for widen, block, beside in zip(self.widen, self.up, seen[1::-1]):
                x = block(torch.cat([beside, widen(x)], 1))
            return self.out(x)

    target = (images(torch, 4, 1, 64, 64) > 0).float()
    return supervised(torch, Model(), nn.BCEWithLogitsLoss(), images(torch, 4, 1, 64, 64), target)


def tree(torch):
    """A recursive network over binary trees: many small ops, no two batches of the same shape."""
    nn, chance = torch.nn, random.Random(3)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.join = nn.Embedding(50, 32), nn.Linear(64, 32)
            self.out = nn.Linear(32, 2)

        def node(self, at):
            if isinstance(at, int):
                return self.embed(torch.tensor([at]))
            return torch.tanh(self.join(torch.cat([self.node(at[0]), self.node(at[1])], 1)))

        def forward(self, trees):
            return self.out(torch.cat([self.node(at) for at in trees]))

    def grow(depth):
        if depth == 0 or chance.random() < 0.2:
            return chance.randrange(50)
        return grow(depth - 1), grow(depth - 1)

    trees = [grow(4) for _ in range(8)]
    return supervised(torch, Model(), nn.CrossEntropyLoss(), trees, labels(torch, 2, 8))


def tiny_ops(torch):
    """Two hundred tiny ops unrolled, and the way back through them."""
    x = images(torch, 8)
    weight = torch.ones(8, requires_grad=True)

    def step():
        weight.grad = None
        y = x
        for k in range(100):
            y = torch.tanh(y * weight) if k % 2 else y + weight * 0.01
        loss = y.sum()
        loss.backward()
        return loss
    return step


#: name -> model, the least ratio asked of it, and how far losses may drift apart
MODELS = {
    "house MLP":  (house_mlp, 5.0, 1e-4),
    "MNIST MLP":  (mnist_mlp, 1.6, 1e-4),
    "MNIST CNN":  (mnist_cnn, 1.0, 1e-3),
    "ResNet-18":  (resnet18,  1.0, 5e-3),
    "LSTM":       (lstm,      1.0, 1e-4),
    "char GPT":   (char_gpt,  1.0, 1e-3),
    "VAE":        (vae,       1.0, 1e-3),
    "U-Net":      (unet,      1.0, 1e-3),
    "tree":       (tree,      1.0, 1e-4),
    "200 tiny ops": (tiny_ops, 1.0, 1e-4),
}  # fmt: skip

#: name -> the least ratio asked of it compiled, in segments and with fullgraph=True
COMPILED = {
    "house MLP":    (20.0, 50.0),
    "MNIST MLP":    (2.0, 2.0),
    "MNIST CNN":    (1.4, 1.4),
    "ResNet-18":    (1.1, 1.1),
    "LSTM":         (1.3, 1.3),
    "char GPT":     (1.3, 1.3),
    "VAE":          (1.5, 1.5),
    "U-Net":        (1.0, 1.0),
    "tree":         (3.0, 3.0),
    "200 tiny ops": (1.0, 10.0),
}  # fmt: skip
