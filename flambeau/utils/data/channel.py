"""Messages between a loader and a worker: small ones in the pipe, large ones in a file in memory.

So a message never fills the pipe, and two sides that both write cannot wait for each other.
"""

import mmap
import os
import select
from multiprocessing import reduction

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
                reduction.send_handle(self.connection, file, self.peer)
            finally:
                os.close(file)
        for handle in handles:
            reduction.send_handle(self.connection, handle, self.peer)

    def receive(self):
        """The bytes of the next message; waits for it. EOFError if the other side has gone."""
        data = self.connection.recv_bytes()
        if data[:1] == PLAIN:
            return memoryview(data)[1:]
        file = reduction.recv_handle(self.connection)
        try:
            length = os.fstat(file).st_size
            with mmap.mmap(file, length, access=mmap.ACCESS_READ) as mapping:
                return memoryview(mapping[:])
        finally:
            os.close(file)

    def receive_handle(self):
        """A descriptor that was sent after a message."""
        return reduction.recv_handle(self.connection)

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
