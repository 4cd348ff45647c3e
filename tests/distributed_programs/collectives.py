"""Every collective, once, against what numbers of ranks must give."""

import datetime

import flambeau as torch
import flambeau.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
total = size * (size + 1) // 2


def mine(*shape, dtype=torch.float32):
    return torch.full(shape, rank + 1, dtype=dtype)


def equal(x, wanted):
    wanted = torch.as_tensor(wanted, dtype=x.dtype).expand(x.shape)
    assert torch.equal(x, wanted), (x, wanted)


def refused(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"{words} was not refused")


# reductions, in every dtype, small and large enough for the gate
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8,
              torch.int32, torch.complex64):
    x = mine(7, dtype=dtype)
    assert dist.all_reduce(x) is None
    equal(x, total)
for n in (1, 100_000):
    x = mine(n)
    work = dist.all_reduce(x, async_op=True)
    assert work.wait() and work.is_completed() and work.is_success()
    equal(x, total)
table = {"MAX": size, "MIN": 1, "PRODUCT": [1, 1, 2, 6, 24][size], "AVG": total / size}
for name, wanted in table.items():
    x = mine(3)
    dist.all_reduce(x, op=getattr(dist.ReduceOp, name))
    equal(x, wanted)
x = torch.tensor([rank == 0, False])
dist.all_reduce(x)
assert x.tolist() == [True, False]
x = torch.zeros(4, 6)[:, ::2]
x += rank + 1
dist.all_reduce(x)  # not contiguous
equal(x, total)
x = mine(3)
dist.reduce(x, dst=1)
equal(x, total if rank == 1 else rank + 1)
refused(RuntimeError, lambda: dist.all_reduce(mine(2), op=dist.ReduceOp.BAND), "BAND")
refused(TypeError, lambda: dist.all_reduce([1]), "tensor")

# moves
x = mine(2, 3)
dist.broadcast(x, src=2)
equal(x, 3)
parts = [torch.empty(2) for _ in range(size)]
dist.all_gather(parts, mine(2))
equal(torch.stack(parts), torch.arange(1, size + 1).view(-1, 1))
flat = torch.empty(size * 2)
dist.all_gather_into_tensor(flat, mine(2))
assert flat.tolist() == [r + 1 for r in range(size) for _ in range(2)]
refused(ValueError, lambda: dist.all_gather_into_tensor(torch.empty(3), mine(2)), "world_size")
dist.gather(mine(2), parts if rank == 0 else None, dst=0)
got = torch.empty(2)
dist.scatter(got, [torch.full((2,), 10.0 * r) for r in range(size)] if rank == 1 else None, src=1)
equal(got, 10.0 * rank)
out = torch.empty(2)
dist.reduce_scatter_tensor(out, torch.arange(2.0 * size))
assert out.tolist() == [2.0 * rank * size, (2.0 * rank + 1) * size]
dist.reduce_scatter(out, [mine(2) + r for r in range(size)])
equal(out, total + rank * size)
out = torch.empty(size)
dist.all_to_all_single(out, torch.arange(float(size)) + 10 * rank)
assert out.tolist() == [10.0 * r + rank for r in range(size)]
outs = [torch.empty(r + 1) for r in range(size)]
dist.all_to_all(outs, [mine(rank + 1) for _ in range(size)])
for r, each in enumerate(outs):
    equal(each, r + 1)

# point to point
to, origin = (rank + 1) % size, (rank - 1) % size
for n in (3, 200_000):
    inbox = torch.empty(n)
    works = [dist.isend(mine(n), to), dist.irecv(inbox, origin)]
    [work.wait() for work in works]
    equal(inbox, origin + 1)
ops = [dist.P2POp(dist.isend, mine(4), to), dist.P2POp(dist.irecv, torch.empty(4), origin)]
[work.wait() for work in dist.batch_isend_irecv(ops)]
equal(ops[1].tensor, origin + 1)
if rank == 0:
    assert dist.recv(inbox) in range(1, size)
elif rank == 1:
    dist.send(mine(200_000), 0)
refused(ValueError, lambda: dist.send(mine(1), rank), "same")

# objects
found = [None] * size
dist.all_gather_object(found, {"rank": rank, "text": "x" * rank})
assert [each["rank"] for each in found] == list(range(size))
things = [rank, "a"] if rank == 0 else [None, None]
dist.broadcast_object_list(things, src=0)
assert things == [0, "a"]
dist.gather_object((rank,), found if rank == 0 else None)
assert rank or found == [(r,) for r in range(size)]
one = [None]
dist.scatter_object_list(one, [f"for {r}" for r in range(size)] if rank == 0 else None)
assert one == [f"for {rank}"]

# groups, two of them at once, large enough for the gate
low = dist.new_group([0, 1])
ends = dist.new_group([0, size - 1])
works = []
x, y = mine(50_000), mine(50_000)
for group, tensor in ((low, x), (ends, y)):
    if group is not dist.GroupMember.NON_GROUP_MEMBER:
        works.append(dist.all_reduce(tensor, group=group, async_op=True))
[work.wait() for work in works]
equal(x, 3 if rank < 2 else rank + 1)
equal(y, 1 + size if rank in (0, size - 1) else rank + 1)
assert dist.get_rank(low) == (rank if rank < 2 else -1)
if rank == size - 1:
    assert dist.get_group_rank(ends, rank) == 1 and dist.get_global_rank(ends, 0) == 0
assert dist.get_backend() == "gloo" and dist.group.WORLD is not None
refused(ValueError, lambda: dist.init_process_group("mpi"), "twice")
future = dist.all_reduce(mine(2), async_op=True).get_future().then(lambda f: f.value()[0] * 2)
equal(future.wait(), 2 * total)
dist.monitored_barrier()

# again, after an end
dist.destroy_process_group()
assert not dist.is_initialized()
dist.init_process_group("nccl")
x = mine(2)
dist.all_reduce(x)
equal(x, total)
print(f"rank {rank} has seen everything")
