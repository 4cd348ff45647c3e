"""FSDP and ZeRO against one process; checkpoints for another number of processes.

sharded.py FOLDER save | load
"""

import datetime
import sys

import flambeau as torch
import flambeau.distributed as dist
import flambeau.distributed.checkpoint as checkpoint
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.distributed.fsdp import FullyShardedDataParallel as FSDP
from flambeau.distributed.fsdp import ShardingStrategy, StateDictType
from flambeau.distributed.fsdp.wrap import ModuleWrapPolicy
from flambeau.distributed.optim import ZeroRedundancyOptimizer

folder, mode = sys.argv[1:]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(8, 17), nn.LayerNorm(17), nn.Linear(17, 8)

    def forward(self, x):
        return x + self.down(F.gelu(self.norm(self.up(x))))


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), Block(), Block(), nn.BatchNorm1d(8), nn.Linear(8, 3))


def sharded(**options):
    return FSDP(make(), auto_wrap_policy=ModuleWrapPolicy({Block}), **options).eval()


def step(model, optimizer, x, y, twice=False):
    optimizer.zero_grad()
    if twice:
        with model.no_sync():
            (F.cross_entropy(model(x), y) / 2).backward()
        (F.cross_entropy(model(x), y) / 2).backward()
    else:
        F.cross_entropy(model(x), y).backward()
    optimizer.step()


torch.manual_seed(1)
X, Y = torch.randn(12, 5), torch.randint(0, 3, (12,))
share = 12 // size
x, y = X[rank * share:(rank + 1) * share], Y[rank * share:(rank + 1) * share]
alone = make().eval()
alone_optimizer = torch.optim.AdamW(alone.parameters(), 1e-2)
for _ in range(3):
    step(alone, alone_optimizer, X, Y)
averages = {name: alone_optimizer.state[p]["exp_avg"] for name, p in alone.named_parameters()}


def agrees(model, optimizer):
    state = model.state_dict()
    assert list(state) == list(alone.state_dict())
    assert all((state[k] - v).abs().max() < 1e-6 for k, v in alone.state_dict().items())
    kept = FSDP.optim_state_dict(model, optimizer)["state"]
    assert all((kept[k]["exp_avg"] - v).abs().max() < 1e-6 for k, v in averages.items())
    return state


def saved(model, optimizer):
    return {"model": model.state_dict(), "optim": FSDP.optim_state_dict(model, optimizer),
            "step": 3 if mode == "save" else 0}


for separate in (False, True):
    where = f"{folder}/{separate}"
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):
        model = sharded(use_orig_params=separate, sharding_strategy=strategy)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        held = sum(p.numel() for p in model.parameters())
        assert held <= sum(p.numel() for p in alone.parameters()) / size + 3
        for number in range(3 if mode == "save" else 1):
            step(model, optimizer, x, y, twice=number == 1)
        assert all(unit.whole is None for _, unit in model._all_units()), "memory is kept"
        if mode == "save":
            state = agrees(model, optimizer)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = saved(model, optimizer)
        if mode == "save":
            checkpoint.save(state, checkpoint_id=where)
            checkpoint.save(state, checkpoint_id=where)  # over another
        else:
            checkpoint.load(state, checkpoint_id=where)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(
                FSDP.optim_state_dict_to_load(model, optimizer, state["optim"]))
            assert state["step"] == 3
    agrees(model, optimizer)

if mode == "save":
    # the whole state goes on where it was
    other = sharded()
    again = torch.optim.AdamW(other.parameters(), 1e-2)
    again.load_state_dict(
        FSDP.optim_state_dict_to_load(other, again, FSDP.optim_state_dict(model, optimizer)))
    other.load_state_dict(model.state_dict())
    step(model, optimizer, x, y)
    step(other, again, x, y)
    pairs = zip(model.state_dict().values(), other.state_dict().values())
    assert all(torch.equal(a, b) for a, b in pairs)
    norm = other.clip_grad_norm_(0.1)
    assert norm > 0.1 and abs(other.clip_grad_norm_(100.0) - 0.1) < 1e-3

    model = nn.parallel.DistributedDataParallel(make().eval())
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
    for _ in range(3):
        step(model, zero, x, y)
    assert all((a - b).abs().max() < 1e-6 for a, b in zip(model.parameters(), alone.parameters()))
    assert 0 < len(zero.optim.state) < len(list(model.parameters()))
    zero.consolidate_state_dict(to=0)
    whole = [zero.state_dict() if rank == 0 else None]
    dist.broadcast_object_list(whole, src=0)
    assert len(whole[0]["state"]) == len(list(model.parameters()))
    restored = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1.0)
    restored.load_state_dict(whole[0])
    assert restored.param_groups[0]["lr"] == 1e-2
    before = [p.detach().clone() for p in model.parameters()]
    zero.step()
    after = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p, old in zip(model.parameters(), before):
            p.copy_(old)
    restored.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), after))
dist.destroy_process_group()
print(f"rank {rank} agrees")
