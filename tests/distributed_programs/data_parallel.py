"""DDP against one process with the joined batch: MLP, CNN with SyncBatchNorm, small GPT."""

import datetime

import flambeau as torch
import flambeau.distributed as dist
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
BATCH = 16


def mlp():
    return nn.Sequential(nn.Linear(8, 200), nn.Tanh(), nn.Linear(200, 200), nn.ReLU(),
                         nn.Linear(200, 4))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3),
                         nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 4 * 4, 4))


class GPT(nn.Module):
    def __init__(self, width=32, vocabulary=17, length=12):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.size(1)))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
        return self.head(self.blocks(x, mask=mask, is_causal=True)).flatten(0, 1)


def data(make):
    torch.manual_seed(1)
    if make is GPT:
        ids = torch.randint(0, 17, (BATCH, 13))
        return ids[:, :-1], ids[:, 1:]
    shape = (BATCH, 8) if make is mlp else (BATCH, 1, 8, 8)
    return torch.randn(*shape), torch.randint(0, 4, (BATCH,))


def trained(make, together, **options):
    torch.manual_seed(0)
    model = make()
    x, y = data(make)
    if together:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        if rank:  # the first rank's parameters must win
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(1)
        model = DistributedDataParallel(model, bucket_cap_mb=0.05, **options)
        share = BATCH // size
        x, y = (each[rank * share:(rank + 1) * share] for each in (x, y))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y.flatten()).backward()
        optimizer.step()
    return model


def apart(ours, theirs):
    return max((a.double() - b.double()).abs().max().item() for a, b in zip(ours, theirs))


for make in (mlp, cnn, GPT):
    alone = trained(make, False)
    for options in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}):
        model = trained(make, True, **options)
        assert list(model.state_dict()) == [f"module.{name}" for name in alone.state_dict()]
        states = apart(alone.state_dict().values(), model.state_dict().values())
        grads = apart([p.grad for p in alone.parameters()], [p.grad for p in model.parameters()])
        assert states < 1e-6 and grads < 1e-6, (make.__name__, options, states, grads)
        if options.get("gradient_as_bucket_view"):
            bucket = model.reducer.buckets[-1]
            assert bucket.parameters[0].grad.data_ptr() == bucket.views[0].data_ptr()
    assert make is not mlp or len(model.reducer.buckets) > 1
small = DistributedDataParallel(mlp(), bucket_cap_mb_list=[0.001, 0.02], forward_sync_buffers=False)
assert len(small.reducer.buckets) > len(model.reducer.buckets) and not small.broadcast_buffers

# no_sync: two small batches are one large one
torch.manual_seed(0)
model = DistributedDataParallel(mlp())
x, y = data(mlp)
half = BATCH // 2
with model.no_sync():
    (F.cross_entropy(model(x[:half]), y[:half]) / 2).backward()
(F.cross_entropy(model(x[half:]), y[half:]) / 2).backward()
torch.manual_seed(0)
alone = mlp()
F.cross_entropy(alone(x), y).backward()
assert apart([p.grad for p in alone.parameters()], [p.grad for p in model.parameters()]) < 1e-6


# parameters that no rank, or only one, has used
class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.ways = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])

    def forward(self, x, way):
        return self.ways[way](x)


model = DistributedDataParallel(Branches(), find_unused_parameters=True)
model(torch.ones(1, 3), min(rank, 1)).sum().backward()
grads = [way.weight.grad for way in model.module.ways]
assert torch.allclose(grads[0], torch.full((3, 3), 1 / size))
assert torch.allclose(grads[1], torch.full((3, 3), (size - 1) / size)) and grads[2] is None
strict = DistributedDataParallel(Branches())
strict(torch.ones(1, 3), 0).sum().backward()
try:
    strict(torch.ones(1, 3), 0)
except RuntimeError as error:
    assert "ways.2.weight" in str(error) and "find_unused_parameters" in str(error)
else:
    raise AssertionError("an unfinished reduction was not noticed")

# uneven inputs, and a hook in place of the average
torch.manual_seed(0)
model = DistributedDataParallel(cnn())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
with model.join():
    for _ in range(2 + rank):
        optimizer.zero_grad()
        model(torch.randn(4, 1, 8, 8)).square().mean().backward()
        optimizer.step()
states = [None] * size
dist.all_gather_object(states, [p.tolist() for p in model.parameters()])
assert all(each == states[0] for each in states)

from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks  # noqa: E402

torch.manual_seed(0)
model = DistributedDataParallel(mlp())
model.register_comm_hook(None, default_hooks.bf16_compress_hook)
F.cross_entropy(model(x), y).backward()
assert apart([p.grad for p in alone.parameters()], [p.grad for p in model.parameters()]) < 1e-3

# compiled
torch.manual_seed(0)
model = torch.compile(DistributedDataParallel(mlp()))
F.cross_entropy(model(x), y).backward()
assert apart([p.grad for p in alone.parameters()], [p.grad for p in model.parameters()]) < 1e-6
dist.destroy_process_group()
print(f"rank {rank} agrees")
