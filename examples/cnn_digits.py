"""Handwritten digits, a convolutional network, shifted copies: python cnn_digits.py [epochs]"""

import sys

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.datasets import load_digits
from flambeau.utils.data import DataLoader, TensorDataset

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
torch.manual_seed(0)


class ConvNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.MaxPool2d(2),  # 8 x 8 -> 4 x 4
            nn.Conv2d(2 * width, 4 * width, 3, padding=1), nn.BatchNorm2d(4 * width), nn.ReLU(),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64 * width, 10))

    def forward(self, images):
        return self.classify(self.features(images))


def shifted(images):
    """The batch moved by up to one pixel: a digit stays the same digit."""
    down, right = torch.randint(0, 3, (2,)).tolist()
    return F.pad(images, (1, 1, 1, 1))[:, :, down:down + 8, right:right + 8]


loader = DataLoader(TensorDataset(*load_digits("train")), batch_size=32, shuffle=True)
test_images, test_labels = load_digits("test")
model = ConvNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, epochs * len(loader))

for epoch in range(1, epochs + 1):
    model.train()
    for images, labels in loader:
        loss = F.cross_entropy(model(shifted(images)), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    model.eval()  # batch norm and dropout behave differently from here on
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"epoch {epoch:2}  loss {loss.item():.4f}  test accuracy {accuracy:.1%}")
