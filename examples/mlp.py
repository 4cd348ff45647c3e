"""A two-layer perceptron that tells classes apart: the loop of five steps, and validation."""

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.utils.data import DataLoader, TensorDataset, random_split


class MLP(nn.Module):
    def __init__(self, in_dim, hidden, out_dim):
        super().__init__()
        self.fc1 = nn.Linear(in_dim, hidden)
        self.fc2 = nn.Linear(hidden, out_dim)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        return self.fc2(x)


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"784-128-10 has {sum(p.numel() for p in MLP(784, 128, 10).parameters()):,} parameters")

# ten clouds of points, one for each class
centres = 2 * torch.randn(10, 32)
labels = torch.randint(0, 10, (1200,))
points = centres[labels] + torch.randn(1200, 32)
train_set, val_set = random_split(TensorDataset(points, labels), [1000, 200])
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
val_loader = DataLoader(val_set, batch_size=64)
print(f"{len(train_loader)} steps in an epoch of {len(train_set)} examples")

model = MLP(32, 48, 10).to(device)
print(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(4):
    model.train()
    total = 0.0
    for inputs, targets in train_loader:
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = F.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
        total += loss.item()

    model.eval()
    correct = 0
    with torch.no_grad():
        for inputs, targets in val_loader:
            inputs, targets = inputs.to(device), targets.to(device)
            preds = model(inputs).argmax(dim=1)
            correct += (preds == targets).sum().item()
    accuracy = correct / len(val_loader.dataset)
    print(f"epoch {epoch + 1}: loss {total / len(train_loader):.3f}, accuracy {accuracy:.3f}")
