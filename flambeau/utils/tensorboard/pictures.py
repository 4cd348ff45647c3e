"""Arrays as pictures: axes put in order, many in a grid, boxes drawn in, packed as PNG."""

import struct
import zlib

import numpy

BOX_COLOUR = (255, 0, 0)


def png(pixels):
    """The bytes of a PNG file for uint8 of shape (height, width, 1, 3 or 4)."""
    height, width, channels = pixels.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = numpy.zeros((height, 1 + width * channels), numpy.uint8)  # each row opens with a 0
    rows[:, 1:] = pixels.reshape(height, -1)

    def chunk(name, content):
        return (struct.pack(">I", len(content)) + name + content
                + struct.pack(">I", zlib.crc32(name + content)))

    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
            + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)) + chunk(b"IEND", b""))


def in_order(array, formats):
    """Any order of axes as (height, width, channels); a batch becomes a grid."""
    formats = formats.upper()
    if len(set(formats)) != len(formats) or set(formats) - set("NCHW"):
        raise ValueError(f"dataformats: '{formats}' should be an order of some of N, C, H and W")
    if array.ndim != len(formats):
        raise ValueError(f"dataformats '{formats}' does not fit an image of shape {array.shape}")
    if len(formats) == 4:
        return _three_channels(_grid(array.transpose([formats.index(c) for c in "NHWC"])))
    if len(formats) == 3:
        return _three_channels(array.transpose([formats.index(c) for c in "HWC"]))
    return numpy.stack([array.transpose([formats.index(c) for c in "HW"])] * 3, 2)


def _three_channels(array):
    return numpy.concatenate([array] * 3, 2) if array.shape[2] == 1 else array


def _grid(images, columns=8):
    """A batch side by side, `columns` in a row."""
    count, height, width, channels = images.shape
    columns = min(count, columns)
    rows = -(-count // columns)
    sheet = numpy.zeros((rows * height, columns * width, channels), images.dtype)
    for k, each in enumerate(images):
        y, x = k // columns * height, k % columns * width
        sheet[y:y + height, x:x + width] = each
    return sheet


def as_bytes(array):
    """Numbers between 0 and 1, or uint8, as uint8."""
    scale = 1 if array.dtype == numpy.uint8 else 255
    return (array.astype(numpy.float32) * scale).clip(0, 255).astype(numpy.uint8)


def rescaled(pixels, factor):
    """Larger or smaller, by repeating or leaving out."""
    if factor == 1:
        return pixels
    height, width = pixels.shape[:2]
    rows = (numpy.arange(int(height * factor)) / factor).astype(int).clip(0, height - 1)
    columns = (numpy.arange(int(width * factor)) / factor).astype(int).clip(0, width - 1)
    return pixels[rows][:, columns]


def with_boxes(pixels, boxes):
    """The outlines of boxes (left, top, right, bottom) drawn in."""
    pixels = pixels.copy()
    height, width = pixels.shape[:2]
    for box in boxes:
        left, right = (int(min(max(x, 0), width - 1)) for x in (box[0], box[2]))
        top, bottom = (int(min(max(y, 0), height - 1)) for y in (box[1], box[3]))
        for y in (top, bottom):
            pixels[y, left:right + 1, :3] = BOX_COLOUR
        for x in (left, right):
            pixels[top:bottom + 1, x, :3] = BOX_COLOUR
    return pixels


def of_figure(figure):
    """A matplotlib figure as (height, width, 3) bytes."""
    canvas = figure.canvas
    if not hasattr(canvas, "buffer_rgba"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return numpy.asarray(canvas.buffer_rgba())[:, :, :3]
