"""The processor that machine code is made for: what LLVM says of it, or said before.

To ask LLVM its library has to be there, which takes 40 MB of memory and is needed for nothing else
where all machine code is on disk already. So what it said is kept beside that code, and asked for
again when the processor or the library is another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

from .cache import Cache

#: what begins the lines by which Linux tells of processors that LLVM would tell apart
_TELLING = ("vendor_id", "cpu family", "model", "stepping", "flags",                # x86
            "Features", "CPU implementer", "CPU variant", "CPU part", "CPU revision")   # ARM
_SAYS_ALL = ("flags", "Features")   # without one of these nothing is known of a processor
_CPUINFO = "/proc/cpuinfo"
#: so many bytes tell of the first processor, and of all kinds where kinds are mixed
_ENOUGH = 8192


class Processor(NamedTuple):
    """What decides which code LLVM makes: its own version, and the machine."""

    version: str
    triple: str
    cpu: str
    features: str

    @property
    def has(self) -> frozenset[str]:
        """The features that are there."""
        return frozenset(f[1:] for f in self.features.split(",") if f.startswith("+"))


def identity(library: str | None) -> str | None:
    """What LLVM's answer depends on, where that can be known without asking it."""
    if library is None:
        return None
    try:
        with open(_CPUINFO, "rb", buffering=0) as file:
            lines = file.read(_ENOUGH).decode(errors="replace").splitlines()
        stat = os.stat(library)
    except OSError:
        return None
    told = [line for line in dict.fromkeys(lines) if line.startswith(_TELLING)]
    if not any(line.startswith(_SAYS_ALL) for line in told):
        return None
    return "\n".join([sys.platform, os.uname().machine, library, str(stat.st_size),
                      str(stat.st_mtime_ns), *told])


def known(library: str | None, ask: Callable[[], Processor]) -> Processor:
    """This machine's processor; `ask` is called only if nobody has asked before."""
    who = identity(library)
    if who is None:
        return ask()
    kept = Cache("processor")
    key = kept.key(who)
    said = (kept.get(key) or b"").decode(errors="replace").split("\n")
    if len(said) == len(Processor._fields):
        return Processor(*said)
    found = ask()
    kept.put(key, "\n".join(found).encode())
    return found
