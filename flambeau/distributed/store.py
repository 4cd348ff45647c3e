"""Key-value stores that processes meet at: over TCP, in a file, or in one process.

A message is a list of byte strings. The TCP server answers each connection in a thread of its own;
a connection that says WATCH is the lifeline of a rank: when it breaks, the others are told.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from .errors import DistNetworkError, DistStoreError

DEFAULT_TIMEOUT = timedelta(minutes=5)


def seconds(timeout: Any) -> float:
    """A timedelta, or a number of seconds."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


# -- messages -------------------------------------------------------------------------------------


def send_message(connection: socket.socket, *parts: bytes) -> None:
    sizes = struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))
    connection.sendall(sizes + b"".join(parts))


def receive_message(connection: socket.socket) -> list[bytes]:
    """The next message; EOFError when the other side is gone."""
    (count,) = struct.unpack("<I", receive_exactly(connection, 4))
    sizes = struct.unpack(f"<{count}Q", receive_exactly(connection, 8 * count))
    return [receive_exactly(connection, size) for size in sizes]


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        piece = connection.recv(min(size - len(found), 1 << 20))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)


# -- one dictionary, many threads -----------------------------------------------------------------


class Shelf:
    """A dictionary of bytes whose readers may wait for a key."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.changed = threading.Condition()

    def set(self, key: bytes, value: bytes) -> None:
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key: bytes, timeout: float) -> bytes | None:
        with self.changed:
            self.changed.wait_for(lambda: key in self.values, timeout)
            return self.values.get(key)

    def add(self, key: bytes, amount: int) -> int:
        with self.changed:
            total = int(self.values.get(key, b"0")) + amount
            self.values[key] = b"%d" % total
            self.changed.notify_all()
            return total

    def swap(self, key: bytes, expected: bytes, desired: bytes) -> bytes:
        """compare_set: a key that is not there is made when nothing is expected."""
        with self.changed:
            now = self.values.get(key)
            if now == expected or (now is None and not expected):
                self.values[key] = desired
                self.changed.notify_all()
                return desired
            return expected if now is None else now

    def wait(self, keys: list[bytes], timeout: float) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: all(k in self.values for k in keys), timeout)

    def delete(self, key: bytes) -> bool:
        with self.changed:
            return self.values.pop(key, None) is not None


# -- stores ---------------------------------------------------------------------------------------


class Store:
    """What every store can do; a subclass answers `_ask` with a list of bytes."""

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def _ask(self, command: str, *parts: bytes, patience: float = 0.0) -> list[bytes]:
        raise NotImplementedError("a Store is made as TCPStore, FileStore, HashStore, PrefixStore")

    def set(self, key: str, value: Any) -> None:
        self._ask("set", as_bytes(key), as_bytes(value))

    def get(self, key: str) -> bytes:
        """The value; waits for it as long as the timeout."""
        patience = seconds(self._timeout)
        found = self._ask("get", as_bytes(key), b"%f" % patience, patience=patience)
        if not found:
            raise DistStoreError(f"store.get: no value for {key!r} after {patience:g} s")
        return found[0]

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("add", as_bytes(key), b"%d" % amount)[0])

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        return self._ask("swap", as_bytes(key), as_bytes(expected_value),
                         as_bytes(desired_value))[0]

    def check(self, keys: list[str]) -> bool:
        return self._ask("wait", b"0", *map(as_bytes, keys)) == [b"1"]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Until all keys are there; DistStoreError after the timeout."""
        patience = seconds(self._timeout if timeout is None else timeout)
        answer = self._ask("wait", b"%f" % patience, *map(as_bytes, keys), patience=patience)
        if answer != [b"1"]:
            raise DistStoreError(f"wait timeout after {patience * 1000:.0f}ms, keys: "
                                 + ", ".join(keys))

    def delete_key(self, key: str) -> bool:
        return self._ask("delete", as_bytes(key)) == [b"1"]

    def num_keys(self) -> int:
        return int(self._ask("count")[0])

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def append(self, key: str, value: Any) -> None:
        while True:
            before = self._ask("get", as_bytes(key), b"0")
            now = before[0] if before else b""
            wanted = now + as_bytes(value)
            if self._ask("swap", as_bytes(key), now, wanted)[0] == wanted:
                return


