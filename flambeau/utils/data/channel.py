"""Messages between a loader and a worker: small ones in the pipe, large ones in a file in memory.

So a message never fills the pipe, and two sides that both write cannot wait for each other.
"""

import mmap
import os
import select
import socket

from .lending import POSSIBLE, memory_file

INLINE = 1 << 15  # bytes that surely fit into a pipe that takes more
PLAIN, IN_FILE = b"\0", b"\1"


class Channel:
    """One end of a connection. `peer` is the process at the other end."""

    def __init__(self, connection):
        self.connection = connection
        self.peer = None

    def fileno(self):
        return self.connection.fileno()

    def send(self, data, handles=()):
        """Send bytes, and descriptors of open files after them."""
        if len(data) <= INLINE or not POSSIBLE:
            self.connection.send_bytes(PLAIN + data)
        else:
            file = memory_file(0)
            try:
                with open(file, "wb", closefd=False) as out:
                    out.write(data)
                self.connection.send_bytes(IN_FILE)
                self._send_handle(file)
            finally:
                os.close(file)
        for handle in handles:
            self._send_handle(handle)

    def receive(self):
        """The bytes of the next message; waits for it. EOFError if the other side has gone."""
        data = self.connection.recv_bytes()
        if data[:1] == PLAIN:
            return memoryview(data)[1:]
        file = self.receive_handle()
        try:
            length = os.fstat(file).st_size
            with mmap.mmap(file, length, access=mmap.ACCESS_READ) as mapping:
                return memoryview(mapping[:])
        finally:
            os.close(file)

    def receive_handle(self):
        """A descriptor that was sent after a message."""
        with self._socket() as pipe:
            said, handles, _, _ = socket.recv_fds(pipe, 1, 1)
        if not said:
            raise EOFError
        return handles[0]

    def _send_handle(self, handle):
        # multiprocessing would wait, from Python 3.14 on, until the other side has it.
        with self._socket() as pipe:
            socket.send_fds(pipe, [b"h"], [handle])

    def _socket(self):
        return socket.fromfd(self.connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)

    def ready(self, timeout=0.0):
        return self.connection.poll(timeout)

    def takes_more(self):
        """Whether a message can be sent without waiting."""
        if not POSSIBLE:
            return True
        poll = select.poll()
        poll.register(self.connection, select.POLLOUT)
        return bool(poll.poll(0))

    def close(self):
        self.connection.close()
