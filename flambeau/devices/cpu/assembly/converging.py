"""Special functions of two arguments that are summed until nothing is added any more.

Eight elements go together, in float64, as long as one of them still changes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, pi

from ....core import expr as ex
from ....core.expr import where
from ...elementary.exponential import exp, log, log1p, power
from ...elementary.floats import absolute, clamp, fma, polynomial, root
from ...elementary.special import STIRLING, erfc
from .lanes import smaller
from .writer import Function, Value, Variable, parallel, wide

LANES = 8
VECTOR = wide("double", LANES)
TYPES = {"float32": "float", "float64": "double"}
#: dtype -> when a sum no longer changes
SETTLED = {"float32": 1e-9, "float64": 1e-17}
#: steps after which a sum is left as it is
MOST = 2000
INF, NAN = float("inf"), float("nan")


def _any(lanes: Value) -> Value:
    return lanes.mask() != 0


# -- the ratios of incomplete gamma functions ----------------------------------------------------


def _density(a: ex.Expr, x: ex.Expr) -> ex.Expr:
    """x**a exp(-x) / gamma(a), for a and x > 0; from a = 4 on without the logarithm of gamma."""
    low = a < 4
    y = where(low, a + 4, a)
    tail = polynomial(1 / (y * y), STIRLING) / y
    part = (x - a) / a
    away = where(absolute(part) < 0.5, log1p(part), log(x / a)) - part
    large = root(a * (0.5 / pi)) * exp(fma(a, away, -tail))
    gamma = fma(y - 0.5, log(y) - 1, 0.4189385332046727 + tail) - log(
        a * (a + 1) * (a + 2) * (a + 3))
    return where(low, exp(a * log(x) - x - gamma), large)


def _series(f: Function, a: Value, x: Value, settled: float) -> Value:
    """The lower ratio by the density: a power series, for x below a + 1."""
    term, step = f.var(VECTOR, 1.0 / a), f.var("i64", 1)
    total = f.var(VECTOR, term())
    with f.repeat() as loop:
        term.set(term() * (x / (a + step().to("double").spread(LANES))))
        total.add(term())
        loop.leave_if(~_any(term() > total() * settled) | (step() >= MOST))
        step.add(1)
    return total()


def _fraction(f: Function, a: Value, x: Value, settled: float) -> Value:
    """The upper ratio by the density: a continued fraction, for x from a + 1 on."""
    huge, settled = 2.0**400, max(settled, 1e-16)
    before, this = ([f.var(VECTOR, v) for v in pair] for pair in (
        (f.const(VECTOR, 1.0), x), (x + 1.0, (x + 2.0 - a) * x)))
    found, step = f.var(VECTOR, this[0]() / this[1]()), f.var("i64", 1)
    with f.repeat() as loop:
        k = step().to("double").spread(LANES)
        top, bottom = (k + 1.0 - a) * k, x + 2.0 - a + k * 2.0
        following = [new() * bottom - old() * top
                     for old, new in zip(before, this, strict=True)]
        value = following[0] / following[1]
        known = following[1] != 0.0
        change = f.intrinsic("fabs", found() - value) > f.intrinsic("fabs", value) * settled
        scale = (f.intrinsic("fabs", following[0]) > huge).pick(
            f.const(VECTOR, 1 / huge), 1.0)
        found.set(known.pick(value, found()))
        for old, new, next_ in zip(before, this, following, strict=True):
            old.set(new() * scale)
            new.set(next_ * scale)
        loop.leave_if(~_any(change & known) | (step() >= MOST))
        step.add(1)
    return found()


def _far(a: ex.Expr, x: ex.Expr) -> ex.Expr:
    """The upper ratio for large a: Temme's expansion about the normal distribution."""
    part = (x - a) / a
    square = clamp(2 * (part - log1p(part)), low=0.0)
    eta = where(part < 0, -root(square), root(square))
    near = absolute(part) < 1e-4
    direct = 1 / where(near, 1.0, part) - 1 / where(near, 1.0, eta)
    rest = where(near, part / 12 - 1 / 3, direct)
    tail = exp(-0.5 * a * square) / root(2 * pi * a)
    return 0.5 * erfc(eta * root(a / 2)) + rest * tail


def _gamma_ratio(upper: bool) -> Callable:
    def written(f: Function, a: Value, x: Value, settled: float) -> Value:
        plain = (a > 0.0) & (a < INF) & (x > 0.0) & (x < INF)
        away = f.intrinsic("fabs", x - a)
        far = plain & (a > 1e4) & (away < a * 0.3)
        low, high = plain & ~far & (x < a + 1.0), plain & ~far & (x >= a + 1.0)
        density = f.math(_density, plain.pick(a, 1.0), plain.pick(x, 1.0))
        below, above = f.var(VECTOR, 0.0), f.var(VECTOR, 0.0)
        with f.when(_any(low)):
            # What another way is for is settled at once.
            below.set(low.pick(density * _series(f, low.pick(a, 1.0), low.pick(x, 0.0), settled),
                               0.0))
            above.set(low.pick(1.0 - below(), 0.0))
        with f.when(_any(high)):
            # Products of arguments past 1e100 overflow, and nothing is left of the density there.
            held = (high & (x < 1e100)).pick(x, 1e10)
            found = _fraction(f, high.pick(a, 1.0), held, settled)
            _set_where(high, above, below, found * density)
        with f.when(_any(far)):
            _set_where(far, above, below, f.math(_far, far.pick(a, 1e5), far.pick(x, 1e5)))
        return _with_limits(a, x, plain, (above() > 0.0).pick(above(), 0.0) if upper else below(),
                            upper)

    return written


