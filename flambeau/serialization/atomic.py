"""Files that are replaced as a whole: whatever happens on the way, the old one or the new is there.

The new contents go to a file without a name in the same folder (or, where the system has no such
thing, to a temporary one), reach the disk, and then take the place of the old in one step.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
import sys
import threading


class WriteError(OSError, RuntimeError):
    """A file could not be written; what was there before is unchanged."""


#: so many bytes are written at a time: for larger pieces systems look for large pages, in vain
PIECE = 2 << 20
#: so many bytes are written before the disk is told to begin with them
STRIDE = 16 << 20
_START_WRITING = 2  # SYNC_FILE_RANGE_WRITE


def _early_writer():
    """A function that lets the disk begin with part of a file, so that fsync has little to do."""
    if not sys.platform.startswith("linux"):
        return None
    found = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if found is not None:
        found.argtypes = ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
    return found


class _Output:
    """`write` for a file descriptor: all of it, or an error."""

    def __init__(self, descriptor: int, early=None):
        self._descriptor, self._early = descriptor, early
        self._at = self._begun = 0

    def write(self, data) -> None:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += os.write(self._descriptor, view[done:done + PIECE])
            self._begin(self._at + done)
        self._at += len(view)

    def _begin(self, reached: int) -> None:
        if self._early is not None and reached - self._begun >= STRIDE:
            self._early(self._descriptor, self._begun, reached - self._begun, _START_WRITING)
            self._begun = reached


@contextlib.contextmanager
def replacing(path):
    """Yield an object with `write`; at the end the file at `path` has what was written."""
    target = os.path.realpath(os.fspath(path))
    try:
        with _opened(target) as output:
            yield output
    except WriteError:
        raise
    except OSError as error:
        kept = "; the old file is unchanged" if os.path.exists(target) else ""
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise WriteError(error.errno, f"Parent directory {os.path.dirname(target)} does not "
                                          "exist.", str(path)) from error
        raise WriteError(error.errno, f"save: cannot write this file: {error.strerror}{kept}",
                         str(path)) from error


@contextlib.contextmanager
def _opened(target: str):
    before = _status(target)
    if before is not None and not stat.S_ISREG(before.st_mode):
        with _in_place(target) as output:  # a pipe or a device has no old contents to keep
            yield output
        return
    if before is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
    try:
        descriptor, name = _nameless(target)
    except PermissionError:
        if before is None:
            raise
        with _in_place(target) as output:  # the folder cannot take a new file
            yield output
        return
    try:
        yield _Output(descriptor, _early_writer())
        if before is not None and hasattr(os, "fchmod"):
            os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
        os.fsync(descriptor)
        if name is None:
            name = _beside(target)
            # A folder's descriptor, though it is not looked at, makes Python follow the link.
            os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor)
    except BaseException:
        os.close(descriptor)
        if name is not None:
            with contextlib.suppress(OSError):
                os.unlink(name)
        raise
    os.close(descriptor)
    _put_in_place(name, target)


def _status(target: str):
    try:
        return os.stat(target)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _in_place(target: str):
    with open(target, "wb", buffering=0) as file:
        yield _Output(file.fileno())


def _beside(target: str) -> str:
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name[:200]}.{secrets.token_hex(6)}.tmp")


def _nameless(target: str) -> tuple[int, str | None]:
    """A new file in the target's folder, with a name only where it must have one."""
    if hasattr(os, "O_TMPFILE") and os.path.exists("/proc/self/fd"):
        with contextlib.suppress(OSError):
            return os.open(os.path.dirname(target), os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC,
                           0o666), None
    name = _beside(target)
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
    return os.open(name, flags | getattr(os, "O_BINARY", 0), 0o666), name


def _put_in_place(name: str, target: str) -> None:
    old = None
    with contextlib.suppress(OSError):
        old = os.open(target, os.O_RDONLY | os.O_CLOEXEC) if os.name == "posix" else None
    try:
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    finally:
        if old is not None:  # giving back the room of a large file takes time
            threading.Thread(target=os.close, args=(old,), daemon=True).start()
    if os.name == "posix":  # the new name itself must survive a power cut
        with contextlib.suppress(OSError):
            folder = os.open(os.path.dirname(target), os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