def answer(shelf: Shelf, command: bytes, parts: list[bytes]) -> list[bytes]:
    """Do one command of the protocol on a shelf."""
    return ANSWERS[command](shelf, *parts)


def _answer_get(shelf: Shelf, key: bytes, patience: bytes) -> list[bytes]:
    found = shelf.get(key, float(patience))
    return [] if found is None else [found]


def _answer_set(shelf: Shelf, key: bytes, value: bytes) -> list[bytes]:
    shelf.set(key, value)
    return []


ANSWERS: dict[bytes, Callable[..., list[bytes]]] = {
    b"set":    _answer_set,
    b"get":    _answer_get,
    b"add":    lambda shelf, key, amount: [b"%d" % shelf.add(key, int(amount))],
    b"swap":   lambda shelf, *parts: [shelf.swap(*parts)],
    b"wait":   lambda shelf, patience, *keys: [b"%d" % shelf.wait(list(keys), float(patience))],
    b"delete": lambda shelf, key: [b"%d" % shelf.delete(key)],
    b"count":  lambda shelf: [b"%d" % len(shelf.values)],
}  # fmt: skip


class HashStore(Store):
    """A store for the threads of one process."""

    def __init__(self) -> None:
        super().__init__()
        self._shelf = Shelf()

    def _ask(self, command, *parts, patience=0.0):
        return answer(self._shelf, command.encode(), list(parts))


class PrefixStore(Store):
    """Another store, with a prefix before every key."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self._prefix, self._inner = prefix, store
        self._timeout = store.timeout

    @property
    def underlying_store(self) -> Store:
        return self._inner

    def _ask(self, command, *parts, patience=0.0):
        first = 1 if command == "wait" else 0
        last = len(parts) if command == "wait" else min(1, len(parts))
        before = as_bytes(self._prefix) + b"/"
        named = [before + part if first <= place < last else part
                 for place, part in enumerate(parts)]
        return self._inner._ask(command, *named, patience=patience)


class FileStore(Store):
    """A store in one file, for processes that see the same disk."""

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path = str(file_name)

    def _ask(self, command, *parts, patience=0.0):
        deadline = time.monotonic() + patience
        while True:
            found = self._once(command, parts)
            if found not in ([], [b"0"]) or time.monotonic() >= deadline:
                return found
            time.sleep(0.01)

    def _once(self, command, parts):
        now = [b"0" if place == PATIENCE.get(command) else part for place, part in enumerate(parts)]
        with open(self.path, "a+b") as file, locked(file):
            shelf = Shelf()
            file.seek(0)
            text = file.read()
            shelf.values = {bytes.fromhex(k): bytes.fromhex(v)
                            for k, v in json.loads(text or b"{}").items()}
            before = dict(shelf.values)
            found = answer(shelf, command.encode(), now)
            if shelf.values != before:
                file.truncate(0)
                file.write(json.dumps({k.hex(): v.hex() for k, v in shelf.values.items()}).encode())
                file.flush()
        return found


#: where a command has its patience: a file is asked again instead of waiting with the lock
PATIENCE = {"get": 1, "wait": 0}


@contextlib.contextmanager
def locked(file):
    """Alone with the file, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


