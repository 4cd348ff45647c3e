"""ONNX operators with graphs inside: branches and loops, which Python runs."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .reading import number, reads


@reads("If")
def branch(condition, then_branch, else_branch, **_):
    return (then_branch if number(condition) else else_branch)()


@reads("Loop")
def loop(times, condition, *states, body, results, **_):
    """Until the body says no, or so many times; what it puts out at each turn is stacked."""
    most = None if times is None else int(number(times))
    going, turn = condition is None or bool(number(condition)), 0
    outs: list[list[Any]] = [[] for _ in range(results - len(states))]
    while going and (most is None or turn < most):
        goes_on, *made = body(fb.tensor(turn), fb.tensor(going), *states)
        going, turn = bool(number(goes_on)), turn + 1
        states = tuple(made[:len(states)])
        _collect(outs, made[len(states):])
    return [*states, *(_stacked(each, "Loop", 0) for each in outs)]


@reads("Scan")
def scan(*given, body, num_scan_inputs, results, scan_input_axes=None, scan_output_axes=None,
         scan_input_directions=None, scan_output_directions=None, **_):
    """Along an axis of some inputs, with states handed on from step to step."""
    count = len(given) - num_scan_inputs
    states, sequences = list(given[:count]), given[count:]
    axes = scan_input_axes or [0] * num_scan_inputs
    ways = scan_input_directions or [0] * num_scan_inputs
    steps = [x.unbind(axis)[::-1 if back else 1]
             for x, axis, back in zip(sequences, axes, ways, strict=True)]
    outs: list[list[Any]] = [[] for _ in range(results - count)]
    for now in zip(*steps, strict=True):
        made = body(*states, *now)
        states = made[:count]
        _collect(outs, made[count:])
    back = scan_output_directions or [0] * len(outs)
    over = scan_output_axes or [0] * len(outs)
    return [*states, *(_stacked(each[::-1] if b else each, "Scan", axis)
                       for each, b, axis in zip(outs, back, over, strict=True))]


def _collect(outs: list[list[Any]], made: list[Any]) -> None:
    for out, each in zip(outs, made, strict=True):
        out.append(each)


def _stacked(parts: list[Any], kind: str, axis: int):
    if not parts:
        raise RuntimeError(f"{kind} that makes no step has outputs of no known size")
    return fb.stack(parts, axis)
