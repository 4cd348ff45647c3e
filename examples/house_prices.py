"""House prices from three features: nn.Module, an optimizer, training and validation."""

import flambeau as torch
import flambeau.nn as nn
import flambeau.optim as optim

torch.manual_seed(42)

num_samples = 100
num_features = 3  # size, bedrooms, age
raw_features = torch.randn(num_samples, num_features)
true_weights = torch.tensor([0.5, 0.3, -0.2])
target_prices = raw_features @ true_weights + 0.1 * torch.randn(num_samples)

train_size = int(0.8 * num_samples)
train_features, val_features = raw_features[:train_size], raw_features[train_size:]
train_targets, val_targets = target_prices[:train_size], target_prices[train_size:]


class HousePriceNet(nn.Module):
    def __init__(self, input_features: int):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(input_features, 16),
            nn.ReLU(),
            nn.Linear(16, 8),
            nn.ReLU(),
            nn.Linear(8, 1),
        )

    def forward(self, feature_batch: torch.Tensor) -> torch.Tensor:
        return self.network(feature_batch).squeeze(1)  # (batch, 1) -> (batch,)


model = HousePriceNet(input_features=num_features)
loss_fn = nn.MSELoss()
optimizer = optim.Adam(model.parameters(), lr=1e-3)

print(f"Model parameters: {sum(p.numel() for p in model.parameters()):,}")
print(model)
print()

for epoch in range(1, 51):
    model.train()
    optimizer.zero_grad()
    train_predictions = model(train_features)
    train_loss = loss_fn(train_predictions, train_targets)
    train_loss.backward()
    optimizer.step()

    if epoch % 10 == 0:
        model.eval()
        with torch.no_grad():
            val_predictions = model(val_features)
            val_loss = loss_fn(val_predictions, val_targets)
        print(f"Epoch {epoch:3d} | Train Loss: {train_loss.item():.4f} | "
              f"Val Loss: {val_loss.item():.4f}")

model.eval()
with torch.no_grad():
    new_house = torch.tensor([[1.2, 0.5, -0.8]])
    price_pred = model(new_house)
    print(f"\nPredicted price index for new house: {price_pred.item():.4f}")
    print(f"True expected value (approx): {(new_house[0] @ true_weights).item():.4f}")
