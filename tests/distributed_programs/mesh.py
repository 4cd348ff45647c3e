"""A grid of two by two processes: sums along its dimensions, and what each is told of itself."""

import flambeau as torch
import flambeau.distributed as dist
from flambeau.distributed.device_mesh import init_device_mesh

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
print("agrees", flush=True)
dist.destroy_process_group()
