"""A GAN that learns a ring of eight clouds of points: python gan.py [steps]"""

import math
import sys

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
torch.manual_seed(0)


def real(count):
    """Points near one of eight places on a circle."""
    angle = torch.randint(8, (count,)) * (2 * math.pi / 8)
    return 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(count, 2)


def network(inputs, outputs, hidden=64):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.LeakyReLU(0.2),
                         nn.Linear(hidden, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, outputs))


generator, discriminator = network(8, 2), network(2, 1)
for_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.99))
for_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.99))

for step in range(1, steps + 1):
    fake = generator(torch.randn(128, 8))
    # the discriminator tells real from fake; `detach` keeps the generator out of this
    verdict_real, verdict_fake = discriminator(real(128)), discriminator(fake.detach())
    loss_d = F.softplus(-verdict_real).mean() + F.softplus(verdict_fake).mean()
    for_discriminator.zero_grad()
    loss_d.backward()
    for_discriminator.step()
    # the generator wants its fakes to be taken for real
    loss_g = F.softplus(-discriminator(fake)).mean()
    for_generator.zero_grad()
    loss_g.backward()
    for_generator.step()
    if step % max(1, steps // 5) == 0:
        radius = fake.detach().norm(dim=1)
        print(f"step {step:5}  D {loss_d.item():.3f}  G {loss_g.item():.3f}  "
              f"distance from the middle {radius.mean().item():.2f} (2.00 wanted)")

with torch.no_grad():
    points = generator(torch.randn(600, 8))
canvas = [[" "] * 41 for _ in range(21)]
for x, y in points.clamp(-2.9, 2.9).tolist():
    canvas[round(10 - y * 10 / 3)][round(20 + x * 20 / 3)] = "o"
print("\n".join("".join(row) for row in canvas))
