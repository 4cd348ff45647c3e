"""The modules of convolutions of one element type: one for each way to compute one."""

from __future__ import annotations

from . import (
    conv_finish,
    conv_frame,
    conv_panel,
    conv_result,
    conv_weight,
    conv_weight_squares,
    conv_winograd,
)
from .conv_words import ONE, SQUARES, THREE, TILES
from .lanes import Lanes, lanes_of
from .writer import Function

#: taps that are summed together where rows are few: their sums fill half the registers
TAPS = 9


def _tiles(lanes: Lanes) -> list[Function]:
    columns, pack = conv_panel.columns(lanes), conv_panel.pack(lanes)
    tile, finish = _tile(lanes), conv_finish.finish_columns(lanes)
    return _result(lanes, conv_result.pack_weights(lanes, lanes.rows),
                   conv_result.product(lanes, tile, columns, pack, finish), columns, pack, tile,
                   finish)


def _squares(lanes: Lanes) -> list[Function]:
    columns, pack = conv_panel.columns(lanes), conv_panel.pack(lanes)
    tile, finish = _tile(lanes), conv_finish.finish_squares(lanes)
    turn = conv_winograd.turn_panel(lanes)
    return _result(lanes, conv_winograd.turn_weights(lanes, turn),
                   conv_winograd.squares(lanes, turn, tile, columns, pack, finish), columns, pack,
                   tile, finish, turn)


def _tile(lanes: Lanes) -> Function:
    return conv_panel.tile(lanes, "panels", 1, lanes.rows)


def _result(lanes: Lanes, weights: Function, compute: Function, *more: Function) -> list[Function]:
    frame = conv_frame.frame(lanes)
    return [frame, *more, weights, compute, conv_result.result(lanes, frame, weights, compute)]


def _direct(lanes: Lanes, rows: int) -> list[Function]:
    frame = conv_frame.frame(lanes)
    weights, compute = conv_result.pack_weights(lanes, rows), conv_result.direct(lanes, frame, rows)
    return [frame, weights, compute, conv_result.result(lanes, frame, weights, compute, True)]


def _weight(lanes: Lanes) -> list[Function]:
    frame, columns = conv_frame.frame(lanes), conv_panel.columns(lanes, weigh=True)
    pack, strips = conv_panel.pack(lanes), conv_panel.tile(lanes, "strips", conv_weight.PITCH, 1)
    turn, join = conv_weight.turn(lanes), conv_weight.join(lanes)
    weigh = conv_weight.weigh(lanes, strips, columns, pack)
    return [frame, columns, pack, strips, turn, join, weigh,
            conv_weight.weight(frame, lanes, turn, weigh, join)]


def _weight_by_squares(lanes: Lanes) -> list[Function]:
    frame, columns = conv_frame.frame(lanes), conv_panel.columns(lanes, weigh=True)
    pack = conv_panel.pack(lanes)
    strips = conv_panel.tile(lanes, "strips", conv_weight_squares.PITCH, 1)
    slopes, add = conv_weight_squares.turn_slopes(lanes), conv_weight_squares.add_parts(lanes)
    weigh = conv_weight_squares.weigh_squares(lanes, strips, columns, pack)
    return [frame, columns, pack, strips, slopes, weigh, add,
            conv_weight_squares.weight_squares(lanes, frame, slopes, weigh, add)]


def _weight_directly(lanes: Lanes) -> list[Function]:
    frame = conv_frame.frame(lanes)
    directly = conv_weight.weigh_directly(lanes, frame, TAPS)
    return [frame, directly, conv_weight.weight_directly(frame, directly)]


def _sums(lanes: Lanes) -> list[Function]:
    rows = conv_weight.sum_rows(lanes)
    return [rows, conv_weight.sums(lanes, rows)]


#: what a module is for -> its functions
PARTS = {
    f"result {TILES}":   _tiles,
    f"result {SQUARES}": _squares,
    f"result {ONE}":     lambda lanes: _direct(lanes, ONE),
    f"result {THREE}":   lambda lanes: _direct(lanes, THREE),
    "weight":            _weight,
    "weight squares":    _weight_by_squares,
    "weight directly":   _weight_directly,
    "sums":              _sums,
}  # fmt: skip


def build(element: str, part: str, high: int | None = None) -> list[Function]:
    return PARTS[part](lanes_of(element, high))
