"""Words in memory by name: what a plan tells generated code."""

from __future__ import annotations

from array import array
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .writer import Function, Value


class Record:
    """So many words with names, written by Python and read by generated code."""

    def __init__(self, names: str):
        self.names = names.split()
        self.place = {name: i for i, name in enumerate(self.names)}
        self._in_order = itemgetter(*self.names)

    def __len__(self) -> int:
        return len(self.names)

    def values(self, **given: int) -> list[int]:
        """The words in order; every name must be given."""
        if given.keys() != self.place.keys():
            raise ValueError(f"words that do not match: {sorted(set(given) ^ set(self.names))}")
        return list(self._in_order(given))

    def read(self, f: Function, words: Value, names: str) -> list[Value]:
        return [words.load("i64", self.place[name]) for name in names.split()]


def table(values) -> array:
    """Integers in memory that stays where it is while somebody holds this."""
    return array("q", values)


def address_of(values: array) -> int:
    return values.buffer_info()[0]


#: how a source is copied into a frame: sizes and strides of the source, strides of the frame, how
#: much is put in front, and into how many runs columns are dealt out
FRAME = Record("""planes channels d h w sn sc sd sh sw tn tc td th pd ph pw fd fh pitch step split
    grain""")

#: how results are computed: by tiles, one or three rows at a time, by squares of two by two
TILES, ONE, THREE, SQUARES = 0, 1, 3, 4

#: one phase of a result: a product of packed weights with packed windows. `own` are the elements
#: of a plane's frame where each plane gets its own, `wide` the tiles of squares in a block; `three`
#: says that taps are three by three, `near` that weights become squares where they are needed
PHASE = Record("""groups rows inner kc cols od oh ow in_n in_g in_d in_h out_0 out_n out_g out_m
    out_d out_h out_w koff wk wg wr panels blocks splits per grain pack_grain own
    three wide near""")

#: a result: its frame if any, and its phases; bytes of an element; a function that finishes pieces
#: of it, or 0, and what that is given (see conv_finish)
RESULT = Record("""framed weights bias phases bytes finish finish_with""")

#: the weights from data and result
WEIGHT = Record("""framed groups rows inner cols od oh ow in_n in_g in_d in_h koff turned partial
    panels blocks per parts part_cols grain turn_grain join_grain own""")

#: weights by squares: squares of a unit, how many units there are, and how many are a round
ROUND = Record("unit units round")
