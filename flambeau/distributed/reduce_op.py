"""How values of ranks become one: ReduceOp, and which MPI operation and type does it."""

from __future__ import annotations

import enum
from typing import Any

import flambeau


class ReduceOp(enum.IntEnum):
    """What a reduction computes, element by element."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]

#: op -> MPI's name of it; an average is a sum divided afterwards
OPERATIONS = {
    ReduceOp.SUM:     "SUM",
    ReduceOp.AVG:     "SUM",
    ReduceOp.PRODUCT: "PROD",
    ReduceOp.MIN:     "MIN",
    ReduceOp.MAX:     "MAX",
    ReduceOp.BAND:    "BAND",
    ReduceOp.BOR:     "BOR",
    ReduceOp.BXOR:    "BXOR",
}  # fmt: skip

#: dtype -> MPI's type, and the dtype that is computed in where MPI has none
TYPES = {
    flambeau.float32:    ("FLOAT",            flambeau.float32),
    flambeau.float64:    ("DOUBLE",           flambeau.float64),
    flambeau.float16:    ("FLOAT",            flambeau.float32),
    flambeau.bfloat16:   ("FLOAT",            flambeau.float32),
    flambeau.int8:       ("INT8_T",           flambeau.int8),
    flambeau.uint8:      ("UINT8_T",          flambeau.uint8),
    flambeau.int16:      ("INT16_T",          flambeau.int16),
    flambeau.int32:      ("INT32_T",          flambeau.int32),
    flambeau.int64:      ("INT64_T",          flambeau.int64),
    flambeau.uint16:     ("UINT16_T",         flambeau.uint16),
    flambeau.uint32:     ("UINT32_T",         flambeau.uint32),
    flambeau.uint64:     ("UINT64_T",         flambeau.uint64),
    flambeau.complex64:  ("C_FLOAT_COMPLEX",  flambeau.complex64),
    flambeau.complex128: ("C_DOUBLE_COMPLEX", flambeau.complex128),
    flambeau.bool:       ("UINT8_T",          flambeau.uint8),
}  # fmt: skip

BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
ORDER = (ReduceOp.MIN, ReduceOp.MAX)

#: on bools a sum is "any" and a product "all"
OF_BOOLS = {ReduceOp.SUM: ReduceOp.MAX, ReduceOp.PRODUCT: ReduceOp.MIN}


class Reduction:
    """One ReduceOp on one dtype: what MPI is given."""

    def __init__(self, mpi: Any, op: Any, dtype: Any, name: str, size: int) -> None:
        op = ReduceOp(op)
        if dtype not in TYPES:
            raise RuntimeError(f"{name}: tensors of {dtype} cannot be reduced")
        if op == ReduceOp.PREMUL_SUM:
            raise ValueError(f"{name}: ReduceOp.PREMUL_SUM needs its factor, which only NCCL takes")
        if dtype == flambeau.bool:
            op = OF_BOOLS.get(op, op)
        if op in BITS and (dtype.is_floating_point or dtype.is_complex):
            raise RuntimeError(f"{name}: Cannot use ReduceOp.{op.name} with non-integral dtype "
                               f"{dtype}")
        if op in ORDER and dtype.is_complex:
            raise ValueError(f"{name} does not support {op.name} on complex tensors")
        if op == ReduceOp.AVG and not (dtype.is_floating_point or dtype.is_complex):
            raise RuntimeError(f"{name}: ReduceOp.AVG of {dtype} has no whole result")
        kind, self.dtype = TYPES[dtype]
        self.type, self.op = getattr(mpi, kind), getattr(mpi, OPERATIONS[op])
        self.divisor = size if op == ReduceOp.AVG else None
