"""Learning without labels: BYOL, MoCo with its queue, Barlow Twins and CLIP's loss, on toy rows."""

import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Sampler, TensorDataset


class TwoOfEach(Sampler):
    """Batches that hold every kind twice; drawn as soon as iter() is called."""

    def __init__(self, kinds):
        self.kinds = kinds

    def __iter__(self):
        batches = []
        order = {k: torch.randperm(8).tolist() for k in range(self.kinds)}
        for i in range(0, 8, 2):
            batches.append([k + self.kinds * n for k in order for n in order[k][i:i + 2]])
        return iter(batches)

    def __len__(self):
        return 4


def head(width_in, hidden, width_out, norm=True):
    return nn.Sequential(
        nn.Linear(width_in, hidden, bias=not norm),
        nn.BatchNorm1d(hidden) if norm else nn.Identity(),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, width_out))


class BYOL(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.online, self.predictor = head(12, 32, 8), head(8, 32, 8)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.step, self.steps = 0, steps

    def forward(self, a, b):
        with torch.no_grad():
            goal_a, goal_b = self.target(a), self.target(b)
        return (self.distance(self.predictor(self.online(a)), goal_b.detach())
                + self.distance(self.predictor(self.online(b)), goal_a.detach()))

    @staticmethod
    def distance(x, y):
        return (2 - 2 * (F.normalize(x, dim=-1) * F.normalize(y, dim=-1)).sum(-1)).mean()

    @torch.no_grad()
    def after(self):
        tau = 1 - 0.01 * (math.cos(math.pi * self.step / self.steps) + 1) / 2
        for slow, quick in zip(self.target.parameters(), self.online.parameters()):
            slow.data.mul_(tau).add_(quick.data, alpha=1 - tau)
        self.step += 1


class MoCo(nn.Module):
    def __init__(self, size=32, momentum=0.99, temperature=0.2):
        super().__init__()
        self.size, self.momentum, self.temperature = size, momentum, temperature
        self.query, self.key = head(12, 32, 8, norm=False), head(12, 32, 8, norm=False)
        for q, k in zip(self.query.parameters(), self.key.parameters()):
            k.data.copy_(q.data)
            k.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(8, size), dim=0))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def keys(self, rows):
        for q, k in zip(self.query.parameters(), self.key.parameters()):
            k.data = k.data * self.momentum + q.data * (1.0 - self.momentum)
        order = torch.randperm(len(rows))
        return F.normalize(self.key(rows[order]), dim=1)[torch.argsort(order)]

    @torch.no_grad()
    def enqueue(self, keys):
        place = int(self.place)
        self.queue[:, place:place + len(keys)] = keys.T
        self.place[0] = (place + len(keys)) % self.size

    def forward(self, a, b):
        q, k = F.normalize(self.query(a), dim=1), self.keys(b)
        near = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        far = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        self.enqueue(k)
        logits = torch.cat([near, far], dim=1) / self.temperature
        return F.cross_entropy(logits, torch.zeros(len(a), dtype=torch.long))

    def after(self):
        pass


class Twins(nn.Module):
    """Barlow's: what two views say should agree place by place, and not otherwise."""

    def __init__(self):
        super().__init__()
        self.encoder = head(12, 32, 8)
        self.norm = nn.BatchNorm1d(8, affine=False)

    def forward(self, a, b):
        together = self.norm(self.encoder(a)).T @ self.norm(self.encoder(b)) / len(a)
        agree = torch.diagonal(together).add_(-1).pow_(2).sum()
        n, _ = together.shape
        others = together.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()
        return agree + 5e-3 * others.pow_(2).sum()

    def after(self):
        pass


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = head(12, 32, 8), head(12, 32, 8)
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, a, b):
        left, right = F.normalize(self.left(a)), F.normalize(self.right(b))
        logits = self.logit_scale.exp() * left @ right.t()
        truth = torch.arange(len(a), device=a.device)
        return (F.cross_entropy(logits, truth) + F.cross_entropy(logits.t(), truth)) / 2

    def after(self):
        with torch.no_grad():
            self.logit_scale.clamp_(0, math.log(100))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    kinds = 4
    rows = torch.randn(kinds, 12).repeat(8, 1) + 0.3 * torch.randn(8 * kinds, 12)
    loader = DataLoader(TensorDataset(rows), batch_sampler=TwoOfEach(kinds))
    for model in (BYOL(4 * args.epochs), MoCo(), Twins(), Clip()):
        wanting = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(wanting, lr=0.05, momentum=0.9)
        for _ in range(args.epochs):
            for (batch,) in loader:
                views = [batch + 0.1 * torch.randn_like(batch) for _ in range(2)]
                loss = model(*views)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                model.after()
        print(type(model).__name__, f"{loss.item():.3f}", sum(p.numel() for p in wanting))
    print(loss)


if __name__ == "__main__":
    main()
