"""Where processes meet: an address in the environment, a URL, a store, or mpiexec."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import parse_qs, urlparse

from . import runtime
from .store import FileStore, Store, TCPStore


class Place(NamedTuple):
    """The store the processes meet at (None: MPI knows its peers), and this one's number."""

    store: Store | None
    rank: int
    size: int


def meet(init_method: str | None, store: Store | None, rank: int, size: int,
         timeout: timedelta) -> Place:
    """Find the others as init_process_group was told to."""
    if store is not None:
        if rank < 0 or size <= 0:
            raise ValueError("init_process_group: a store needs rank and world_size beside it")
        return Place(store, rank, size)
    managed = runtime.managed()
    if init_method is None and managed is not None:
        return Place(None, *managed)
    url = urlparse(init_method or "env://")
    if url.scheme not in SCHEMES:
        raise ValueError(f"No rendezvous handler for {url.scheme}://: known are "
                         + ", ".join(f"{name}://" for name in SCHEMES))
    asked = {name: values[-1] for name, values in parse_qs(url.query).items()}
    rank = int(asked.get("rank", rank))
    size = int(asked.get("world_size", size))
    return SCHEMES[url.scheme](url, rank, size, timeout)


def _from_environment(url, rank: int, size: int, timeout: timedelta) -> Place:
    rank = rank if rank >= 0 else int(_variable("RANK"))
    size = size if size > 0 else int(_variable("WORLD_SIZE"))
    host, port = _variable("MASTER_ADDR"), int(_variable("MASTER_PORT"))
    return Place(_tcp_store(host, port, rank, size, timeout), rank, size)


def _variable(name: str) -> str:
    if not os.environ.get(name):
        raise ValueError("Error initializing torch.distributed using env:// rendezvous: "
                         f"environment variable {name} expected, but not set")
    return os.environ[name]


def _from_address(url, rank: int, size: int, timeout: timedelta) -> Place:
    if not url.port:
        raise ValueError(f"tcp:// rendezvous: port number missing in {url.geturl()}")
    _check_numbers(url, rank, size)
    return Place(_tcp_store(url.hostname, url.port, rank, size, timeout), rank, size)


def _from_file(url, rank: int, size: int, timeout: timedelta) -> Place:
    _check_numbers(url, rank, size)
    found = FileStore(url.netloc + url.path, size)
    found.set_timeout(timeout)
    return Place(found, rank, size)


def _check_numbers(url, rank: int, size: int) -> None:
    if rank < 0:
        raise ValueError(f"Error initializing torch.distributed using {url.scheme}:// rendezvous: "
                         "rank parameter missing")
    if size <= 0:
        raise ValueError(f"Error initializing torch.distributed using {url.scheme}:// rendezvous: "
                         "world_size parameter missing")


def _tcp_store(host: str, port: int, rank: int, size: int, timeout: timedelta) -> Store:
    """Rank 0 hosts it, unless the launcher does."""
    if not 0 <= rank < size:
        raise ValueError(f"init_process_group: rank {rank} is not in [0, {size})")
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    key = (host, port)
    if key not in _met:
        _met[key] = TCPStore(host, port, is_master=rank == 0 and not hosted,
                             wait_for_workers=False, timeout=timeout)
    return _met[key]


#: a process that destroys its groups and begins again meets the others at the same store
_met: dict[tuple[str, int], TCPStore] = {}

SCHEMES = {"env": _from_environment, "tcp": _from_address, "file": _from_file}
