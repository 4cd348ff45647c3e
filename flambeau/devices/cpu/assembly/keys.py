"""Keys: unsigned integers that order as elements do, NaN last; equal elements have equal keys."""

from __future__ import annotations

from .writer import Function, Value, wide

#: dtype -> (in memory, kind, the largest key's exponent bits: what infinity looks like)
KINDS = {
    "bool":     ("i8",  "u", 0),
    "uint8":    ("i8",  "u", 0),
    "int8":     ("i8",  "i", 0),
    "int16":    ("i16", "i", 0),
    "int32":    ("i32", "i", 0),
    "int64":    ("i64", "i", 0),
    "uint16":   ("i16", "u", 0),
    "uint32":   ("i32", "u", 0),
    "uint64":   ("i64", "u", 0),
    "float16":  ("i16", "f", 0x7C00),
    "bfloat16": ("i16", "f", 0x7F80),
    "float32":  ("i32", "f", 0x7F800000),
    "float64":  ("i64", "f", 0x7FF0000000000000),
}
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}


class Keys:
    """How elements of a dtype become keys, and back."""

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.memory, self.kind, self.infinite = KINDS[dtype]
        self.bits = BITS[self.memory]
        self.type = "i64" if self.bits == 64 else "i32"
        self.type_bits = BITS[self.type]
        self.lowest = -(1 << (self.bits - 1))
        #: the key of NaN in rising order
        self.nan = (1 << self.bits) - 1

    def of(self, value: Value) -> Value:
        """Keys of elements given as bits, as wide as self.type."""
        if self.kind == "u":
            return value.to(self.type)
        if self.kind == "i":
            return (value ^ self.lowest).to(self.type)
        sign = value.sar(self.bits - 1)
        key = value ^ (sign | self.lowest)
        size = value & (-self.lowest - 1)
        key = (size == 0).pick(self.lowest, key)
        return size._compare("ugt", "", self.infinite).pick(-1, key).to(self.type)

    def lost(self, value: Value) -> Value:
        """Whether a key does not say which element it is of: -0 and NaN."""
        size = value & (-self.lowest - 1)
        return (value == self.lowest) | size._compare("ugt", "", self.infinite)

    def back(self, key: Value) -> Value:
        """The bits of the element, where nothing is lost."""
        value = key.to(self.memory)
        if self.kind == "u":
            return value
        if self.kind == "i":
            return value ^ self.lowest
        sign = value.sar(self.bits - 1)
        return value ^ ((sign ^ -1) | self.lowest)

    def is_nan(self, key: Value, flip: Value | None = None) -> Value:
        """Whether a key (turned round by flip, if given) is NaN's."""
        plain = key if flip is None else key ^ flip
        return plain == (self.nan if self.type == "i32" else -1)

    def turned(self, f: Function, flip: Value, lanes: int = 1) -> Value:
        """What turns the order round when combined with keys: ones in the key's bits, or 0."""
        mask = flip if self.type == "i64" else flip.to("i32") & ((1 << self.bits) - 1)
        return mask.spread(lanes)

    def load(self, place: Value, i, lanes: int = 1) -> Value:
        return place.load(wide(self.memory, lanes), i)
