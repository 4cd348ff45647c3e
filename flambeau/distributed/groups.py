"""Processes and groups of them: init_process_group, new_group, ranks and sizes."""

from __future__ import annotations

import atexit
import datetime
import os
import socket
import sys
import warnings
import zlib
from multiprocessing.util import Finalize
from typing import Any

from . import runtime
from .courier import Courier
from .rendezvous import meet
from .store import PrefixStore, Store, TCPStore, seconds
from .watch import Watch
from .work import Work

default_pg_timeout = datetime.timedelta(minutes=30)
FAREWELL = 20.0  # seconds a rank that is finished waits for the others before it ends MPI


class Backend(str):
    """A name of a backend; all of them are MPI here."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    known = (GLOO, NCCL, UCC, MPI, XCCL)
    backend_list = [UNDEFINED, *known]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}

    def __new__(cls, name: str):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name!r}")
        lowered = name.lower()
        for part in lowered.split(","):
            if part.split(":")[-1] not in cls.known:
                raise ValueError(f"Invalid backend: '{name}': known are {', '.join(cls.known)}")
        return super().__new__(cls, lowered)


class ProcessGroup:
    """Some ranks that speak with each other: a lane of collectives of their own."""

    def __init__(self, name: str, ranks: list[int], world_rank: int, comm: Any,
                 timeout: datetime.timedelta, backend: str) -> None:
        self.group_name, self.ranks, self.timeout = name, ranks, timeout
        self.backend = backend
        self.comm, self.gates, self.mail = comm, comm.Dup(), comm.Dup()
        self.world_rank = world_rank
        self._rank, self._size = ranks.index(world_rank), len(ranks)

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return self.backend

    @property
    def group_desc(self) -> str:
        return self.group_name

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name}: rank {self._rank} of {self._size}>"

    def free(self) -> None:
        for comm in (self.comm, self.gates, self.mail):
            comm.Free()


class _NonMember:
    """What new_group gives to a rank that is not in the group."""

    def __repr__(self) -> str:
        return "GroupMember.NON_GROUP_MEMBER"


NON_MEMBER = _NonMember()


class World:
    """What this process knows of the others, from init to destroy."""

    def __init__(self) -> None:
        self.group: ProcessGroup | None = None
        self.store: Store | None = None
        self.mpi: Any = None
        self.courier: Courier | None = None
        self.watch: Watch | None = None
        self.groups: dict[str, ProcessGroup] = {}
        self.made = 0
        self.times = 0
        self.farewells: Any = None


world = World()


class _GroupNames(type):
    """`group.WORLD` is the group of all, once there is one."""

    @property
    def WORLD(cls) -> Any:
        return world.group


class group(metaclass=_GroupNames):
    pass


class GroupMember(metaclass=_GroupNames):
    NON_GROUP_MEMBER = NON_MEMBER


# -- all processes --------------------------------------------------------------------------------


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1,
                       store=None, group_name="", pg_options=None, device_id=None) -> None:
    """Meet the other processes; every one of them must call this.

    Where they meet is said by `init_method` ("env://", "tcp://host:port", "file://path") or
    `store`; under mpiexec nothing need be said.
    """
    if world.group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise ValueError("Cannot specify both init_method and store.")
    name = Backend(backend or "mpi")
    patience = default_pg_timeout if timeout is None else timeout
    if not isinstance(patience, datetime.timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got "
                        f"{timeout!r}")
    place = meet(init_method, store, rank, world_size, patience)
    prefix = f"{group_name or 'default'}{world.times}"
    world.times += 1
    inner = PrefixStore(prefix, place.store) if place.store is not None else None
    world.mpi = runtime.start(inner, place.rank, place.size)
    world.store = inner if inner is not None else _store_by_mpi(world.mpi, place.rank, patience)
    base = _tcp_of(world.store)
    world.courier = Courier(world.mpi)
    if base is not None:
        world.watch = Watch(base.host, base.port, place.rank, world.courier.fail)
    comm = world.mpi.COMM_WORLD.Dup()
    world.made = 0
    world.group = ProcessGroup("0", list(range(place.size)), place.rank, comm, patience, name)
    world.groups = {"0": world.group}
    runtime.hide_shared_memory()  # making the group has brought all ranks this far
    if world.farewells is None:
        # A child of multiprocessing runs its own list of exits, and not atexit's.
        world.farewells = Finalize(None, _leave_at_exit, exitpriority=0)
        atexit.register(world.farewells)


def _store_by_mpi(mpi: Any, rank: int, timeout: datetime.timedelta) -> Store:
    """mpiexec has brought the processes together: rank 0 says where its store listens."""
    mine = None
    if rank == 0:
        own = TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=timeout)
        mine = (socket.gethostname(), own.port)
    host, port = mpi.COMM_WORLD.bcast(mine, 0)
    if rank == 0:
        return own
    return TCPStore(host, port, wait_for_workers=False, timeout=timeout)


def _tcp_of(store: Store | None) -> TCPStore | None:
    """The TCP store under the prefixes, if that is what it is."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store if isinstance(store, TCPStore) else None


