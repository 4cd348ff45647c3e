"""Small products whose sizes and strides are all known: the code of one does nothing but multiply.

    void @name(ptr c, ptr a, ptr b[, ptr d], i64 words)

What product.py plans, and drive.py finds out from words, takes longer than such a product itself.
Here sizes are constants: what is read again stays in registers, and nothing is packed. Every
element of C is the same chain of sums in k as there, so it has the same bits. A compiled program,
which lives long enough for that, calls this instead.
"""

from __future__ import annotations

from ..compile import load_or_build
from ..objects import cache
from .kernels import family
from .small_way import DTYPES, Way, ways

#: multiply-adds of a product that is small
WORK = 1 << 15
#: words of a product that its code depends on
_SAID = ("m", "n", "k", "a_row", "a_step", "b_step", "b_lane", "c_row", "d_row", "kind", "alpha",
         "beta", "c_size", "turned")


def small_product(words: dict[str, int], added: bool):
    """The callable of a product that these words describe, or None if it is not small."""
    m, n, k, size = (words[name] for name in ("m", "n", "k", "c_size"))
    if words["batch"] != 1 or m * n * k > WORK or size not in DTYPES or words["depth"] != k:
        return None
    sums = family("dot", DTYPES[size])
    if (words["tile_rows"], words["tile_columns"]) == (sums.rows, sums.columns):
        return None  # which adds them up in another order
    way = min(ways(words), key=Way.cost, default=None)
    if way is None:
        return None
    said = {name: words[name] for name in _SAID}
    key = cache().key(f"small product {said} {added}")
    name = f"small_{m}x{k}x{n}_{key[:8]}"

    def text() -> str:
        from .small_text import small_text  # not needed where all code is on disk already

        return small_text(name, way, words, added)

    return load_or_build(key, name, text)
