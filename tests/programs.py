"""Random programs from a seed: ops, views, in-place changes, branches on values, random numbers,
gradients, hooks, optimizers. Every value is a matrix of as many columns as WIDTH.

    world = World(seed)                      # weights, an optimizer, a log: what outlives a call
    call = program(seed, world)              # call(items, options) -> {"out": ..., "loss": ...}
"""

from __future__ import annotations

import random

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

WIDTH = 4

# -- values from values ----------------------------------------------------------------------------

ONE = (
    lambda x: x * 2.0, lambda x: x.exp().clamp(max=3.0), lambda x: x.tanh(), lambda x: F.relu(x),
    lambda x: F.gelu(x), lambda x: x + 1, lambda x: -x, lambda x: x.sigmoid(),
    lambda x: 1.0 / (x.abs() + 1), lambda x: (x.t() * 2).t(), lambda x: x.t().contiguous().t(),
    lambda x: F.softmax(x, -1), lambda x: F.layer_norm(x, (WIDTH,)), lambda x: x.flip(0),
    lambda x: x.sin() * x.cos(), lambda x: x.clone(), lambda x: x - x.mean(0, keepdim=True),
    lambda x: x / (x.abs().sum(1, keepdim=True) + 1), lambda x: x.cumsum(0) * 0.3,
    lambda x: x.reshape(WIDTH, -1).reshape(-1, WIDTH), lambda x: torch.where(x > 0, x, x * 0.1),
    lambda x: x.sort(0)[0], lambda x: x[:, torch.tensor([1, 0, 3, 2])], lambda x: x.roll(1, 0),
    lambda x: F.pad(x, (0, 1))[:, :-1], lambda x: x.detach() + x, lambda x: x.float(),
    lambda x: x.to(torch.float64).to(torch.float32), lambda x: torch.cat([x, x])[:len(x)],
    lambda x: x.split(1, 1)[0] + x, lambda x: x.max(0)[0] + x, lambda x: x.expand(2, *x.shape)[1],
    lambda x: F.dropout(x, 0.4), lambda x: x + torch.randn_like(x) * 0.1,
    lambda x: x + torch.rand(WIDTH), lambda x: x * torch.bernoulli(torch.full_like(x, 0.7)),
    lambda x: x[torch.randperm(len(x))], lambda x: x.half().float(),
    lambda x: x.round().long().clamp(-2, 2).float() + x, lambda x: (x > 0).float() - x,
    lambda x: x.masked_fill(x < -0.5, 0.5), lambda x: x.gather(1, x.argsort(1)),
    lambda x: torch.einsum("ij,kj->ik", x, x) @ x * 0.05, lambda x: x.var(0) + x,
    lambda x: F.embedding(torch.tensor([0, 1, 1, 0]), x)[:1] + x,
    lambda x: x.logsumexp(1)[:, None] - x,
    lambda x: F.conv1d(x[None], torch.ones(len(x), 1, 3), padding=1, groups=len(x))[0],
    lambda x: F.max_pool1d(x[None], 3, 1, 1)[0], lambda x: x.topk(2, 1)[0].sum(1, True) * 0.2 + x,
    lambda x: x.unbind(0)[0] + x, lambda x: torch.outer(x.sum(1), x[0]) * 0.1,
    lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])[0],
    lambda x: x.diff(dim=1, prepend=x[:, :1]), lambda x: x.tril() + 0.5,
    lambda x: x.norm(dim=0) * x,
    lambda x: (x * x.shape[0]) / x.numel(), lambda x: x.new_zeros(WIDTH) + x,
    lambda x: torch.arange(WIDTH) * 0.1 + x, lambda x: x.pow(2).sqrt() + x.square(),
    lambda x: torch.linspace(0, 1, WIDTH) * x, lambda x: x.repeat(2, 1)[len(x):],
    lambda x: x.unsqueeze(0).transpose(1, 2).squeeze(0).t(),
    lambda x: x.as_strided((1, WIDTH), (WIDTH, 1)) + x,
)  # fmt: skip
TWO = (
    lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y * 0.5,
    lambda x, y: x @ (y.t() @ x) * 0.05, lambda x, y: torch.maximum(x, y),
    lambda x, y: x.lerp(y, 0.3), lambda x, y: torch.where(x > y, x, y),
    lambda x, y: torch.stack([x, y]).mean(0), lambda x, y: torch.cat([x, y], 1)[:, 2:6],
    lambda x, y: x.addcmul(x, y, value=0.3), lambda x, y: torch.atan2(x, y.abs() + 0.1),
    lambda x, y: x.copysign(y), lambda x, y: torch.add(x, y, alpha=0.7),
    lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), lambda x, y: x * 0.1 + y.sum() * 0.01,
)

