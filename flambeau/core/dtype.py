"""The dtypes, the promotion lattice, and the six dtype rules.

A dtype is a singleton. `promote` joins two dtypes in torch's lattice; `result_type` joins
operands, where a Python number weighs less than a 0-d tensor, and that less than any other.
"""

from __future__ import annotations

from .lazily import np

_KIND_ORDER = "biufc"


class dtype:
    """What one element is: its kind (bool, int, unsigned, float, complex) and its size."""

    __slots__ = ("carrier", "compute", "itemsize", "kind", "name", "rank")
    __module__ = "torch"

    name: str
    kind: str
    itemsize: int
    rank: int
    carrier: str  # numpy's name of what holds its elements
    compute: dtype

    @property
    def numpy(self) -> np.dtype:
        """numpy's dtype of the same bytes."""
        return np.dtype(self.carrier)

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self):
        return (by_name, (self.name,))

    @property
    def is_floating_point(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_signed(self) -> bool:
        return self.kind in "ifc"

    def to_real(self) -> dtype:
        """The dtype of the real and imaginary parts."""
        return _REAL.get(self, self)

    def to_complex(self) -> dtype:
        """The complex dtype whose parts are of this dtype."""
        return _COMPLEX.get(self, self)


def _define(name: str, kind: str, itemsize: int, rank: int, carrier: str) -> dtype:
    made = object.__new__(dtype)
    made.name, made.kind, made.itemsize, made.rank = name, kind, itemsize, rank
    made.carrier, made.compute = carrier, made
    return made


#                      name         kind bytes rank numpy's carrier
bool_ = _define("bool",       "b", 1,  0, "bool")
uint8 = _define("uint8",      "u", 1,  1, "uint8")
int8 = _define("int8",        "i", 1,  2, "int8")
int16 = _define("int16",      "i", 2,  3, "int16")
int32 = _define("int32",      "i", 4,  4, "int32")
int64 = _define("int64",      "i", 8,  5, "int64")
uint16 = _define("uint16",    "u", 2,  5, "uint16")
uint32 = _define("uint32",    "u", 4,  5, "uint32")
uint64 = _define("uint64",    "u", 8,  5, "uint64")
float16 = _define("float16",  "f", 2,  6, "float16")
bfloat16 = _define("bfloat16", "f", 2, 6, "uint16")
float32 = _define("float32",  "f", 4,  7, "float32")
float64 = _define("float64",  "f", 8,  8, "float64")
complex32 = _define("complex32", "c", 4, 8, "uint32")  # has a name, and no tensors
complex64 = _define("complex64", "c", 8, 9, "complex64")
complex128 = _define("complex128", "c", 16, 10, "complex128")

# Half types are stored as such and computed in float32.
float16.compute = bfloat16.compute = float32

#: what holds counts, tokens and hashes: promoted to floating point only
LONE = frozenset((uint16, uint32, uint64))
ALL = (bool_, uint8, int8, int16, int32, int64, uint16, uint32, uint64,
       float16, bfloat16, float32, float64, complex64, complex128)
_BY_NAME = {d.name: d for d in ALL}
_BY_CARRIER = {d.carrier: d for d in ALL if d is not bfloat16}
ALIASES = {
    "half": float16, "float": float32, "double": float64, "short": int16, "int": int32,
    "long": int64, "complex32": complex32, "chalf": complex32,
    "cfloat": complex64, "cdouble": complex128,
}
_REAL = {complex64: float32, complex128: float64}
_COMPLEX = {float32: complex64, float64: complex128, float16: complex64, bfloat16: complex64}


#: what torch's messages call dtypes
SPOKEN = {
    "bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int",
    "int64": "Long", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    "float16": "Half", "bfloat16": "BFloat16", "float32": "Float", "float64": "Double",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}


def spoken(given: dtype) -> str:
    """What torch's messages call a dtype."""
    return SPOKEN[given.name]


_SHORT = {d: name for name, d in ALIASES.items()}


def short_name(given: dtype) -> str:
    """torch's other name of a dtype (float, double, long ...), or the only one."""
    return _SHORT.get(given, given.name)


def by_name(name: str) -> dtype:
    return _BY_NAME[name]


_BY_NUMPY: dict = {}


def of_numpy(given: np.dtype) -> dtype | None:
    """The dtype of a numpy dtype in native byte order, or None."""
    found = _BY_NUMPY.get(given)
    if found is None and given.isnative:
        found = _BY_NUMPY[given] = _BY_CARRIER.get(given.name)
    return found


def from_numpy(given: np.dtype) -> dtype:
    """The dtype that stores a numpy dtype's elements, or TypeError."""
    given = np.dtype(given)
    found = of_numpy(given) or _BY_CARRIER.get(given.name)
    if found is None:
        supported = ", ".join(sorted(_BY_CARRIER))
        raise TypeError(
            f"can't convert np.ndarray of type {given}. The only supported types are: {supported}."
        )
    return found


class _Default:
    """The dtype of new floating point tensors, as set_default_dtype leaves it."""

    value = float32


def default_float() -> dtype:
    return _Default.value


def set_default_float(value: dtype) -> None:
    if value.kind != "f":
        raise TypeError(f"only floating-point types are supported as the default type, got {value}")
    _Default.value = value


# -- promotion -------------------------------------------------------------------------------


def promote(a: dtype, b: dtype) -> dtype:
    """The smallest dtype both convert to, in torch's lattice."""
    if a is b:
        return a
    if a in LONE or b in LONE:
        other = b if a in LONE else a
        if other.kind == "f":
            return other
        raise RuntimeError("Promotion for uint16, uint32, uint64 types is not supported, attempted "
                           f"to promote {spoken(a)} and {spoken(b)}; convert one of them first")
    low, high = (a, b) if a.rank <= b.rank else (b, a)
    if high.kind == "c":
        return complex128 if low is float64 else high
    if high.kind == "f":
        return float32 if {low, high} == {float16, bfloat16} else high
    if high is int8 and low is uint8:
        return int16
    return high


#: category of a kind: a lower category never changes a higher one's dtype
CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def of_scalar(value) -> dtype:
    """The dtype a Python number has when nothing outweighs it."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return int64
    if isinstance(value, float):
        return default_float()
    if isinstance(value, complex):
        return default_float().to_complex()
    raise TypeError(f"expected a number, got {type(value).__name__}")


def result_type(dims: list[dtype], zeros: list[dtype], numbers: list[dtype]) -> dtype:
    """Join tensors with dimensions, 0-d tensors and Python numbers, in falling weight."""
    result = None
    for group in (dims, zeros, numbers):
        joined = None
        for member in group:
            joined = member if joined is None else promote(joined, member)
        if joined is None:
            continue
        if result is None:
            result = joined
        elif CATEGORY[joined.kind] > CATEGORY[result.kind]:
            # A complex number beside float64 tensors must not lose precision.
            widens = joined.kind == "c" and result.kind == "f"
            result = promote(result, joined) if widens else joined
    assert result is not None
    return result


# -- the dtype rules: (dtype of operands) -> (dtype of result) ----------------------------------

SAME, FLOAT, BOOL, SUM, INDEX, REAL = "SAME", "FLOAT", "BOOL", "SUM", "INDEX", "REAL"
COMPLEX = "COMPLEX"


def _to_float(d: dtype) -> dtype:
    return d if d.kind in "fc" else default_float()


def _to_sum(d: dtype) -> dtype:
    return d if d.kind in "fc" else int64


RULES = {
    SAME: lambda d: d,
    FLOAT: _to_float,
    BOOL: lambda d: bool_,
    SUM: _to_sum,
    INDEX: lambda d: int64,
    REAL: lambda d: d.to_real(),
    COMPLEX: lambda d: d.to_complex(),
}


def converted_bits(target: dtype) -> int:
    """How wide the integers are that floats become on their way to an integer dtype."""
    return 64 if target in (int64, uint32, uint64) else 32


def operating(rule: str, d: dtype) -> dtype:
    """The dtype an op's elements are converted to before its body sees them."""
    if rule == FLOAT:
        return _to_float(d)
    return _to_sum(d) if rule == SUM else d


def can_cast(source: dtype, target: dtype) -> bool:
    """Whether a result of dtype `source` may be written into a tensor of dtype `target`."""
    if source.kind == "c" and target.kind != "c":
        return False
    if source.kind == "f" and target.kind in "biu":
        return False
    return source.kind == "b" or target.kind != "b"


# -- limits ------------------------------------------------------------------------------------


#: of a floating point dtype: bits of the fraction and of the exponent, and decimal digits
_FORMATS = {"bfloat16": (7, 8, 2), "float16": (10, 5, 3), "float32": (23, 8, 6),
            "float64": (52, 11, 15)}


class finfo:
    """Limits of a floating point dtype.

    >>> finfo(float32).eps
    1.1920928955078125e-07
    """

    __slots__ = ("bits", "dtype", "eps", "max", "min", "resolution", "smallest_normal",
                 "smallest_subnormal", "tiny")

    def __init__(self, type: dtype | None = None):
        given = default_float() if type is None else type
        if given.kind not in "fc":
            raise TypeError(f"torch.finfo() requires a floating point input type, got {given}. "
                            "Use torch.iinfo to handle 'torch.finfo'")
        real = given.to_real()
        self.dtype, self.bits = real.name, real.itemsize * 8
        fraction, exponent, digits = _FORMATS[real.name]
        largest = 2 ** (exponent - 1) - 1
        self.eps, self.resolution = 2.0**-fraction, float(f"1e-{digits}")
        self.max, self.tiny = (2 - self.eps) * 2.0**largest, 2.0 ** (1 - largest)
        self.smallest_subnormal = self.tiny * self.eps
        self.min, self.smallest_normal = -self.max, self.tiny

    def __repr__(self) -> str:
        shown = " ".join(f"{k}={getattr(self, k):g}," for k in
                         ("resolution", "min", "max", "eps", "smallest_normal", "tiny"))
        return f"finfo({shown} dtype={self.dtype})"


class iinfo:
    """Limits of an integer dtype.

    >>> iinfo(int8).max
    127
    """

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, type: dtype):
        if type.kind not in "iu":
            raise TypeError(f"torch.iinfo() requires an integer input type, got {type}. "
                            "Use torch.finfo to handle 'torch.iinfo'")
        self.dtype, self.bits = type.name, type.itemsize * 8
        signed = type.kind == "i"
        self.min, self.max = -signed << (self.bits - 1), (1 << (self.bits - signed)) - 1

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
