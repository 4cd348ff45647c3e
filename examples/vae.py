"""A variational autoencoder of digits, and digits that nobody wrote: python vae.py [epochs]"""

import sys

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.datasets import load_digits

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self, hidden=128, latent=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, 64))

    def forward(self, images):
        h = self.encoder(images)
        mean, log_variance = self.mean(h), self.log_variance(h)
        # noise enters from outside, so gradients pass through mean and variance
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decoder(z), mean, log_variance


def loss_of(logits, images, mean, log_variance):
    picture = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
    distance = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
    return (picture + distance) / len(images)


images, _ = load_digits(flat=True)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(1, epochs + 1):
    total = 0.0
    for chosen in torch.randperm(len(images)).split(64):
        batch = images[chosen]
        logits, mean, log_variance = model(batch)
        loss = loss_of(logits, batch, mean, log_variance)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(chosen)
    if epoch % max(1, epochs // 5) == 0:
        print(f"epoch {epoch:2}  loss {total / len(images):.2f}")

with torch.no_grad():
    drawn = torch.sigmoid(model.decoder(torch.randn(5, 8))).view(5, 8, 8)
for row in drawn.transpose(0, 1):
    print("   ".join("".join(2 * " .:*#"[int(4.99 * value)] for value in part.tolist())
                     for part in row))