# -- in-place changes and views of views -----------------------------------------------------------


def added_in_place(x, y):
    z = x.clone()
    z.mul_(0.5)
    z.add_(y)
    return z


def row_assigned(x, y):
    z = x * 1.0
    z[0] = 0.25
    z[1] = y[-1]
    return z


def column_scaled(x, y):
    z = x * 1.0
    column = z[:, 1:].t()[0]
    column.mul_(0.5)
    column += y[:, 0]
    return z


def view_then_base(x, y):
    z = x + 0.5
    flat = z.view(-1)
    middle = flat[1:-1]
    z.mul_(2.0)
    middle.add_(1.0)
    return torch.cat([flat[:1] * 1.0, middle * y.mean(), flat[-1:]]).view(z.shape)


def masked_assigned(x, y):
    z = x.clone()
    z[z > 0.2] = 0.1
    z.masked_fill_(y < 0, -0.3)
    return z


def scattered(x, y):
    z = x.clone()
    z.scatter_add_(1, torch.zeros(len(x), 1, dtype=torch.long), y[:, :1])
    z.index_add_(0, torch.tensor([0, 0]), y[:2])
    return z


def grown_in_a_list(x, y):
    rows = [x[0]]
    for k in range(1, len(x)):
        rows.append(rows[-1] * 0.5 + y[k])
    return torch.stack(rows)


def copied_into(x, y):
    z = torch.empty_like(x)
    z[:, :2].copy_(x[:, 2:])
    z[:, 2:] = y[:, :2]
    return z.t_().t()


def filled_anew(x, y):
    z = torch.zeros(len(x), WIDTH)
    torch.add(x.detach(), y.detach(), out=z)
    return z.zero_() + x if z.requires_grad else z.fill_(0.5) * x


CHANGES = (added_in_place, row_assigned, column_scaled, view_then_base, masked_assigned, scattered,
           grown_in_a_list, copied_into, filled_anew)

# -- Python looks at values ------------------------------------------------------------------------


def branched(x, y):
    return x + 0.1 if x.mean() > 0 else y * 0.9


def looped(x, y):
    turns = 0
    while x.abs().max() > 1.5 and turns < 4:
        x, turns = x * 0.7, turns + 1
    return x + turns * 0.1


def indexed_by_value(x, y):
    k = int(x.sum(1).argmax())
    return x + y[k]


def scaled_by_item(x, y):
    return x * round(y.abs().sum().item(), 2) * 0.1


def chosen_rows(x, y):
    rows = x[x[:, 0] > 0]
    return x + rows.sum(0) if len(rows) else y


def read_as_list(x, y):
    return x + torch.tensor(y.detach().mean(0).tolist())


def read_by_numpy(x, y):
    return x + torch.from_numpy(y.detach().numpy() * 0.5)


def tried(x, y):
    try:
        return x @ x if len(x) == WIDTH else torch.cat([x, x.new_ones(1, WIDTH + 1)])
    except RuntimeError:
        return y + 0.3


READS = (branched, looped, indexed_by_value, scaled_by_item, chosen_rows, read_as_list,
         read_by_numpy, tried)

# -- modes -----------------------------------------------------------------------------------------


