"""A grid of two by two processes: sums along its dimensions, and what each is told of itself."""

import flambeau as torch
import flambeau.distributed as dist
from flambeau.distributed import _functional_collectives as funcol
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.tensor import Replicate, Shard
from flambeau.distributed.tensor._utils import compute_local_shape_and_global_offset

dist.init_process_group("mpi")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
assert mesh.shape == (2, 2) and mesh.size() == 4 and mesh.size(1) == 2
assert mesh.get_coordinate() == [rank // 2, rank % 2]
assert mesh.get_local_rank("shard") == rank % 2 and mesh["replica"].get_local_rank() == rank // 2

along = torch.tensor([float(rank)])
dist.all_reduce(along, group=mesh.get_group("shard"))
assert along.item() == (1 if rank < 2 else 5), along
across = torch.tensor([float(rank)])
dist.all_reduce(across, group=mesh["replica"].get_group())
assert across.item() == 2 * (rank % 2) + 2, across
assert mesh["shard", "replica"].mesh.tolist() == [[0, 2], [1, 3]]
assert dist.get_process_group_ranks(mesh.get_group(0)) == [rank % 2, rank % 2 + 2]

line = init_device_mesh("cpu", (4,))
assert line.get_group() is dist.group.WORLD and line.get_local_rank() == rank
try:
    mesh.get_group()
except RuntimeError as error:
    assert "mesh_dim" in str(error)
else:
    raise AssertionError("a grid has no one group")

# collectives that give their result
rows = torch.arange(8.0).view(4, 2) + 10 * rank
gathered = funcol.all_gather_tensor(rows, 1, (mesh, 1))
assert gathered.shape == (4, 4) and gathered[0, 0] == 10 * (rank // 2 * 2)
assert funcol.wait_tensor(funcol.all_reduce(rows, "max", line))[0, 0] == 30
part = funcol.reduce_scatter_tensor(rows, "sum", 0, line)
assert part.tolist() == [[60 + 8 * rank, 64 + 8 * rank]], part
rows.requires_grad_()
swapped = funcol.all_to_all_single_autograd(rows, None, None, line)
assert swapped[:, 0].tolist() == [10 * other + 2 * rank for other in range(4)]
(swapped * (rank + 1)).sum().backward()
assert rows.grad[:, 0].tolist() == [1, 2, 3, 4]

# which part each has
shape, offset = compute_local_shape_and_global_offset((5, 6), mesh, [Shard(0), Shard(1)])
assert shape == (3 - rank // 2, 3) and offset == (rank // 2 * 3, rank % 2 * 3)
shape, offset = compute_local_shape_and_global_offset((5, 6), mesh, [Replicate(), Shard(0)])
assert shape == (3 - rank % 2, 6) and offset == (rank % 2 * 3, 0)
print("agrees", flush=True)
dist.destroy_process_group()
