"""Plans of resampling: the tables of `interpolation` as words for generated code."""

from __future__ import annotations

from math import prod

from ...core.lazily import np
from .assembly.conv_words import address_of, table
from .assembly.resample_words import RESAMPLE, SAME, TABLES, TWICE
from .assembly.tile_sizes import width_of
from .foundry import machine_code
from .interpolation import Table, table_of, turned_table_of
from .remember import remembered

#: dtype name -> element of generated code
ELEMENTS = {"float32": "float", "float64": "double"}
#: elements seen that are worth a range of their own
_WORTH = 1 << 14


class Plan:
    """Words, the tables they point to, and the function that reads them."""

    def __init__(self, dtype_name: str, planes: int, tables: list[Table]):
        element = ELEMENTS[dtype_name]
        self.function = machine_code("resample", ("resample",), element)["resample"]
        self.arrays: list = []
        one = Table(np.zeros((1, 1), np.int64), None, 1)
        deep, down, across = [one] * (3 - len(tables)) + tables
        words = {"z_taps": len(deep.indices), "y_taps": len(down.indices),
                 "x_taps": len(across.indices)}
        for letter, along in (("z", deep), ("y", down)):
            words[f"{letter}_index"] = self._keep(along.indices.T.astype(np.int64))
            words[f"{letter}_weight"] = self._keep(_weights(along).T.astype(dtype_name))
        width = width_of(element)
        padded = -(-across.out // width) * width
        fill = ((0, 0), (0, padded - across.out))
        words["x_index"] = self._keep(np.pad(across.indices.astype(np.int64), fill))
        words["x_weight"] = self._keep(np.pad(_weights(across).astype(dtype_name), fill))
        sizes, outs = [t.size for t in (deep, down, across)], [t.out for t in (deep, down, across)]
        words |= dict(zip("d h w od oh ow".split(), [*sizes, *outs], strict=True))
        seen = prod(outs) * max(1, words["x_taps"]) + outs[0] * outs[1] * sizes[2] * (
            words["z_taps"] * words["y_taps"])
        self.words = table(RESAMPLE.values(
            planes=planes, grain=max(1, _WORTH // max(1, seen)), padded=padded,
            across=_kind(across), plain=int(deep.copies and down.copies), **words))
        self.work = planes * seen

    def _keep(self, array) -> int:
        array = np.ascontiguousarray(array)
        self.arrays.append(array)
        return array.ctypes.data

    def run(self, out: int, source: int) -> None:
        self.function(out, source, 0, address_of(self.words), self.work)


def _weights(along: Table):
    return np.ones(along.indices.shape) if along.weights is None else along.weights


def _kind(across: Table) -> int:
    if across.still:
        return SAME
    doubled = across.copies and across.out == 2 * across.size and bool(
        (across.indices[0] == np.arange(across.out) // 2).all())
    return TWICE if doubled else TABLES


@remembered
def resample_plan(dtype_name, planes, sizes, outs, mode, align_corners, scales, back) -> Plan:
    """From `sizes` to `outs`, or with `back` the transpose, from `outs` to `sizes`."""
    kind = np.float64 if dtype_name == "float64" else np.float32
    maker = turned_table_of if back else table_of
    tables = [maker(mode, size, out, align_corners, scale, kind) for size, out, scale in
              zip(sizes, outs, scales or [None] * len(sizes), strict=True)]
    return Plan(dtype_name, planes, tables)