class Halved(torch.autograd.Function):
    """x * y / 2, whose gradients say who computed them."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y / 2

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y * 0.25, g * x * 0.75


def without_gradient(world, x, y, options):
    with torch.no_grad():
        z = (x * y).tanh()
        z += 0.5
    return z + x


def inferred(world, x, y, options):
    with torch.inference_mode():
        z = (x - y).relu() * 2
        z.add_(1)
    return x + z.clone()


def cast_down(world, x, y, options):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ world.layer.weight + y.sum()
    return z.float()


def custom(world, x, y, options):
    return Halved.apply(x, y)


def hooked(world, x, y, options):
    z = x * 1.5
    if z.requires_grad:
        z.register_hook(lambda g: world.log.append(round(g.sum().item(), 3)) or g * 0.5)
    return z + y


def kept_gradient(world, x, y, options):
    z = x * y
    if z.requires_grad:
        z.retain_grad()
        world.kept.append(z)
    return z


def linear(world, x, y, options):
    return world.layer(x)


def normalised(world, x, y, options):
    return world.norm(x)


def whole_network(world, x, y, options):
    return world.network(x) + y


def scaled_by_rate(world, x, y, options):
    return x * options["rate"] + y / (1.0 + options["rate"])


def added_count(world, x, y, options):
    return x + options["count"] if options["count"] % 2 else y - options["count"]


def tensor_of_numbers(world, x, y, options):
    return x + torch.tensor([options["rate"], 1.0, 0.5, options["count"]])


def remembered(world, x, y, options):
    """A tensor from the last call, as recurrent state is."""
    before = world.memory
    world.memory = (y.detach() * 0.5).mean(0)
    return x if before is None else x + before


def changed_buffer(world, x, y, options):
    with torch.no_grad():
        world.total += x.sum(0)
        world.total.mul_(0.9)
    return y + world.total.clone()


def changed_argument(world, x, y, options):
    with torch.no_grad():
        options["plain"].mul_(1.1).add_(0.01)
    return x + options["plain"]


def told(world, x, y, options):
    world.log.append((tuple(x.shape), x.requires_grad, torch.is_grad_enabled()))
    return x * 1.0


def gradient_inside(world, x, y, options):
    z = (x.detach() * 1.0).requires_grad_(True)
    (g,) = torch.autograd.grad((z * z * y.detach()).sum(), z)
    return x + g * 0.1


def slope_inside(world, x, y, options):
    """The slope of a network, which is differentiated in turn."""
    if not x.requires_grad:
        return y + 0.5
    z = (world.network[0](x).tanh() * 0.5).sum() + (x * y).square().mean()
    (g,) = torch.autograd.grad(z, x, create_graph=True)
    return y + g * 0.2


def stepped_inside(world, x, y, options):
    """What a layer would be after a step, with or without a way back through that step."""
    weights = [*world.layer.parameters(), world.norm.weight]
    slopes = torch.autograd.grad(world.layer(x).square().mean(), weights, allow_unused=True,
                                 create_graph=options["count"] != 1, retain_graph=True)
    return F.linear(y, weights[0] - slopes[0] * 0.1, weights[1] - slopes[1] * options["rate"])


def backward_inside(world, x, y, options):
    loss = (world.layer(x.detach()) ** 2).mean()
    if loss.requires_grad:
        loss.backward()
    return y * 1.0


def two_ways_back(world, x, y, options):
    z = (world.weight * y.detach()).sum()
    if z.requires_grad:
        z.backward(retain_graph=True)
        z.backward()
    return x + world.weight


def recomputed(world, x, y, options):
    return torch.utils.checkpoint.checkpoint(lambda a: (a * 2).tanh() * 0.5, x,
                                             use_reentrant=False)


def by_itself(world, x, y, options):
    return torch.compiler.disable(lambda a: a * 3 - 1)(x)


def contracted_down(world, x, y, options):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = torch.einsum("ij,kj->ik", x, y) * 0.1
    return z.float() @ x + torch.einsum("ij,ij->ij", x, y)


def reseeded(world, x, y, options):
    before = torch.rand_like(x.detach())
    torch.manual_seed(options["count"])
    return x + before * torch.rand_like(x.detach())


def drawn_apart(world, x, y, options):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        noise = torch.rand_like(x.detach())
    return x + noise


def counted(world, x, y, options):
    world.counts["calls"] += 1
    return x * (1 + world.counts["calls"] % 2)


def totalled(world, x, y, options):
    """State in a container that is no argument."""
    with torch.no_grad():
        world.counts["total"].add_(y.detach().mean(0) * 0.1)
    return x + world.counts["total"]


def halved_gradients(world, x, y, options):
    for p in world.parameters():
        if p.grad is not None:
            p.grad.mul_(0.5)
    return x * 1.0


def zeroed_gradients(world, x, y, options):
    world.optimizer.zero_grad(set_to_none=False)
    return y + 0.5


def moved_by_gradient(world, x, y, options):
    g = world.weight.grad
    return x if g is None else x + g * 0.1


def under_two_names(world, x, y, options):
    flat = options["plain"].view(-1)
    with torch.no_grad():
        flat.mul_(0.9)
        flat[1:].add_(0.1)
    return x + options["plain"]


def looked_at(world, x, y, options):
    with torch.no_grad():
        world.total.add_(0.5)
    world.log.append(round(sum(world.total.tolist()), 2))
    return x + world.total


MODES = (without_gradient, inferred, cast_down, custom, hooked, kept_gradient, linear, normalised,
         whole_network, scaled_by_rate, added_count, tensor_of_numbers, remembered, changed_buffer,
         changed_argument, told, gradient_inside, slope_inside, stepped_inside, backward_inside,
         two_ways_back, recomputed, by_itself, contracted_down, reseeded, drawn_apart, counted,
         totalled, halved_gradients, zeroed_gradients, moved_by_gradient, under_two_names,
         looked_at)

#: what a script that runs without Python cannot follow, and says so
NEEDS_PYTHON = {*READS, hooked, kept_gradient, by_itself, looked_at}

# -- programs --------------------------------------------------------------------------------------

OPTIMIZERS = (
    lambda p: torch.optim.SGD(p, lr=0.05), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    lambda p: torch.optim.Adam(p, lr=0.02), lambda p: torch.optim.AdamW(p, lr=0.02),
    lambda p: torch.optim.RMSprop(p, lr=0.01), lambda p: torch.optim.Adagrad(p, lr=0.05),
    lambda p: torch.optim.NAdam(p, lr=0.02), lambda p: torch.optim.Adamax(p, lr=0.02),
    lambda p: torch.optim.SGD([{"params": p[:1], "lr": 0.1}, {"params": p[1:]}], lr=0.01,
                              nesterov=True, momentum=0.5, weight_decay=0.01),
)  # fmt: skip


class World:
    """What a program changes besides its arguments; two of one seed are alike."""

    def __init__(self, seed: int):
        torch.manual_seed(seed)
        self.layer, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)
        self.network = nn.Sequential(nn.Linear(WIDTH, 6), nn.ReLU(), nn.Dropout(0.2),
                                     nn.Linear(6, WIDTH))
        self.weight = nn.Parameter(torch.randn(WIDTH))
        self.total = torch.zeros(WIDTH)
        self.memory: torch.Tensor | None = None
        self.counts = {"calls": 0, "total": torch.zeros(WIDTH)}
        self.log: list = []
        self.kept: list = []
        self.optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)](self.parameters())

    def modules(self):
        return self.layer, self.norm, self.network

    def parameters(self):
        return [self.weight, *(p for m in self.modules() for p in m.parameters())]

    def tensors(self) -> dict:
        """Everything that a call may have changed, by name."""
        found = {f"parameter {k}": p for k, p in enumerate(self.parameters())}
        found |= {f"gradient {k}": p.grad for k, p in enumerate(self.parameters())}
        found |= {f"buffer {name}": b for name, b in self.norm.named_buffers()}
        found |= {f"kept gradient {k}": t.grad for k, t in enumerate(self.kept)}
        for k, state in self.optimizer.state_dict()["state"].items():
            found |= {f"state {k} {name}": v for name, v in state.items()
                      if isinstance(v, torch.Tensor)}
        return found | {"total": self.total, "memory": self.memory,
                        "another total": self.counts["total"]}

    def be_like(self, other: World) -> None:
        """Take over the values of another world that has come as far, each in its place."""
        theirs = other.tensors()
        with torch.no_grad():
            for name, mine in self.tensors().items():
                if mine is not None:
                    mine.copy_(theirs[name])


class Lines:
    """What a program of a seed does, before it is put to work."""

    def __init__(self, seed: int, quiet: bool = False):
        dice = random.Random(seed)
        tables = ((0.45, ONE), (0.6, TWO), (0.72, CHANGES), (0.8, READS), (1.0, MODES))
        self.steps: list = []
        for _ in range(dice.randint(3, 14)):
            kind, a, b = dice.random(), dice.randrange(10**6), dice.randrange(10**6)
            table = next(t for end, t in tables if kind < end)
            choice = dice.choice(table)
            if not (quiet and choice in NEEDS_PYTHON):
                self.steps.append((table, choice, a, b))
        self.goes_back = dice.random() < 0.6
        self.updates = self.goes_back and dice.random() < 0.6
        self.clips = dice.random() < 0.3
        self.clears = dice.random() < 0.7


def value_of(line, world, values, options):
    table, choice, a, b = line
    x, y = values[a % len(values)], values[b % len(values)]
    if table is ONE:
        return choice(x)
    return choice(world, x, y, options) if table is MODES else choice(x, y)


def program(lines: Lines, world: World):
    """A function of a list of two matrices and a dict of other things."""

    def call(items, options):
        if lines.clears:
            world.optimizer.zero_grad()
        values = [*items, items[0] * world.weight]
        for line in lines.steps:
            values.append(value_of(line, world, values, options))
        out = values[-1] + 0
        loss = (out * out).mean() + 0.01 * values[2].square().mean()
        if lines.goes_back and loss.requires_grad:
            loss.backward()
            if lines.clips:
                nn.utils.clip_grad_norm_(world.parameters(), 0.5)
            if lines.updates:
                world.optimizer.step()
        return {"out": out, "loss": loss, "some": [values[len(values) // 2], options["rate"]]}

    return call
