"""Gradients as a tool: a network that solves an equation, an ODE's adjoint, a Hamiltonian sampler,
and curvature from Hessian-vector products."""

import math

import torch
import torch.nn as nn
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.functional import hvp
from torch.distributions import Normal
from torch.func import functional_call, grad, hessian, jacrev, vmap

torch.manual_seed(0)


def slope(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def solve(steps=40):
    """u'' = -u with u(0) = 0 and u'(0) = 1, whose answer is the sine."""
    net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(),
                        nn.Linear(20, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    x = torch.linspace(0, math.pi, 30).view(-1, 1).requires_grad_(True)
    for step in range(steps):
        u = net(x)
        first = slope(u, x)
        inside = (slope(first, x) + u).pow(2).mean()
        border = u[0].pow(2).mean() + (first[0] - 1).pow(2).mean()
        loss = inside + border
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"equation {step:3d} inside {inside.item():.3f} border {border.item():.3f}")
    print(loss)


class Euler(torch.autograd.Function):
    """z' = f(z): only the states are kept, and the adjoint goes back through them."""

    @staticmethod
    def forward(ctx, z, times, parameters, f):
        states = [z]
        with torch.no_grad():
            for begin, end in zip(times[:-1], times[1:]):
                states.append(states[-1] + (end - begin) * f(states[-1]))
        ctx.f = f
        ctx.save_for_backward(times, torch.stack(states), parameters)
        return states[-1]

    @staticmethod
    def backward(ctx, adjoint):
        times, states, flat = ctx.saved_tensors
        parameters, total = tuple(ctx.f.parameters()), torch.zeros_like(flat)
        for i in reversed(range(len(times) - 1)):
            with torch.enable_grad():
                z = states[i].detach().requires_grad_(True)
                to_z, *to_f = torch.autograd.grad(ctx.f(z), (z, *parameters), adjoint)
            step = times[i + 1] - times[i]
            total += step * torch.cat([g.flatten() for g in to_f])
            adjoint = adjoint + step * to_z
        return adjoint, None, total, None


def adjoint():
    f = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    times = torch.linspace(0, 1, 6, dtype=torch.float64)
    z = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    flat = nn.utils.parameters_to_vector(f.parameters())
    Euler.apply(z, times, flat, f).pow(2).sum().backward()
    kept = z.grad.clone(), f[0].weight.grad.clone()
    z.grad = None
    f.zero_grad()
    y = z
    for begin, end in zip(times[:-1], times[1:]):
        y = y + (end - begin) * f(y)
    y.pow(2).sum().backward()
    print("adjoint", torch.allclose(kept[0], z.grad), torch.allclose(kept[1], f[0].weight.grad))
    print("checks", gradcheck(torch.tanh, z), gradgradcheck(torch.tanh, z), torch.rand(1))


def sample(log_density, q, draws=20, eps=0.2, leaps=5):
    """Hamiltonian Monte Carlo; the share that was taken."""
    force = grad(log_density)
    taken = 0
    for _ in range(draws):
        p = torch.randn_like(q)
        energy = p.pow(2).sum() / 2 - log_density(q)
        new, momentum = q, p + eps / 2 * force(q)
        for leap in range(leaps):
            new = new + eps * momentum
            momentum = momentum + eps * (1 if leap < leaps - 1 else 0.5) * force(new)
        if torch.rand(1).log() < energy - (momentum.pow(2).sum() / 2 - log_density(new)):
            q, taken = new, taken + 1
    print("sampler", taken, q)


def curvature():
    net = nn.Sequential(nn.Linear(2, 4), nn.Softplus(), nn.Linear(4, 1))
    weights = {name: p.detach() for name, p in net.named_parameters()}
    rows = torch.randn(5, 2)

    def energy(x):
        return functional_call(net, weights, (x,)).squeeze(-1)

    full = vmap(hessian(energy))(rows)
    along = torch.ones(2)
    one = hvp(lambda x: energy(x), rows[0], along)[1]
    print("curvature", full.shape, torch.allclose(full[0] @ along, one, atol=1e-6),
          torch.allclose(vmap(jacrev(grad(energy)))(rows), full, atol=1e-6))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
            lambda t: kept.append(t.numpy()) or len(kept) - 1, lambda i: torch.from_numpy(kept[i])):
        loss = nn.MSELoss()(net(rows), torch.zeros(5, 1))
    loss.backward()
    print(loss, len(kept) > 0, net[0].weight.grad.shape, type(net[0].weight), type(rows.shape))


solve()
adjoint()
sample(lambda q: Normal(1.0, 0.5).log_prob(q).sum(), torch.zeros(3))
curvature()
