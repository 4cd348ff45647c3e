"""What MPI asks its process manager for, answered from a store: PMI version 1.

So any way of starting processes will do (torchrun's variables, multiprocessing, ssh): mpiexec is
not needed. The protocol is lines of key=value words over a socket that MPI inherits as PMI_FD.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import uuid

from .errors import DistError
from .store import Store

#: requests with one constant answer
CONSTANT = {
    "init":           "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    "get_maxes":      "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=4096",
    "get_appnum":     "cmd=appnum rc=0 appnum=0",
    "finalize":       "cmd=finalize_ack rc=0",
}  # fmt: skip


class ProcessManager:
    """A thread that answers the MPI library of this process."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        nodes = node_numbers(store, rank, size)
        self.mapping = node_mapping(nodes)
        if len(set(nodes)) > 1:
            # Between nodes that share a kernel (containers) memory may be in reach, or seem so.
            os.environ.setdefault("UCX_TLS", "^posix,sysv,cma,xpmem,knem")
        # MPI names its shared memory after the job: two jobs of one name would share it.
        if rank == 0:
            store.set("job", f"flambeau-{uuid.uuid4().hex}")
        self.job = store.get("job").decode()
        self.barriers = 0
        self.retired = False
        self.ours, theirs = socket.socketpair()
        self.inherited = theirs.detach()
        os.environ.update(
            PMI_FD=str(self.inherited), PMI_RANK=str(rank), PMI_SIZE=str(size))
        threading.Thread(target=self._serve, daemon=True, name="flambeau-pmi").start()

    def forget(self) -> None:
        """The variables are for this process only: its children are no ranks."""
        for name in ("PMI_FD", "PMI_RANK", "PMI_SIZE"):
            os.environ.pop(name, None)

    def retire(self) -> None:
        """MPI takes its leave after Python has ended: put the answer there beforehand."""
        if not self.retired:
            self.retired = True
            os.dup(self.ours.fileno())  # outlives the socket, so that nobody writes to a closed end
            with contextlib.suppress(OSError):
                self.ours.sendall(CONSTANT["finalize"].encode() + b"\n")

    def _serve(self) -> None:
        with self.ours.makefile("rwb", buffering=0) as lines:
            for line in lines:
                words = dict(
                    word.split("=", 1) for word in line.decode().split() if "=" in word)
                try:
                    reply = self._reply(words)
                except DistError as error:
                    reply = f"cmd=abort exitcode=1 error_msg={str(error).replace(' ', '_')}"
                lines.write(reply.encode() + b"\n")

    def _reply(self, words: dict[str, str]) -> str:
        command = words.get("cmd", "")
        if command in CONSTANT:
            return CONSTANT[command]
        answer = getattr(self, f"_answer_{command}", None)
        return f"cmd={command}_result rc=-1 msg=unknown" if answer is None else answer(words)

    def _answer_get_my_kvsname(self, words: dict[str, str]) -> str:
        return f"cmd=my_kvsname rc=0 kvsname={self.job}"

    def _answer_get_universe_size(self, words: dict[str, str]) -> str:
        return f"cmd=universe_size rc=0 size={self.size}"

    def _answer_put(self, words: dict[str, str]) -> str:
        self.store.set(f"pmi/{words['key']}", words["value"])
        return "cmd=put_result rc=0 msg=success"

    def _answer_get(self, words: dict[str, str]) -> str:
        key = words["key"]
        if key == "PMI_process_mapping":
            return f"cmd=get_result rc=0 msg=success value={self.mapping}"
        if not self.store.check([f"pmi/{key}"]):
            return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
        return f"cmd=get_result rc=0 msg=success value={self.store.get(f'pmi/{key}').decode()}"

    def _answer_barrier_in(self, words: dict[str, str]) -> str:
        self.barriers += 1
        if self.store.add(f"pmi/barrier{self.barriers}", 1) == self.size:
            self.store.set(f"pmi/passed{self.barriers}", "1")
        self.store.wait([f"pmi/passed{self.barriers}"])
        return "cmd=barrier_out rc=0"


def node_numbers(store: Store, rank: int, size: int) -> list[int]:
    """For each rank the number of its node: ranks that share memory share a number."""
    store.set(f"node/{rank}", node_name())
    names = [store.get(f"node/{each}") for each in range(size)]
    first_seen = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [first_seen[name] for name in names]


def node_name() -> str:
    """A name that two processes have in common when they are on one host and one network."""
    parts = [socket.gethostname()]
    for path, read in (("/proc/sys/kernel/random/boot_id", _text), ("/proc/self/ns/net",
                                                                    os.readlink)):
        try:
            parts.append(read(path).strip())
        except OSError:
            parts.append("")
    return "|".join(parts)


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def node_mapping(numbers: list[int]) -> str:
    """PMI's word for who is where: blocks of (first node, nodes, ranks on each)."""
    runs = [(number, len(list(ranks))) for number, ranks in itertools.groupby(numbers)]
    return "(vector," + ",".join(f"({node},1,{count})" for node, count in runs) + ")"
