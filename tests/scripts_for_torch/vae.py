"""A variational autoencoder, as the well-known example of it: two linear layers each way."""
from __future__ import print_function

import argparse
import os

import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F

parser = argparse.ArgumentParser(description="VAE example")
parser.add_argument("--batch-size", type=int, default=32, metavar="N")
parser.add_argument("--epochs", type=int, default=3, metavar="N")
parser.add_argument("--no-accel", action="store_true", default=False)
parser.add_argument("--seed", type=int, default=1, metavar="S")
parser.add_argument("--log-interval", type=int, default=4, metavar="N")
parser.add_argument("--out", default=".")
args = parser.parse_args()
use_accel = not args.no_accel and torch.accelerator.is_available()
torch.manual_seed(args.seed)
device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")
print(f"Using device: {device}")
kwargs = {"num_workers": 1, "pin_memory": True} if use_accel else {}


def blobs(count):
    """Pictures of 12 by 12 with one soft spot each."""
    at = torch.rand(count, 2, 1, 1) * 8 + 2
    grid = torch.stack(torch.meshgrid(torch.arange(12.), torch.arange(12.), indexing="ij"))
    return torch.exp(-((grid - at) ** 2).sum(1, keepdim=True) / 4).clamp(0, 1)


train_loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(blobs(320), torch.zeros(320)),
    batch_size=args.batch_size, shuffle=True, **kwargs)
test_loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(blobs(64), torch.zeros(64)), batch_size=args.batch_size)


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(144, 64)
        self.fc21 = nn.Linear(64, 4)
        self.fc22 = nn.Linear(64, 4)
        self.fc3 = nn.Linear(4, 64)
        self.fc4 = nn.Linear(64, 144)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 144))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-2)
scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", factor=0.5, patience=1)


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 144), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def train(epoch):
    model.train()
    train_loss = 0
    for batch_idx, (data, _) in enumerate(train_loader):
        data = data.to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print("Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}".format(
                epoch, batch_idx * len(data), len(train_loader.dataset),
                100. * batch_idx / len(train_loader), loss.item() / len(data)))
    return train_loss / len(train_loader.dataset)


def test(epoch):
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for i, (data, _) in enumerate(test_loader):
            data = data.to(device)
            recon_batch, mu, logvar = model(data)
            test_loss += loss_function(recon_batch, data, mu, logvar).item()
            if i == 0:
                n = min(data.size(0), 8)
                comparison = torch.cat([data[:n], recon_batch.view(args.batch_size, 1, 12, 12)[:n]])
                torch.save(comparison.cpu(), os.path.join(args.out, f"reconstruction_{epoch}.pt"))
    test_loss /= len(test_loader.dataset)
    print("====> Test set loss: {:.4f}".format(test_loss))
    return test_loss


if __name__ == "__main__":
    seen = []
    for epoch in range(1, args.epochs + 1):
        print("====> Epoch: {} Average loss: {:.4f}".format(epoch, train(epoch)))
        seen.append(test(epoch))
        scheduler.step(seen[-1])
        with torch.no_grad():
            sample = model.decode(torch.randn(64, 4).to(device)).cpu()
            assert sample.shape == (64, 144) and 0 <= sample.min() and sample.max() <= 1
    q = torch.distributions.Normal(torch.zeros(4), torch.ones(4))
    assert torch.distributions.kl_divergence(q, q).sum() == 0
    assert len(seen) == 1 or seen[-1] < seen[0], seen
    assert torch.load(os.path.join(args.out, "reconstruction_1.pt")).shape == (16, 1, 12, 12)
