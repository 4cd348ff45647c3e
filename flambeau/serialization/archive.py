"""The container of checkpoints: a zip file of records, stored as they are and aligned to 64 bytes.

Written in one pass, straight from the memory of tensors; read straight into it. What a file says
of offsets and sizes is compared with the file itself before anything is allocated.
"""

from __future__ import annotations

import struct
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from flambeau.assemble import checksum

ALIGNMENT = 64
#: so many bytes are read and summed at a time, while they are in the cache
PIECE = 1 << 21
#: so many bytes are summed by a second thread while they are written
LARGE = 4 << 20

_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_END = struct.Struct("<IHHHHIIH")
_END64 = struct.Struct("<IQHHIIQQQQ")
_LOCATOR = struct.Struct("<IIQI")
_LOCAL_MARK, _CENTRAL_MARK, _END_MARK = 0x04034B50, 0x02014B50, 0x06054B50
_END64_MARK, _LOCATOR_MARK, _DESCRIPTOR_MARK = 0x06064B50, 0x07064B50, 0x08074B50
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
#: sizes stand after the data, and names are UTF-8
_FLAGS = 0x0808
_PADDING_FIELD = b"FB"
_DATE = 0x21  # 1 January 1980: files do not depend on when they are written
#: deflate cannot shrink more than this
MOST_INFLATION = 1032


class Writer:
    """Writes records one after another through `write`."""

    def __init__(self, write, name: str):
        self._write, self._name = write, name
        self._at = 0
        self._central: list[bytes] = []
        self._sums: list[tuple[bytes, int]] = []

    def _put(self, data) -> None:
        self._write(data)
        self._at += len(data)

    def record(self, name: str, data, crc=None) -> None:
        """One record: a bytes-like object of any size; `crc` gives its sum when it is written."""
        full = f"{self._name}/{name}".encode()
        view = memoryview(data).cast("B")
        start = self._at
        padding = -(start + _LOCAL.size + len(full) + 4) % ALIGNMENT
        self._put(_LOCAL.pack(_LOCAL_MARK, 45 if len(view) >= _FULL32 else 0, _FLAGS, 0, 0, _DATE,
                              0, 0, 0, len(full), padding + 4) + full
                  + _PADDING_FIELD + struct.pack("<H", padding) + b"Z" * padding)
        self._put(view)
        found = checksum.crc32(view) if crc is None else crc()
        self._put(struct.pack("<IIQQ" if len(view) >= _FULL32 else "<IIII", _DESCRIPTOR_MARK, found,
                              len(view), len(view)))
        self._central.append(self._entry(full, found, len(view), start))
        self._sums.append((full, found))

    def records(self, contents: dict, with_sums: bool = True) -> None:
        """Many records, summed by a second thread while they are written."""
        if not with_sums or sum(map(len, contents.values())) < LARGE:
            for name, data in contents.items():
                self.record(name, data, None if with_sums else lambda: 0)
            return
        with ThreadPoolExecutor(1) as pool:
            sums = [pool.submit(checksum.crc32, data) for data in contents.values()]
            try:
                for (name, data), future in zip(contents.items(), sums, strict=True):
                    self.record(name, data, future.result)
            finally:
                pool.shutdown(cancel_futures=True)

    @staticmethod
    def _entry(name: bytes, crc: int, size: int, start: int) -> bytes:
        wide = size >= _FULL32 or start >= _FULL32
        extra = struct.pack("<HHQQQ", 1, 24, size, size, start) if wide else b""
        return _CENTRAL.pack(
            _CENTRAL_MARK, 45 if wide else 0, 45 if wide else 0, _FLAGS, 0, 0, _DATE, crc,
            _FULL32 if wide else size, _FULL32 if wide else size, len(name), len(extra), 0, 0, 0, 0,
            _FULL32 if wide else start) + name + extra

    def close(self) -> None:
        """The last records, and the table of contents."""
        self.record("version", b"3\n")
        self.record(".data/serialization_id", self._identity())
        start, count = self._at, len(self._central)
        table = b"".join(self._central)
        self._put(table)
        if start + len(table) >= _FULL32 or count >= _FULL16:
            self._put(_END64.pack(_END64_MARK, 44, 45, 45, 0, 0, count, count, len(table), start))
            self._put(_LOCATOR.pack(_LOCATOR_MARK, 0, start + len(table), 1))
        self._put(_END.pack(_END_MARK, 0, 0, min(count, _FULL16), min(count, _FULL16),
                            min(len(table), _FULL32), min(start, _FULL32), 0))

    def _identity(self) -> bytes:
        """Forty digits that differ when names or contents do."""
        of_names = of_sums = 0
        for name, crc in self._sums:
            of_names = (of_names * 0x100000001B3 + zlib.crc32(name)) & (2**64 - 1)
            of_sums = (of_sums * 0x100000001B3 + crc) & (2**64 - 1)
        return f"{of_names:020d}{of_sums:020d}".encode()


