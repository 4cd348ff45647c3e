"""Frames: a source with the zeros around it that windows see, and its columns dealt out.

Where windows are s columns apart, columns are dealt out into s runs by their remainder, so that
what neighbouring windows see at one tap lies side by side. Lines of all channels lie together, as
windows see them.
"""

from __future__ import annotations

from .conv_words import FRAME
from .lanes import Lanes, larger, smaller
from .writer import Function, Value, wide


def frame(lanes: Lanes) -> Function:
    """Planes `begin` to `end` of a frame; the context is (frame, source, words)."""
    f = Function("frame", "ptr context, i64 begin, i64 end", local=True)
    to, source, words = (f.context.load("ptr", i) for i in range(3))
    (channels, d, h, w, sn, sc, sd, sh, sw, tn, tc, td, th, pd, ph, pw, fd, fh, pitch, step,
     split) = FRAME.read(f, words, "channels d h w sn sc sd sh sw tn tc td th pd ph pw fd fh pitch "
                                   "step split")
    element = lanes.element
    with f.each(f.begin, f.end) as plane:
        n, c = plane / channels, plane % channels
        start, target = source.at(element, n * sn + c * sc), to.at(element, n * tn + c * tc)
        with f.each(0, fd) as z, f.each(0, fh) as y:
            row = target.at(element, z * td + y * th)
            inside = (z - pd).below(d) & (y - ph).below(h)
            line = start.at(element, (z - pd) * sd + (y - ph) * sh)
            with f.when(inside) as some:
                with f.when((step == 1) & (sw == 1)) as plain:
                    _copy(f, lanes, row, line, pw, w, pitch)
                with plain.otherwise():
                    _deal(f, lanes, row, line, pw, w, sw, step, split)
            with some.otherwise():
                _clear(f, lanes, row, f.const("i64", 0), pitch)
    return f


def _clear(f: Function, lanes: Lanes, row: Value, begin: Value, end: Value) -> None:
    zero = lanes.zero(f)
    whole = begin + ((end - begin) & -lanes.width)
    with f.each(begin, whole, lanes.width) as i:
        row.at(lanes.element, i).store(zero)
    with f.each(whole, end) as i:
        row.store(f.const(lanes.element, 0), i)


def _copy(f: Function, lanes: Lanes, row: Value, line: Value, pw: Value, w: Value,
          pitch: Value) -> None:
    """Zeros, the line, zeros."""
    element = lanes.element
    count = smaller(w, pitch - pw)
    with f.each(0, pw) as i:
        row.store(f.const(element, 0), i)
    inner = row.at(element, pw)
    with f.when(count >= lanes.width) as long:
        last, x = count - lanes.width, f.var("i64", 0)
        with f.repeat() as loop:
            loop.leave_if(x() >= count)
            i = smaller(x(), last)  # the last vector overlaps the one before
            inner.at(element, i).store(lanes.load(line, i))
            x.add(lanes.width)
    with long.otherwise(), f.each(0, count) as i:
        inner.store(line.load(element, i), i)
    with f.each(pw + count, pitch) as i:
        row.store(f.const(element, 0), i)


def _deal(f: Function, lanes: Lanes, row: Value, line: Value, pw: Value, w: Value, sw: Value,
          step: Value, split: Value) -> None:
    """Column q * step + r of the padded line goes to place q of run r."""
    element = lanes.element
    with f.each(0, step) as r:
        run = row.at(element, r * split)
        # The first and the last column of this run that are columns of the line.
        low = larger(pw - r, 0) + step - 1
        low = smaller(low / step, split)
        high = smaller(larger(w + pw - r + step - 1, 0) / step, split)
        high = larger(high, low)
        with f.each(0, low) as q:
            run.store(f.const(element, 0), q)
        at = line.at(element, (r - pw) * sw)
        with f.when((step == 2) & (sw == 1)) as pairs:
            _every_second(f, element, lanes.width, at, run, low, high)
        with pairs.otherwise(), f.each(low, high) as q:
            run.store(at.load(element, q * step * sw), q)
        with f.each(high, split) as q:
            run.store(f.const(element, 0), q)


def _every_second(f: Function, element: str, width: int, at: Value, run: Value, low: Value,
                  high: Value) -> None:
    """A vector at a time; the last overlaps the one before, and nothing behind it is read. Runs
    that are shorter than a vector are copied by shorter ones."""
    if width == 2:
        with f.each(low, high) as q:
            run.store(at.load(element, q * 2), q)
        return
    kind = wide(element, width)
    with f.when(high - low >= width) as long:
        x, last = f.var("i64", low), high - width
        with f.repeat() as loop:
            loop.leave_if(x() >= high)
            q = smaller(x(), last)
            pair = [at.at(element, q * 2 + k).load(kind) for k in (0, width - 1)]
            run.at(element, q).store(pair[0].shuffle(
                [*range(0, width, 2), *range(width + 1, 2 * width, 2)], pair[1]))
            x.add(width)
    with long.otherwise():
        _every_second(f, element, width // 2, at, run, low, high)
