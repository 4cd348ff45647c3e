"""What every op of the registry computes on a few samples, as arrays: run on two devices, compared.

Run as a script it writes the results of the device that FLAMBEAU_DEVICE names to a file.
"""

from __future__ import annotations

import sys
import zlib

import numpy as np

import flambeau
from flambeau.ops.declare import Pointwise, Reduction, registry

FLOATS, WHOLES, TRUTHS = "float32", "int64", "bool"


def pointwise_ops():
    return {key: op for key, op in registry.items()
            if isinstance(op, Pointwise) and not key.startswith(("to_", "constant"))}


def reductions():
    return {key: op for key, op in registry.items() if isinstance(op, Reduction)}


def kinds(op) -> tuple[str, ...]:
    """An op that only other ops use sees what those give it: floating point."""
    public = op.function_form or op.method
    return (FLOATS, WHOLES, TRUTHS) if public else (FLOATS,)


def layouts(array: np.ndarray):
    """name -> a tensor of the same elements, laid out in memory in some way."""
    whole = flambeau.from_numpy(np.ascontiguousarray(array))
    padded = np.zeros((array.shape[0] + 1, array.shape[1] * 2 + 3), array.dtype)
    padded[1:, 3::2] = array
    return {
        "contiguous": whole,
        "transposed": flambeau.from_numpy(np.ascontiguousarray(array.T)).t(),
        "sliced": flambeau.from_numpy(padded)[1:, 3::2],
        "row": whole[:1].expand(*array.shape),
        "column": whole[:, :1].expand(*array.shape),
        "0-d": whole[1, 2],
        "empty": whole[:0],
    }


def values(name: str, k: int, kind: str) -> np.ndarray:
    """Elements for operand k of an op: near zero, far from it, and at whole numbers."""
    rng = np.random.default_rng(zlib.crc32(f"{name} {k} {kind}".encode()))
    if kind == TRUTHS:
        return rng.random((5, 19)) < 0.5
    if kind == WHOLES:
        return rng.integers(1, 6, (5, 19))
    found = rng.normal(size=(5, 19)).astype(np.float32)
    found[0] *= 30
    found[1, ::3] = np.round(found[1, ::3])
    return found


def pointwise_results():
    for key, op in pointwise_ops().items():
        for kind in kinds(op):
            operands = [layouts(values(key, k, kind)) for k in range(len(op.operands))]
            for layout in operands[0]:
                second = "contiguous" if layout in ("row", "column", "0-d") else layout
                args = [operands[0][layout], *(o[second] for o in operands[1:])]
                try:
                    yield f"{key} {kind} {layout}", op.run(*args)
                except (RuntimeError, TypeError, NotImplementedError):
                    break


def reduction_results():
    for key, op in reductions().items():
        for kind in kinds(op):
            for layout, x in layouts(values(key, 0, kind)).items():
                for dim in (None, 0, -1):
                    if layout in ("0-d", "empty") and (dim is not None or not op.empty):
                        continue
                    try:
                        yield f"{key} {kind} {layout} {dim}", op.run(x, dim)
                    except (RuntimeError, TypeError, IndexError, OverflowError):
                        break


def arrays() -> dict[str, np.ndarray]:
    found = {}
    for source in (pointwise_results(), reduction_results()):
        for name, result in source:
            parts = result if isinstance(result, tuple) else (result,)
            for i, part in enumerate(parts):
                found[f"{name} #{i}"] = np.array(part.detach().numpy())
    return found


if __name__ == "__main__":
    np.savez(sys.argv[1], **arrays())