class Record(NamedTuple):
    """Where a record lies, as the table of contents has it."""

    start: int
    size: int
    packed: int
    crc: int
    method: int


class Broken(RuntimeError):
    """The archive cannot be read; the message says why."""

    def __init__(self, source: str, reason: str):
        super().__init__(f"load: {source}: {reason} (PytorchStreamReader failed reading zip "
                         "archive); the file is damaged or incomplete: copy or save it again")


class Reader:
    """The records of an archive in `file`, which has `read_at(offset, count)` and `size`."""

    def __init__(self, file, source: str):
        self._file, self._source = file, source
        table, count, start = self._contents()
        self.records = dict(self._entries(table, count, start))
        self._check_overlaps()
        homes = {name.partition("/")[0] for name in self.records if "/" in name}
        if len(homes) != 1:
            raise self.broken(f"records lie under {len(homes)} names, not one")
        self._home = homes.pop()

    def broken(self, reason: str) -> Broken:
        return Broken(self._source, reason)

    def _contents(self) -> tuple[bytes, int, int]:
        """(table, number of its entries, where it begins)"""
        size = self._file.size
        tail_at = max(0, size - _END.size - _FULL16)
        tail = self._file.read_at(tail_at, size - tail_at)
        at = tail.rfind(struct.pack("<I", _END_MARK))
        if at < 0 or at + _END.size > len(tail):
            raise self.broken("failed finding central directory")
        _, disk, _, _, count, length, start, _ = _END.unpack_from(tail, at)
        end = tail_at + at
        if disk not in (0, _FULL16):
            raise self.broken("it is one part of several")
        if count == _FULL16 or _FULL32 in (length, start):
            count, length, start, end = self._wide_contents(end, (count, length, start))
        if start + length > end:
            raise self.broken(f"its table of contents of {length} bytes at {start} does not fit "
                              f"into a file of {size}")
        return self._file.read_at(start, length), count, start

    def _wide_contents(self, end: int, narrow) -> tuple[int, int, int, int]:
        if end < _LOCATOR.size:
            raise self.broken("failed finding central directory")
        mark, _, at, _ = _LOCATOR.unpack(self._file.read_at(end - _LOCATOR.size, _LOCATOR.size))
        if mark != _LOCATOR_MARK:
            return (*narrow, end)
        if at + _END64.size > end:
            raise self.broken("failed finding central directory")
        found = _END64.unpack(self._file.read_at(at, _END64.size))
        if found[0] != _END64_MARK:
            raise self.broken("failed finding central directory")
        _, count, length, start = found[6:]
        return count, length, start, at

    def _entries(self, table: bytes, count: int, limit: int):
        at = 0
        seen: set[str] = set()
        for _ in range(count):
            if at + _CENTRAL.size > len(table):
                raise self.broken("its table of contents is cut")
            (mark, _, _, flags, method, _, _, crc, packed, size, name_length, extra_length,
             comment_length, _, _, _, start) = _CENTRAL.unpack_from(table, at)
            if mark != _CENTRAL_MARK:
                raise self.broken("its table of contents is damaged")
            at += _CENTRAL.size
            raw, extra = table[at:at + name_length], table[at + name_length:][:extra_length]
            at += name_length + extra_length + comment_length
            name = self._name(raw, seen)
            if flags & 1:
                raise self.broken(f"record {name!r} is encrypted")
            size, packed, start = _widened(extra, size, packed, start)
            if start + packed > limit or (method == 0 and size != packed) or (
                    size > packed * MOST_INFLATION + 64):
                raise self.broken(f"record {name!r} claims {size} bytes at {start}, which do not "
                                  f"fit into a file of {self._file.size}")
            yield name, Record(start, size, packed, crc, method)

    def _name(self, raw: bytes, seen: set) -> str:
        name = raw.decode("utf-8", "replace")
        if name in seen:
            raise self.broken(f"record {name!r:.100} stands twice")
        if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or (
                "\0" in name or name[1:2] == ":"):
            raise self.broken(f"record name {name!r:.100} leads out of the archive")
        seen.add(name)
        return name

    def _check_overlaps(self) -> None:
        reached, last = 0, ""
        for name, record in sorted(self.records.items(), key=lambda item: item[1].start):
            if record.start < reached:
                raise self.broken(f"records {last!r} and {name!r} overlap")
            reached, last = record.start + _LOCAL.size + record.packed, name

    # -- reading ---------------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return f"{self._home}/{name}" in self.records

    def find(self, name: str) -> Record:
        found = self.records.get(f"{self._home}/{name}")
        if found is None:
            raise self.broken(f"there is no record {name!r:.100}")
        return found

    def data_at(self, name: str, record: Record) -> int:
        """Where the bytes of a record begin."""
        head = self._file.read_at(record.start, _LOCAL.size)
        fields = _LOCAL.unpack(head)
        at = record.start + _LOCAL.size + fields[9] + fields[10]
        if fields[0] != _LOCAL_MARK or at + record.packed > self._file.size:
            raise self.broken(f"record {name!r} has no header where the table says")
        return at

    def read(self, name: str) -> bytes:
        """The bytes of a small record, compared with their sum."""
        record = self.find(name)
        data = self._file.read_at(self.data_at(name, record), record.packed)
        if record.method:
            data = self._inflated(name, data, record)
        self._check(name, record, zlib.crc32(data))
        return data

    def _inflated(self, name: str, data: bytes, record: Record) -> bytes:
        if record.method != 8:
            raise self.broken(f"record {name!r} is packed in an unknown way")
        try:
            machine = zlib.decompressobj(-15)
            found = machine.decompress(data, record.size)
            if len(found) != record.size or machine.decompress(machine.unconsumed_tail, 1):
                raise self.broken(f"record {name!r} is not of the size that it claims")
        except zlib.error as error:
            raise self.broken(f"record {name!r}: {error}") from error
        return found

    def read_into(self, name: str, target: memoryview, later: Later | None = None) -> None:
        """Fill memory with a record, and compare with its sum, now or before `later` ends."""
        record = self.find(name)
        if record.size < len(target):
            raise self.broken(f"record {name!r} has {record.size} bytes where a storage needs "
                              f"{len(target)}")
        if record.method or record.size != len(target):
            target[:] = self.read(name)[:len(target)]
            return
        at = self.data_at(name, record)

        def fill() -> None:
            crc = 0
            for start in range(0, len(target), PIECE):
                piece = target[start:start + PIECE]
                self._file.read_into(at + start, piece)
                crc = checksum.crc32(piece, crc)
            self._check(name, record, crc)

        if later is None:
            fill()
        else:
            later.submit(fill)

    def _check(self, name: str, record: Record, crc: int) -> None:
        # A writer told not to compute sums leaves zero.
        if record.crc and crc != record.crc:
            raise self.broken(f"record {name!r} does not match its checksum")

    def byte_order(self) -> str:
        """"little" or "big", whatever wrote the file."""
        if "byteorder" not in self:
            return "little"
        order = self.read("byteorder").decode("ascii", "replace")
        if order not in ("little", "big"):
            raise self.broken(f"unknown byte order {order!r:.20}")
        return order


class Later:
    """Records that two threads read and compare with their sums while the first goes on."""

    def __init__(self):
        self._pool, self._under_way = None, []

    def submit(self, fill) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(2)
        self._under_way.append(self._pool.submit(fill))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self._pool is None:
            return
        self._pool.shutdown(cancel_futures=kind is not None)
        for each in self._under_way if kind is None else ():
            each.result()


def _widened(extra: bytes, size: int, packed: int, start: int) -> tuple[int, int, int]:
    """Sizes of more than 32 bits stand in an extra field, those that need to."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        field = extra[at + 4:at + 4 + length]
        at += 4 + length
        if tag == 1:
            values = [v for v, in struct.iter_unpack("<Q", field[:len(field) // 8 * 8])][::-1]
            size = values.pop() if size == _FULL32 and values else size
            packed = values.pop() if packed == _FULL32 and values else packed
            start = values.pop() if start == _FULL32 and values else start
    return size, packed, start


def native_order() -> str:
    return sys.byteorder
