"""Protocol buffers on the wire: messages written as what they are, numbers of fields first.

A message is bytes; the functions give one field each, to be joined.
"""

import struct

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(value):
    """A number in groups of 7 bits; a negative one as 64 bits."""
    value &= (1 << 64) - 1
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _key(number, kind):
    return varint(number << 3 | kind)


def integer(number, value):
    """A field with an integer, an enum or a truth value."""
    return _key(number, VARINT) + varint(int(value))


def single(number, value):
    """A field with a float of 32 bits."""
    return _key(number, FIXED32) + struct.pack("<f", value)


def double(number, value):
    """A field with a float of 64 bits."""
    return _key(number, FIXED64) + struct.pack("<d", value)


def message(number, *parts):
    """A field with a message, bytes, or text."""
    content = b"".join(p.encode() if isinstance(p, str) else p for p in parts)
    return _key(number, BYTES) + varint(len(content)) + content


def doubles(number, values):
    """A field with many floats of 64 bits."""
    return message(number, struct.pack(f"<{len(values)}d", *values))


def singles(number, values):
    """A field with many floats of 32 bits."""
    return message(number, struct.pack(f"<{len(values)}f", *values))


def fields(content):
    """(number, value) of every field of a message: integers, 4 or 8 raw bytes, or bytes."""
    at = 0

    def read_varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(content):
        key = read_varint()
        kind = key & 7
        if kind == VARINT:
            yield key >> 3, read_varint()
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(kind)
        size = read_varint() if size is None else size
        yield key >> 3, bytes(content[at:at + size])
        at += size