class TCPStore(Store):
    """A store in the process that is_master, asked over TCP by all others."""

    def __init__(self, host_name: str, port: int = 0, world_size: int | None = None,
                 is_master: bool = False, timeout: timedelta = DEFAULT_TIMEOUT,
                 wait_for_workers: bool = True, multi_tenant: bool = False,
                 master_listen_fd: int | None = None, use_libuv: bool = True) -> None:
        super().__init__()
        self._timeout = timeout
        self._server = Server(port) if is_master else None
        self.host, self.port = host_name, self._server.port if self._server else port
        self._lock = threading.Lock()
        self._connection = dial(self.host, self.port, seconds(timeout))
        if wait_for_workers and world_size and world_size > 0:
            self.add("worker_count", 1)
            deadline = time.monotonic() + seconds(timeout)
            while self.add("worker_count", 0) < world_size:
                if time.monotonic() > deadline:
                    raise DistStoreError(
                        f"TCPStore: {self.add('worker_count', 0)} of {world_size} processes came "
                        f"to {self.host}:{self.port} in {seconds(timeout):g} s")
                time.sleep(0.01)

    def _ask(self, command, *parts, patience=0.0):
        try:
            with self._lock:
                send_message(self._connection, command.encode(), *parts)
                self._connection.settimeout(patience + 30)
                return receive_message(self._connection)
        except (EOFError, OSError) as error:
            raise DistNetworkError(
                f"the store at {self.host}:{self.port} does not answer ({error or 'closed'}): "
                "the process that hosts it has ended") from error

    def clone(self) -> TCPStore:
        """The same store over a connection of its own, so that one thread's wait stops no other."""
        return TCPStore(self.host, self.port, timeout=self._timeout, wait_for_workers=False)


def dial(host: str, port: int, timeout: float) -> socket.socket:
    """Connect, trying again while nobody listens yet."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=max(1.0, timeout))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError as error:
            if time.monotonic() > deadline:
                raise DistNetworkError(f"cannot connect to {host}:{port} in {timeout:g} s: {error}"
                                       ) from error
            time.sleep(0.05)


class Server:
    """The TCP side of a store, and the lifelines of the ranks that use it."""

    def __init__(self, port: int) -> None:
        self.shelf = Shelf()
        self.watchers: dict[int, socket.socket] = {}
        self.beats: dict[int, bytes] = {}
        self.gone: dict[int, bytes] = {}
        self._lock = threading.Lock()
        try:
            self._listener = socket.create_server(("", port), backlog=512)
        except OSError as error:
            raise DistNetworkError(
                f"the store cannot listen on port {port}: {error.strerror or error}") from error
        self.port = self._listener.getsockname()[1]
        os.register_at_fork(after_in_child=self._listener.close)
        threading.Thread(target=self._accept, daemon=True, name="flambeau-store").start()

    def close(self) -> None:
        # A thread that is in accept() keeps the port; shutdown wakes it up.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(EOFError, OSError):
            while True:
                command, *parts = receive_message(connection)
                if command == b"watch":
                    self._hold(connection, int(parts[0]))
                    return
                if command == b"beats":
                    with self._lock:
                        known = {rank: beat.decode() for rank, beat in self.beats.items()}
                    send_message(connection, json.dumps(known).encode())
                else:
                    send_message(connection, *answer(self.shelf, command, parts))

    def _hold(self, connection: socket.socket, rank: int) -> None:
        """The lifeline of a rank: it sends beats and a farewell; broken, the others are told."""
        with self._lock:
            self.watchers[rank] = connection
            self.gone.pop(rank, None)
            losses = dict(self.gone)
        for lost, reason in losses.items():
            send_message(connection, b"gone", b"%d" % lost, reason)
        reason = b"its process ended without a word (killed?)"
        try:
            while True:
                word, *parts = receive_message(connection)
                if word == b"beat":
                    with self._lock:
                        self.beats[rank] = parts[0]
                elif word == b"leave":
                    with self._lock:
                        self.watchers.pop(rank, None)
                    return
                elif word == b"fail":
                    self.tell(rank, parts[0])
        except (EOFError, OSError):
            self.tell(rank, reason)

    def tell(self, rank: int, reason: bytes) -> None:
        """Tell every other rank that this one is gone; the first reason counts."""
        with self._lock:
            if rank in self.gone:
                return
            self.gone[rank] = reason
            self.watchers.pop(rank, None)
            others = list(self.watchers.values())
        for connection in others:
            with contextlib.suppress(OSError):
                send_message(connection, b"gone", b"%d" % rank, reason)