def destroy_process_group(group=None) -> None:
    """Leave a group; without one, leave all."""
    if group is NON_MEMBER:
        return
    if world.group is None:
        raise AssertionError("Default process group has not been initialized, please make sure to "
                             "call init_process_group.")
    if group is not None and group is not world.group:
        if world.groups.pop(group.group_name, None) is None:
            raise ValueError("Invalid process group specified")
        return
    clean = _say_farewell(seconds(world.group.timeout))
    for each in world.groups.values():
        if clean:
            each.free()
    world.group, world.watch, world.courier, world.groups = None, None, None, {}


def _say_farewell(patience: float) -> bool:
    """Finish what is on its way and leave; whether all ranks did."""
    courier, watch = world.courier, world.watch
    assert courier is not None and world.group is not None and world.store is not None
    # With an error on its way out the others must not be waited for.
    clean = courier.failure is None and sys.exc_info()[0] is None and courier.end(patience)
    if clean:
        clean = _all_here(world.store, world.group.size(), min(patience, FAREWELL))
    if watch is not None:
        watch.leave()
    return clean


def _all_here(store: Store, size: int, patience: float) -> bool:
    try:
        if store.add("farewell", 1) == size:
            store.set("farewell/all", "1")
        store.wait(["farewell/all"], datetime.timedelta(seconds=patience))
        # The one who hosts the store stays until all have read it.
        if store.add("farewell/read", 1) == size:
            store.set("farewell/end", "1")
        tcp = _tcp_of(store)
        if tcp is not None and tcp._server is not None:
            store.wait(["farewell/end"], datetime.timedelta(seconds=patience))
        return True
    except RuntimeError:
        return False


def _leave_at_exit() -> None:
    """End MPI when all ranks have come to their end; otherwise just end."""
    try:
        if getattr(sys, "last_value", None) is not None:
            return
        if world.group is None:
            _finish_together()
        elif _say_farewell(FAREWELL):
            runtime.finish()
    finally:
        runtime.retire()


def _finish_together() -> None:
    """After destroy: MPI ends only if every rank does so at about the same time."""
    if world.store is not None and world.mpi is not None:
        size = world.mpi.COMM_WORLD.Get_size()
        if _all_here(PrefixStore("exit", world.store), size, 2.0):
            runtime.finish()


def is_available() -> bool:
    """Whether processes can be brought together here: mpi4py is installed."""
    return runtime.is_available()


def is_initialized() -> bool:
    return world.group is not None


def is_mpi_available() -> bool:
    return runtime.is_available()


def is_gloo_available() -> bool:
    return runtime.is_available()


def is_nccl_available() -> bool:
    return False


def is_torchelastic_launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def get_default_backend_for_device(device: Any) -> str:
    """The backend that tensors of a device go by."""
    kind = device.type if hasattr(device, "type") else str(device).partition(":")[0]
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"Default backend not registered for device : {device}")
    return Backend.default_device_backend_map[kind]


def is_backend_available(backend: str) -> bool:
    return backend.lower() in Backend.known and runtime.is_available()


# -- some of them ---------------------------------------------------------------------------------


def resolve(group: Any, name: str = "") -> ProcessGroup | None:
    """The group that is meant; None, with a warning, for a rank outside of it."""
    if world.group is None:
        raise ValueError("Default process group has not been initialized, please make sure to call "
                         "init_process_group.")
    if group is NON_MEMBER:
        if name:
            warnings.warn(f"Running {name} on global rank {world.group.rank()} which does not "
                          "belong to the given group.", stacklevel=3)
        return None
    if group is None:
        return world.group
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"{name or 'group'}: expected a ProcessGroup, got {type(group).__name__}")
    return group


