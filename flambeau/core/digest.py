"""Digests: what machine code and programs are known by on disk.

`hashlib` would load OpenSSL beside it, which is 3 MB of memory and 2 ms of every start.
"""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:     # a Python that has it elsewhere
    from hashlib import blake2b

SIZE = 32


def digest(*pieces: bytes) -> blake2b:
    """A digest of SIZE bytes; more may be added to it."""
    made = blake2b(digest_size=SIZE)
    for piece in pieces:
        made.update(piece)
    return made
