"""Files as loading sees them: anything that can be read and sought, by offset and straight into
memory."""

from __future__ import annotations

import mmap
import os


class Source:
    """A seekable file from where it stands; `name` is for messages."""

    together = False  # whether several threads may read at once

    def __init__(self, file, name: str):
        self.file, self.name = file, name
        self.start = file.tell()
        self.size = file.seek(0, os.SEEK_END) - self.start
        file.seek(self.start)

    def read_at(self, offset: int, count: int) -> bytes:
        self.file.seek(self.start + offset)
        found = self.file.read(count)
        while len(found) < count:
            more = self.file.read(count - len(found))
            if not more:
                raise self.cut(offset + count)
            found += more
        return found

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target` with the bytes from `offset`."""
        self.file.seek(self.start + offset)
        into = getattr(self.file, "readinto", None)
        done = 0
        while done < len(target):
            if into is not None:
                count = into(target[done:])
            else:
                found = self.file.read(len(target) - done)
                count = len(found)
                target[done:done + count] = found
            if not count:
                raise self.cut(offset + len(target))
            done += count

    def cut(self, wanted: int) -> RuntimeError:
        return RuntimeError(f"load: {self.name}: unexpected EOF, expected {wanted - self.size} "
                            "more bytes. The file might be corrupted.")

    def whole(self):
        """All bytes, without reading them if the file is one on a disk."""
        try:
            return mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, AttributeError, ValueError):
            return self.read_at(0, self.size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class PathSource(Source):
    """A file of our own, closed at the end."""

    together = hasattr(os, "preadv")

    def __init__(self, path):
        super().__init__(open(path, "rb", buffering=0), repr(os.fspath(path)))  # noqa: SIM115

    def read_into(self, offset: int, target: memoryview) -> None:
        if not self.together:
            super().read_into(offset, target)
            return
        done, file = 0, self.file.fileno()
        while done < len(target):
            count = os.preadv(file, [target[done:]], self.start + offset + done)
            if not count:
                raise self.cut(offset + len(target))
            done += count

    def __exit__(self, *_):
        self.file.close()


def opened(f) -> Source:
    """The source that `f`, a path or a file, is."""
    if isinstance(f, (str, os.PathLike)):
        return PathSource(f)
    for method in ("read", "seek", "tell"):
        if not hasattr(f, method):
            raise AttributeError(
                f"'{type(f).__name__}' object has no attribute '{method}'. You can only torch.load "
                "from a file that is seekable. Please pre-load the data into a buffer like "
                "io.BytesIO and try to load from it instead.")
    return Source(f, f"<{type(f).__name__}>")
