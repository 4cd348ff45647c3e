"""A data set of one's own, shuffled batches, sentences of different lengths, and a line fit."""

import flambeau as torch
import flambeau.nn as nn
from flambeau.nn.utils.rnn import pad_sequence
from flambeau.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Line(Dataset):
    """Points near y = 2 x + 1."""

    def __init__(self, count):
        self.x = 4 * torch.rand(count, 1) - 2
        self.y = 2 * self.x + 1 + 0.1 * torch.randn(count, 1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


loader = DataLoader(Line(200), batch_size=64, shuffle=True)
print("batches:", len(loader), "sizes:", [len(x) for x, _ in loader])
print("without the last:", len(DataLoader(Line(200), batch_size=64, drop_last=True)))
print("10,000 examples in batches of 128:", len(DataLoader(range(10_000), batch_size=128)), "steps")

model = nn.Linear(1, 1)
loss_fn = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(xb), yb)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: w={model.weight.item():.3f} b={model.bias.item():.3f} "
          f"loss={loss.item():.4f}")


class Sentences(Dataset):
    words = "the quick brown fox jumps over the lazy dog and runs away".split()

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor([len(word) for word in self.words[: index + 2]]), index


def padded(examples):
    """Sentences of one batch as a rectangle, with zeros where they end early."""
    sentences, labels = zip(*examples, strict=True)
    return pad_sequence(sentences, batch_first=True), torch.tensor(labels)


order = torch.Generator().manual_seed(3)
for sentences, labels in DataLoader(Sentences(), batch_size=2, shuffle=True, collate_fn=padded,
                                    generator=order):
    print(labels.tolist(), sentences.tolist())

for batch in DataLoader([{"x": i, "name": f"n{i}"} for i in range(3)], batch_size=2):
    print(batch)
