"""Pictures without a library: a canvas of pixels, lines, boxes, small letters, and a PNG writer."""

from __future__ import annotations

import struct
import zlib

import numpy

Colour = tuple[int, int, int]

#: letters of 3 by 5 dots: five octal digits, from the top row to the bottom one
GLYPHS = {
    "0": 0o75557, "1": 0o26227, "2": 0o71747, "3": 0o71317, "4": 0o55711, "5": 0o74717,
    "6": 0o74757, "7": 0o71122, "8": 0o75757, "9": 0o75717, "A": 0o25755, "B": 0o65656,
    "C": 0o34443, "D": 0o65556, "E": 0o74647, "F": 0o74644, "G": 0o34553, "H": 0o55755,
    "I": 0o72227, "J": 0o11152, "K": 0o55655, "L": 0o44447, "M": 0o57755, "N": 0o65555,
    "O": 0o25552, "P": 0o65644, "Q": 0o25563, "R": 0o65655, "S": 0o34216, "T": 0o72222,
    "U": 0o55557, "V": 0o55552, "W": 0o55775, "X": 0o55255, "Y": 0o55222, "Z": 0o71247,
    ".": 0o00002, ",": 0o00024, ":": 0o02020, "%": 0o51245, "-": 0o00700, "/": 0o11244,
    "+": 0o02720, "=": 0o07070, "(": 0o24442, ")": 0o21112,
}  # fmt: skip


class Canvas:
    """Pixels to draw on; what lies outside is not drawn."""

    def __init__(self, width: int, height: int, paper: Colour) -> None:
        self.pixels = numpy.empty((height, width, 3), numpy.uint8)
        self.pixels[:] = paper

    def box(self, x: int, y: int, width: int, height: int, colour: Colour) -> None:
        self.pixels[max(0, y):max(0, y + height), max(0, x):max(0, x + width)] = colour

    def line(self, x0: int, y0: int, x1: int, y1: int, colour: Colour) -> None:
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for k in range(steps + 1):
            self.box(round(x0 + (x1 - x0) * k / steps), round(y0 + (y1 - y0) * k / steps), 1, 1,
                     colour)

    def text(self, x: int, y: int, words: str, colour: Colour, size: int = 1) -> None:
        """Capital letters, digits and a few signs; others leave a gap."""
        for letter in words:
            dots = GLYPHS.get(letter, 0)
            for row in range(5):
                for column in range(3):
                    if dots >> (3 * (4 - row) + 2 - column) & 1:
                        self.box(x + column * size, y + row * size, size, size, colour)
            x += 4 * size

    def picture(self, x: int, y: int, pixels: numpy.ndarray, cell: int = 1) -> None:
        """Another picture, each of its pixels `cell` wide."""
        for row, line in enumerate(pixels):
            for column, colour in enumerate(line):
                red, green, blue = map(int, colour)
                self.box(x + column * cell, y + row * cell, cell, cell, (red, green, blue))


def png(pixels: numpy.ndarray) -> bytes:
    """A PNG file of (height, width, 3) bytes."""
    height, width, channels = pixels.shape
    if channels != 3 or pixels.dtype != numpy.uint8:
        raise ValueError(f"png: (height, width, 3) bytes are needed, not {pixels.dtype} of "
                         f"shape {pixels.shape}")
    rows = numpy.zeros((height, 1 + 3 * width), numpy.uint8)  # each begins with filter 0: none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return (struct.pack(">I", len(data)) + kind + data
            + struct.pack(">I", zlib.crc32(kind + data)))
