"""Machine code on disk: keyed by content, written atomically, never trusted when damaged.

An entry is a digest of its key and code followed by the code, so that code is never run that was
damaged or that belongs to another key. A folder that is missing, full, read-only
or owned by somebody else only means that kernels are compiled again.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

from ...core.digest import SIZE, digest
from ..switches import switch

LIMIT_BYTES = 512 << 20
_DAY = 86400
_OURS = re.compile(r"[0-9a-f]{64}|\.new-.*")


def folder() -> str | None:
    """Where entries live, or None where none may be kept."""
    chosen = switch("FLAMBEAU_CACHE")
    if chosen in ("0", "off", "none"):
        return None
    try:
        home = os.path.expanduser("~")
        base = chosen or os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "flambeau", "kernels")
        if base.startswith("~"):  # nobody's home is known
            return None
        os.makedirs(base, exist_ok=True, mode=0o700)
        if hasattr(os, "getuid") and os.stat(base).st_uid != os.getuid():
            return None
    except OSError:
        return None
    return base


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def seal(key: str, code: bytes) -> bytes:
    """What an entry begins with."""
    return digest(key.encode(), code).digest()


class Cache:
    """Object code by key."""

    def __init__(self, stamp: str):
        self.root = folder()
        self.stamp = stamp

    def key(self, text: str) -> str:
        return digest(f"{self.stamp}\n{text}".encode()).hexdigest()

    def get(self, key: str) -> bytes | None:
        """The code kept under a key; None if there is none or it is damaged."""
        if self.root is None:
            return None
        path = os.path.join(self.root, key)
        try:
            # Without a buffer all of it is read to where it stays.
            with open(path, "rb", buffering=0) as file:
                sealed, code = file.read(SIZE), file.read()
                age = time.time() - os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        if age > _DAY:  # its time tells when it was last of use, to the day
            with contextlib.suppress(OSError):
                os.utime(path)
        return code if seal(key, code) == sealed else None

    def put(self, key: str, code: bytes) -> None:
        """Keep code under a key; a failure to write costs nothing but the next start."""
        if self.root is None:
            return
        with contextlib.suppress(OSError):
            temporary = os.path.join(self.root, f".new-{os.getpid()}-{os.urandom(6).hex()}")
            try:
                with open(temporary, "xb", opener=_private) as file:
                    file.write(seal(key, code) + code)
                os.replace(temporary, os.path.join(self.root, key))
                if os.urandom(1)[0] == 0:  # now and then: it has to look at all there is
                    self.trim()
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise

    def entries(self) -> list[os.DirEntry]:
        if self.root is None:
            return []
        try:
            return [e for e in os.scandir(self.root) if e.is_file() and _OURS.fullmatch(e.name)]
        except OSError:
            return []

    def size(self) -> tuple[int, int]:
        """How many entries there are, and their bytes."""
        found = self.entries()
        return len(found), sum(e.stat().st_size for e in found)

    def trim(self, limit: int | None = None) -> None:
        """Drop the entries least recently used until the rest fits the limit."""
        limit = LIMIT_BYTES if limit is None else limit
        with contextlib.suppress(OSError):
            found = sorted(self.entries(), key=lambda e: e.stat().st_mtime)
            total = sum(e.stat().st_size for e in found)
            for entry in found:
                if total <= limit:
                    break
                total -= entry.stat().st_size
                os.unlink(entry.path)

    def clear(self) -> int:
        """Drop everything; how many entries went."""
        count = 0
        for entry in self.entries():
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
                count += 1
        return count
