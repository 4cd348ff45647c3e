"""Files of records with check sums, in TensorFlow's form: length, its sum, bytes, their sum."""

import itertools
import os
import socket
import struct
import threading
import time

import numpy

from flambeau.utils.tensorboard import wire

POLYNOMIAL = 0x82F63B78  # CRC-32C, bits reversed
LANES = 256  # long records are summed in so many pieces at once


def _table():
    table = numpy.arange(256, dtype=numpy.uint32)
    for _ in range(8):
        table = numpy.where(table & 1, (table >> 1) ^ numpy.uint32(POLYNOMIAL), table >> 1)
    return table


TABLE = _table()
STEP = TABLE.tolist()


def crc32c(data):
    """The CRC-32C of bytes."""
    if len(data) < 4 * LANES:
        return _run(0xFFFFFFFF, data) ^ 0xFFFFFFFF
    head = len(data) % LANES
    state = _run(0xFFFFFFFF, data[:head])
    pieces = numpy.frombuffer(data, numpy.uint8, offset=head).reshape(LANES, -1)
    sums = numpy.zeros(LANES, numpy.uint32)
    for column in numpy.ascontiguousarray(pieces.T):
        sums = (sums >> 8) ^ TABLE[(sums ^ column) & 0xFF]
    past = _Past(pieces.shape[1])
    for each in sums.tolist():
        state = past(state) ^ each
    return state ^ 0xFFFFFFFF


def _run(state, data):
    for byte in data:
        state = (state >> 8) ^ STEP[(state ^ byte) & 0xFF]
    return state


class _Past:
    """What a state becomes when so many zero bytes follow: it is linear, so four tables tell."""

    def __init__(self, count):
        bits = [_after_zeros(1 << k, count) for k in range(32)]
        self.tables = []
        for first in range(0, 32, 8):
            table = [0]
            for bit in bits[first:first + 8]:
                table += [value ^ bit for value in table]
            self.tables.append(table)

    def __call__(self, state):
        a, b, c, d = self.tables
        return (a[state & 0xFF] ^ b[state >> 8 & 0xFF] ^ c[state >> 16 & 0xFF] ^ d[state >> 24])


def _after_zeros(state, count):
    """By squaring: doubling the zeros applies the map of half as many twice."""
    bits = [_run(1 << k, b"\0") for k in range(32)]
    while count:
        if count & 1:
            state = _apply(bits, state)
        bits = [_apply(bits, bit) for bit in bits]
        count >>= 1
    return state


def _apply(bits, state):
    found = 0
    for k in range(32):
        if state >> k & 1:
            found ^= bits[k]
    return found


def masked(data):
    """A check sum that is not confused by data that holds check sums itself."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class RecordWriter:
    """Appends records to a file."""

    def __init__(self, path):
        self.path = path
        self.file = open(path, "ab")  # noqa: SIM115  closed by close()

    def write(self, data):
        """Append one record."""
        length = struct.pack("<Q", len(data))
        self.file.write(length + struct.pack("<I", masked(length)) + data
                        + struct.pack("<I", masked(data)))

    def flush(self):
        """Let readers see what has been written."""
        self.file.flush()

    def close(self):
        """Write the rest, and close."""
        self.file.close()


def read_records(path):
    """Every record of a file; a damaged one is a ValueError."""
    with open(path, "rb") as file:
        while head := file.read(12):
            if len(head) < 12:
                raise ValueError(f"{path}: the last record is cut off")
            length, crc = struct.unpack("<QI", head)
            if masked(head[:8]) != crc:
                raise ValueError(f"{path}: the length of a record is damaged")
            data, rest = file.read(length), file.read(4)
            if len(data) < length or len(rest) < 4:
                raise ValueError(f"{path}: the last record is cut off")
            if masked(data) != struct.unpack("<I", rest)[0]:
                raise ValueError(f"{path}: a record is damaged")
            yield data


class FileWriter:
    """One event file in a folder."""

    _count = itertools.count()

    def __init__(self, log_dir, max_queue=10, flush_secs=120, filename_suffix=""):
        self.log_dir = str(log_dir)
        os.makedirs(self.log_dir, exist_ok=True)
        name = (f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}."
                f"{next(FileWriter._count)}{filename_suffix}")
        self.records = RecordWriter(os.path.join(self.log_dir, name))
        self.lock = threading.Lock()
        self.max_queue, self.flush_secs = max_queue, flush_secs
        self.flushed = time.monotonic()
        self.waiting = 0
        self.add_event(wire.message(3, "brain.Event:2"))
        self.flush()

    def get_logdir(self):
        """The folder."""
        return self.log_dir

    def add_event(self, content, step=None, walltime=None):
        """Append an event; `content` is its field."""
        event = wire.double(1, time.time() if walltime is None else walltime)
        if step is not None:
            event += wire.integer(2, step)
        with self.lock:
            self.records.write(event + content)
            self.waiting += 1
        late = time.monotonic() - self.flushed > self.flush_secs
        if late or self.waiting > self.max_queue:
            self.flush()

    def add_summary(self, values, global_step=None, walltime=None):
        """Append an event with values, or with a summary that somebody else has made of them."""
        if not isinstance(values, list):
            written = getattr(values, "SerializeToString", None)
            values = [written() if written is not None else values]
        self.add_event(wire.message(5, *values), global_step, walltime)

    def add_graph(self, graph, walltime=None):
        """Append an event with a graph."""
        self.add_event(wire.message(4, graph), None, walltime)

    def flush(self):
        """Let readers see everything up to here."""
        with self.lock:
            self.records.flush()
            self.flushed, self.waiting = time.monotonic(), 0

    def close(self):
        """Write the rest, and close."""
        with self.lock:
            self.records.close()
