"""Many processes that compute together: torch.distributed, over MPI.

Needs the extra `flambeau[distributed]`: mpi4py and an MPI runtime, both wheels. Processes are
started by `flambeau launch`, torchrun's variables, multiprocessing or mpiexec.
"""

from flambeau import _lazy  # type: ignore[attr-defined]

from .collectives import (
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from .device_mesh import DeviceMesh, init_device_mesh
from .errors import DistBackendError, DistError, DistNetworkError, DistStoreError, QueueEmptyError
from .groups import (
    Backend,
    GroupMember,
    ProcessGroup,
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from .objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from .point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send
from .reduce_op import ReduceOp
from .store import FileStore, HashStore, PrefixStore, Store, TCPStore
from .work import Work

__all__ = [
    "DeviceMesh", "init_device_mesh", "is_available", "is_initialized",
    "init_process_group", "destroy_process_group",
    "get_rank", "get_world_size", "get_backend", "get_default_backend_for_device",
    "get_node_local_rank",
    "new_group", "new_subgroups", "new_subgroups_by_enumeration", "group", "GroupMember",
    "get_process_group_ranks", "get_global_rank", "get_group_rank",
    "barrier", "monitored_barrier", "broadcast", "all_reduce", "all_reduce_coalesced", "reduce",
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single",
    "send", "recv", "isend", "irecv", "P2POp", "batch_isend_irecv",
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list",
    "send_object_list", "recv_object_list",
    "ReduceOp", "Work", "Backend", "ProcessGroup", "default_pg_timeout",
    "Store", "TCPStore", "FileStore", "HashStore", "PrefixStore",
    "DistError", "DistBackendError", "DistNetworkError", "DistStoreError", "QueueEmptyError",
    "is_mpi_available", "is_gloo_available", "is_nccl_available", "is_backend_available",
    "is_torchelastic_launched",
]  # fmt: skip

__getattr__, __dir__ = _lazy.subpackages(__name__, __path__[0])  # tensor, fsdp, nn and others
