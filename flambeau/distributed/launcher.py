"""Starts the processes of one job, here and on other hosts, and watches over them.

The launcher hosts the store where the ranks meet, so it outlives any of them: when one dies the
others are told at once which and why, given time to stop by themselves, then ended; and the job
may be started again.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import NamedTuple

from .store import Server

GRACE = 10.0   # seconds the others have to stop by themselves when a rank has died
POLL = 0.05

#: variables that go along to other hosts begin like this
KEPT = ("PYTHONPATH", "FLAMBEAU_", "UCX_", "FI_", "MPIR_CVAR_")


class Host(NamedTuple):
    """Where processes run: a name ("" is this machine) and how many."""

    name: str
    processes: int


@dataclass
class Job:
    """What to run, how often, and where."""

    command: list[str]
    hosts: list[Host]
    max_restarts: int = 0
    master_addr: str = ""
    master_port: int = 0
    remote_shell: list[str] = field(default_factory=lambda: ["ssh", "-tt"])
    threads: int = 1
    grace: float = GRACE
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def size(self) -> int:
        return sum(host.processes for host in self.hosts)


def parse_hosts(text: str | None, processes: int) -> list[Host]:
    """"a,b:4" -> processes on each; without text, all on this machine."""
    if not text:
        return [Host("", processes)]
    found = []
    for entry in text.split(","):
        name, _, count = entry.strip().partition(":")
        if not name or (count and not count.isdigit()):
            raise ValueError(f"--hosts: {entry!r} is not NAME or NAME:PROCESSES")
        found.append(Host(name, int(count) if count else processes))
    return found


def run(job: Job) -> int:
    """Run the job to its end, again after a failure as often as allowed; its exit code."""
    for attempt in range(job.max_restarts + 1):
        failure = Attempt(job, attempt).run()
        if failure is None:
            return 0
        rank, code, reason = failure
        left = job.max_restarts - attempt
        then = f"starting again ({left} restarts left)" if left else "giving up"
        print(f"flambeau launch: rank {rank} {reason}; {then}", file=sys.stderr, flush=True)
    return code if code > 0 else 128 - code


class Attempt:
    """All processes of the job, once."""

    def __init__(self, job: Job, number: int) -> None:
        self.job, self.number = job, number
        self.server = Server(job.master_port)
        self.processes: list[subprocess.Popen] = []

    def run(self) -> tuple[int, int, str] | None:
        """Until all have ended; the first failure as (rank, exit code, words)."""
        with stopped_by_signals(self):
            try:
                self._start()
                return self._watch()
            finally:
                self._end_all()
                self.server.close()

    def _start(self) -> None:
        rank = 0
        for place, host in enumerate(self.job.hosts):
            for local in range(host.processes):
                variables = self._variables(rank, local, place, host)
                self.processes.append(self._spawn(host, variables))
                rank += 1

    def _variables(self, rank: int, local: int, place: int, host: Host) -> dict[str, str]:
        job = self.job
        remote = any(each.name for each in job.hosts)
        address = job.master_addr or (socket.gethostname() if remote else "127.0.0.1")
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(job.size),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(host.processes),
            "GROUP_RANK": str(place),
            "GROUP_WORLD_SIZE": str(len(job.hosts)),
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": str(job.size),
            "ROLE_NAME": "default",
            "MASTER_ADDR": address,
            "MASTER_PORT": str(self.server.port),
            "TORCHELASTIC_RUN_ID": job.run_id,
            "TORCHELASTIC_RESTART_COUNT": str(self.number),
            "TORCHELASTIC_MAX_RESTARTS": str(job.max_restarts),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            # One thread each, or the processes fight for the cores.
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(job.threads)),
        }

    def _spawn(self, host: Host, variables: dict[str, str]) -> subprocess.Popen:
        if not host.name:
            return subprocess.Popen(self.job.command, env={**os.environ, **variables})
        kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
        words = ["cd", shlex.quote(os.getcwd()), "&&", "exec", "env"]
        words += [shlex.quote(f"{name}={value}") for name, value in {**kept, **variables}.items()]
        words += [shlex.quote(word) for word in self.job.command]
        given = [*self.job.remote_shell, host.name]
        if os.path.basename(given[0]) != "ssh":
            given += ["sh", "-c"]
        return subprocess.Popen([*given, " ".join(words)], stdin=subprocess.DEVNULL)

    def _watch(self) -> tuple[int, int, str] | None:
        while True:
            codes = [process.poll() for process in self.processes]
            for rank, code in enumerate(codes):
                if code:
                    reason = describe(code)
                    self.server.tell(rank, f"its process {reason}".encode())
                    return self._first(rank), code, reason
            if all(code == 0 for code in codes):
                return None
            time.sleep(POLL)

    def _first(self, rank: int) -> int:
        """The rank whose loss was noticed first: others fail because of it."""
        return next(iter(self.server.gone), rank)

    def _end_all(self) -> None:
        """Wait for those who stop by themselves; then ask; then do not ask."""
        for patience, number in ((self.job.grace, None), (2.0, signal.SIGTERM),
                                 (5.0, signal.SIGKILL)):
            for process in self.processes:
                if number is not None and process.poll() is None:
                    process.send_signal(number)
            deadline = time.monotonic() + patience
            while any(p.poll() is None for p in self.processes) and time.monotonic() < deadline:
                time.sleep(POLL)


def describe(code: int) -> str:
    """The way a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


@contextlib.contextmanager
def stopped_by_signals(attempt: Attempt):
    """SIGTERM and control-C end the ranks at once, then the launcher."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number, frame):
        attempt.job.grace = 0.0
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