def _set_where(lanes: Value, above: Variable, below: Variable, value: Value) -> None:
    above.set(lanes.pick(value, above()))
    below.set(lanes.pick(1.0 - value, below()))


def _with_limits(a: Value, x: Value, plain: Value, value: Value, upper: bool) -> Value:
    """What the ratio is where an argument is 0, infinite, below 0, or no number."""
    none, whole = (1.0, 0.0) if upper else (0.0, 1.0)
    kind = value.f.const(VECTOR, NAN)
    value = plain.pick(value, kind)
    value = ((x == INF) & (a != INF)).pick(whole, value)
    value = (a == INF).pick((x == INF).pick(kind, none), value)
    value = (x == 0.0).pick(none, value)
    value = (a == 0.0).pick((x > 0.0).pick(whole, kind), value)
    return ((x < 0.0) | (a < 0.0)).pick(kind, value)


# -- Hurwitz's zeta ------------------------------------------------------------------------------

#: Bernoulli's numbers of order 2, 4, ...
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510,
             43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730)


def _zeta(f: Function, s: Value, q: Value, settled: float) -> Value:
    """The sum of (q + k)**-s: terms up to q + k > 9, then Euler and Maclaurin's formula."""
    usual = (s > 1.0) & (s < INF) & (q > -1e6) & (q < 1e4)
    s_, q_ = usual.pick(s, 2.0), usual.pick(q, 1.0)
    total, a = f.var(VECTOR, 0.0), f.var(VECTOR, q_)
    step = f.var("i64", 0)
    with f.repeat() as loop:
        active = (a() <= 9.0) | (step() < 10).spread(LANES)
        loop.leave_if(~_any(active))
        total.add(active.pick(f.math(power, a(), -s_), 0.0))
        a.set(active.pick(a() + 1.0, a()))
        step.add(1)
    end = a()
    first = f.math(power, end, -s_)
    tail = first * (end / (s_ - 1.0) + 0.5)
    factor, falling = s_, first / end
    for k, b in enumerate(BERNOULLI):
        tail = tail + factor * falling * (b / factorial(2 * k + 2))
        factor = factor * (s_ + float(2 * k + 1)) * (s_ + float(2 * k + 2))
        falling = falling / (end * end)
    return _zeta_limits(f, s, q, total() + tail)


def _zeta_limits(f: Function, s: Value, q: Value, value: Value) -> Value:
    nan = f.const(VECTOR, NAN)
    whole = f.intrinsic("floor", q) == q
    value = (q >= 1e4).pick(f.math(_zeta_far, s, q), value)
    only_one = (q > 1.0).pick(nan, (q == 1.0).pick(f.const(VECTOR, 1.0), INF))
    value = s.isnan().pick(nan, (s == INF).pick(only_one, value))
    summed = (f.intrinsic("floor", s) == s) & (q > -1e6)
    left = whole.pick(f.const(VECTOR, INF), summed.pick(value, nan))
    value = (q <= 0.0).pick(left, value)
    return (s == 1.0).pick(INF, ((s < 1.0) | q.isnan()).pick(nan, value))


def _zeta_far(s: ex.Expr, q: ex.Expr) -> ex.Expr:
    """Where q is large the integral, half a term and the first correction are all of it."""
    return power(q, -s) * (q / (s - 1) + 0.5 + s / (12 * q))


# -- routines ------------------------------------------------------------------------------------

_FUNCTIONS: dict[str, Callable] = {
    "lower_gamma_ratio": _gamma_ratio(False),
    "upper_gamma_ratio": _gamma_ratio(True),
    "hurwitz_zeta":      _zeta,
}


def _blocks(name: str, dtype: str) -> Function:
    """Blocks `begin` to `end` of eight elements; the last may have fewer, and ones beside them."""
    f = Function("converging_blocks", "ptr context, i64 begin, i64 end", local=True)
    element = TYPES[dtype]
    out, *operands = (f.context.load("ptr", k) for k in range(3))
    n = f.context.load("i64", 3)
    rooms = [f.room("double", LANES) for _ in range(3)]
    with f.each(f.begin, f.end) as block:
        first = block * LANES
        count = smaller(n - first, LANES)
        for operand, room in zip(operands, rooms, strict=False):
            room.store(f.const(VECTOR, 1.0))
            with f.each(0, count) as i:
                room.store(operand.load(element, first + i).to("double"), i)
        a, x = (room.load(VECTOR) for room in rooms[:2])
        rooms[2].store(_FUNCTIONS[name](f, a, x, SETTLED[dtype]))
        with f.each(0, count) as i:
            out.store(rooms[2].load("double", i).to(element), first + i)
    return f


def build(name: str, dtype: str) -> list[Function]:
    """converging(out, x, y, n): a function of two elements, of n pairs"""
    blocks = _blocks(name, dtype)
    f = Function("converging", "ptr out, ptr x, ptr y, i64 n")
    context = f.room("i64", 4)
    for k, value in enumerate((f.out, f.x, f.y, f.n)):
        context.store(value, k)
    parallel(f, blocks, context, (f.n + (LANES - 1)) / LANES, 16)
    return [blocks, f]