def new_group(ranks=None, timeout=None, backend=None, pg_options=None,
              use_local_synchronization=False, group_desc=None, device_id=None,
              sort_ranks=True) -> Any:
    """A group of some ranks; every process must call this, members or not."""
    whole = resolve(None)
    assert whole is not None and world.courier is not None
    size = whole.size()
    chosen = list(range(size)) if ranks is None else list(ranks)
    if sort_ranks:
        chosen.sort()
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"new_group: a rank stands twice in {list(ranks)}")
    if not chosen or min(chosen) < 0 or max(chosen) >= size:
        raise ValueError("The new group's rank should be within the world_size set by "
                         f"init_process_group: got {chosen} with world size {size}")
    world.made += 1
    name = str(world.made)
    if not use_local_synchronization:
        barrier(whole)
    if whole.rank() not in chosen:
        return NON_MEMBER
    comm = world.mpi.COMM_WORLD.Create_group(
        world.mpi.COMM_WORLD.group.Incl(chosen), zlib.crc32(repr(chosen).encode()) & 0x3FFF)
    made = ProcessGroup(name, chosen, whole.rank(), comm, timeout or whole.timeout,
                        Backend(backend) if backend else whole.backend)
    world.groups[name] = made
    return made


def barrier(group: ProcessGroup) -> None:
    submit(group, "barrier", lambda: [group.comm.Ibarrier()]).wait()


def new_subgroups(group_size=None, group=None, timeout=None, backend=None, pg_options=None,
                  group_desc=None) -> tuple[Any, list]:
    """All ranks in runs of group_size: (the group of this rank, all groups)."""
    size = get_world_size(group)
    if group_size is None:
        group_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size={group_size}'")
    runs = [list(range(first, first + group_size)) for first in range(0, size, group_size)]
    return new_subgroups_by_enumeration(runs, timeout, backend, pg_options)


def new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout=None, backend=None,
                                 pg_options=None, group_desc=None) -> tuple[Any, list]:
    """Groups of the ranks listed: (the group of this rank, all groups)."""
    everyone = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if len(set(everyone)) != len(everyone):
        raise ValueError("Rank is in more than one of the subgroups")
    made = [new_group(ranks, timeout, backend) for ranks in ranks_per_subgroup_list]
    mine = next((each for each in made if each is not NON_MEMBER), None)
    return mine, made


def get_rank(group=None) -> int:
    """The place of this process in the group; -1 outside of it."""
    found = resolve(group)
    return -1 if found is None else found.rank()


def get_world_size(group=None) -> int:
    found = resolve(group)
    return -1 if found is None else found.size()


def get_backend(group=None) -> str:
    found = resolve(group)
    if found is None:
        raise ValueError("Invalid process group specified")
    return found.backend


def get_node_local_rank(fallback_rank=None) -> int:
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to "
                       "allow `get_node_local_rank` to work")


def get_process_group_ranks(group=None) -> list[int]:
    found = resolve(group)
    return [] if found is None else list(found.ranks)


def get_global_rank(group, group_rank: int) -> int:
    found = resolve(group)
    if found is None or not 0 <= group_rank < found.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return found.ranks[group_rank]


def get_group_rank(group, global_rank: int) -> int:
    found = resolve(group)
    if found is None or global_rank not in found.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return found.ranks.index(global_rank)


# -- operations on their way ----------------------------------------------------------------------


def submit(group: ProcessGroup, name: str, start, finish=None, nbytes: int = 0,
           result: Any = None, lane: bool = True) -> Work:
    """Hand an operation of a group to the courier; collectives (`lane`) are counted."""
    courier, watch = world.courier, world.watch
    if courier is None or group.group_name not in world.groups:
        raise ValueError(f"{name}: the process group is destroyed")
    number = watch.began(group.group_name, name) if watch is not None and lane else 0
    patience = seconds(group.timeout)

    def explain() -> str:
        return _who_is_missing(watch, group, number) if number else ""

    title = f"{name} (#{number} of group {group.group_name}, rank {group.rank()})"
    work = Work(title, patience, result, explain)
    courier.submit(work, start, finish, group if lane else None, nbytes)
    return work


def _who_is_missing(watch: Watch | None, group: ProcessGroup, number: int) -> str:
    found = watch.behind(group.group_name, group.ranks, number) if watch is not None else []
    return ": " + "; ".join(found) if found else ": all ranks have begun it, but it does not end"
