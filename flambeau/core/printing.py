"""Tensors as text, character by character as torch writes them.

Works on numpy arrays: bfloat16 and float8 values come widened to float32 with their own dtype
name beside them. Only the values that are shown are read, so a strided view costs its edges.
"""

import math
from typing import NamedTuple

from .lazily import np
from .record import Record


class PrintOptions(Record):
    """How numbers and large tensors are shown; `sci_mode=None` decides from the values."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PROFILES = {
    "default": PrintOptions(),
    "short":   PrintOptions(precision=2, edgeitems=2),
    "full":    PrintOptions(threshold=math.inf),
}  # fmt: skip


def changed_options(
    options,
    precision=None,
    threshold=None,
    edgeitems=None,
    linewidth=None,
    profile=None,
    sci_mode=None,
):
    """The options after `set_printoptions` with these arguments; sci_mode always starts afresh."""
    if profile is not None:
        if profile not in PROFILES:
            raise ValueError(
                f"set_printoptions: unknown profile {profile!r}, wanted one of {sorted(PROFILES)}"
            )
        options = PROFILES[profile]
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return options.but(**given, sci_mode=sci_mode)


# -- which values are shown -----------------------------------------------------------------


def is_summarised(shape, options):
    """Whether a tensor of this shape shows only its edges."""
    return math.prod(shape) > options.threshold


def shown_indices(shape, options):
    """For each dimension the indices that are shown: all that needs to be read of a tensor."""
    edge = options.edgeitems if is_summarised(shape, options) else math.inf
    return [
        np.arange(n) if n <= 2 * edge else np.r_[0:edge, n - edge : n].astype(np.intp)
        for n in shape
    ]


def shown_part(array, options):
    """The values that are shown, as an array of the same rank."""
    if not is_summarised(array.shape, options):
        return array
    return array[np.ix_(*shown_indices(array.shape, options))]


# -- one number -----------------------------------------------------------------------------


class NumberStyle(NamedTuple):
    """How the numbers of one tensor are written: the same form for all, padded to one width."""

    spec: str
    point: str
    width: int

    def write(self, value):
        text = format(value, self.spec)
        if self.point and math.isfinite(value):
            text += self.point
        return text.rjust(self.width)


def number_style(values, options):
    """The style for these values, as torch decides it."""
    if values.dtype.kind != "f":
        return NumberStyle("", "", max((len(str(v)) for v in values.ravel().tolist()), default=1))
    with np.errstate(invalid="ignore"):  # a signalling NaN is one all the same
        values = values.astype(np.float64).ravel()
    values = values[np.isfinite(values) & (values != 0)]
    whole = bool(np.all(values == np.ceil(values)))
    scientific = spans_widely(values, whole) if options.sci_mode is None else options.sci_mode
    # Zeros, infinities and nan alone are never scientific, nor do they count for the width.
    spec, point = notation(whole, scientific and values.size > 0, options)
    texts = [format(value, spec) + point for value in values.tolist()]
    return NumberStyle(spec, point, max(map(len, texts), default=1))


def notation(whole, scientific, options):
    """The format of one number, and what follows it."""
    if scientific:
        return f".{options.precision}e", ""
    return (".0f", ".") if whole else (f".{options.precision}f", "")


def spans_widely(values, whole):
    """Whether nonzero finite values are too large, too small or too far apart for fixed point."""
    if not values.size:
        return False
    sizes = np.abs(values)
    low, high = float(sizes.min()), float(sizes.max())
    with np.errstate(over="ignore"):
        ratio = float(np.float64(high) / np.float64(low))
    return ratio > 1000.0 or high > 1.0e8 or (not whole and low < 1.0e-4)


class ComplexStyle(NamedTuple):
    """Real and imaginary parts, each in the style of its own values."""

    real: NumberStyle
    imag: NumberStyle

    @property
    def width(self):
        return self.real.width + self.imag.width + 1

    def write(self, value):
        imag = self.imag.write(value.imag).lstrip() + "j"
        sign = "" if imag[0] in "+-" else "+"
        return self.real.write(value.real) + sign + imag


def style_of(values, options):
    """The style for an array of any dtype."""
    if values.dtype.kind != "c":
        return number_style(values, options)
    return ComplexStyle(number_style(values.real, options), number_style(values.imag, options))


# -- brackets and lines -----------------------------------------------------------------------


def format_values(array, options=PROFILES["default"], indent=0):
    """The nested brackets of an array; lines after the first are indented to stand below it."""
    if not array.size:
        return "[]"
    part = shown_part(array, options)
    style = style_of(part, options)
    summarised = [shown < n for shown, n in zip(part.shape, array.shape, strict=True)]
    return layout(part, style, summarised, indent, options)


def layout(part, style, summarised, indent, options):
    if part.ndim == 0:
        return style.write(part.item())
    if part.ndim == 1:
        return vector_layout(part, style, summarised[0], indent, options)
    rows = [layout(row, style, summarised[1:], indent + 1, options) for row in part]
    if summarised[0]:
        rows.insert(options.edgeitems, "...")
    gap = "," + "\n" * (part.ndim - 1) + " " * (indent + 1)
    return "[" + gap.join(rows) + "]"


def vector_layout(part, style, summarised, indent, options):
    texts = [style.write(value) for value in part.tolist()]
    if summarised:
        texts.insert(options.edgeitems, " ..." if options.edgeitems else "...")
    per_line = max(1, (options.linewidth - indent) // (style.width + 2))
    lines = [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


# -- the whole tensor -----------------------------------------------------------------------

def tensor_text(
    array,
    dtype_name,
    *,
    options=PROFILES["default"],
    default_dtype_name="float32",
    shape=None,
    device=None,
    requires_grad=False,
    grad_fn_name=None,
    prefix="tensor(",
    is_parameter=False,
    extra_suffixes=(),
    dtype_prefix="torch.",
):
    """`repr` of a tensor. `array=None` with a `shape` is a meta tensor: its values are `...`.

    `device` is the text to show, None where torch shows none (the default device).
    `extra_suffixes` come last (`layout=...`, `tangent=...`).
    """
    shape = tuple(array.shape if shape is None else shape)
    body = "..." if array is None else format_values(array, options, len(prefix))
    suffixes = [f"device='{device}'"] if device else []
    unseen = array is None or not array.size
    if array is None or (len(shape) != 1 if unseen else not options.edgeitems):
        suffixes.append(f"size={shape}")
    if shows_dtype(dtype_name, default_dtype_name, unseen):
        suffixes.append(f"dtype={dtype_prefix}{dtype_name}")
    if grad_fn_name:
        suffixes.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    suffixes.extend(extra_suffixes)
    text = with_suffixes(prefix + body, suffixes, len(prefix), options)
    return "Parameter containing:\n" + text if is_parameter else text


def shows_dtype(dtype_name, default_dtype_name, unseen):
    """Whether the values alone would not tell the dtype."""
    told = {default_dtype_name}
    if not unseen:
        default_complex = "complex128" if default_dtype_name == "float64" else "complex64"
        told |= {"int64", "bool", default_complex}
    return dtype_name not in told


def with_suffixes(text, suffixes, indent, options):
    """The text and its suffixes, each on a new line when the current one is full."""
    used = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if used + len(suffix) + 2 > options.linewidth:
            text += ",\n" + " " * indent + suffix
            used = indent + len(suffix)
        else:
            text += ", " + suffix
            used += len(suffix) + 2
    return text + ")"


def scalar_format(array, spec):
    """`format(tensor, spec)` for a tensor of no dimensions: that of its Python number."""
    return format(array.item(), spec)
