"""Random numbers that take an unforeseen number of tries, one element after the other.

How far the stream moves depends on what was drawn before. float32 parameters are combined in
float32, and all that follows is float64, because that is where torch rounds.
"""

from __future__ import annotations

import math
import struct

from .fills import TYPES, as_dtype
from .twister import Twister, lock, unlock
from .writer import Function, Value

ROOT_TAU_LOG = 0.5 * math.log(2 * math.pi)


def _log(f: Function, x: Value) -> Value:
    return f.call_math("log", x)


def _unit(f: Function, twister: Twister) -> Value:
    return f.run(twister.uniform, f.state)


def _centred(f: Function, twister: Twister) -> tuple[Value, Value, Value]:
    """u of [-1/2, 1/2), its distance from the nearer end, and v of [0, 1)."""
    u = _unit(f, twister) - 0.5
    return u, 0.5 - f.intrinsic("fabs", u), _unit(f, twister)


# -- Poisson -------------------------------------------------------------------------------------


def poisson_few(twister: Twister) -> Function:
    """Small rates: uniforms are multiplied until their product falls to exp(-rate)."""
    f = Function("poisson_few", "ptr state, double rate", "double", local=True)
    floor = f.call_math("exp", -f.rate)
    product, count = f.var("double", 1.0), f.var("double", 0.0)
    with f.repeat() as loop:
        product.set(product() * _unit(f, twister))
        loop.leave_if(product() <= floor)
        count.add(1.0)
    f.give(count())
    return f


def poisson_many(twister: Twister) -> Function:
    """Rates from 10 on: transformed rejection with squeeze.

    W. Hoermann, "The transformed rejection method for generating Poisson random variables",
    Insurance: Mathematics and Economics 12 (1993), algorithm PTRS.
    """
    f = Function("poisson_many", "ptr state, double rate", "double", local=True)
    spread = f.intrinsic("sqrt", f.rate) * 2.53 + 0.931
    bend = spread * 0.02483 - 0.059
    steep = 1.1328 / (spread - 3.4) + 1.1239
    sure = 0.9277 - 3.6224 / (spread - 2.0)
    log_rate = _log(f, f.rate)
    with f.repeat() as loop:
        u, edge, v = _centred(f, twister)
        loop.again_if(edge == 0.0)
        k = f.intrinsic("floor", (bend * 2.0 / edge + spread) * u + f.rate + 0.43)
        with f.when((edge >= 0.07) & (v <= sure)):
            f.give(k)
        loop.again_if((k < 0.0) | ((edge < 0.013) & (v > edge)))
        height = _log(f, v * steep / (bend / (edge * edge) + spread))
        with f.when(height <= k * log_rate - f.rate - f.call_math("lgamma", k + 1.0)):
            f.give(k)
    return f


def poisson(twister: Twister, dtype: str) -> list[Function]:
    few, many = poisson_few(twister), poisson_many(twister)
    f = Function(f"tries_poisson_{dtype}", "ptr state, ptr out, ptr rates, i64 n")
    lock(f)
    with f.each(0, f.n) as i:
        rate, value = f.rates.load("double", i), f.var("double", 0.0)
        with f.when(rate >= 10.0) as large:
            value.set(f.run(many, f.state, rate))
        with large.otherwise(), f.when(rate > 0.0):
            value.set(f.run(few, f.state, rate))
        f.out.store(as_dtype(value(), dtype), i)
    unlock(f)
    return [few, many, f]


# -- binomial ------------------------------------------------------------------------------------


def _stirling_rest(f: Function, table: Value, k: Value) -> Value:
    """log k! less Stirling's formula in k + 1: known for few, a series for many."""
    found = f.var("double")
    with f.when(k < 10.0) as small:
        found.set(table.load("double", k.to("i64")))
    with small.otherwise():
        inverse = 1.0 / (k + 1.0)
        square = inverse * inverse
        found.set(inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260))))
    return found()


def _rests(f: Function) -> Value:
    """Their table for the numbers below 10."""
    table = f.room("double", 10)
    for k in range(10):
        rest = math.lgamma(k + 1) - (ROOT_TAU_LOG + (k + 0.5) * math.log(k + 1) - (k + 1))
        table.store(f.const("double", rest), k)
    return table


def binomial_few(twister: Twister, kind: str) -> Function:
    """Few successes: waiting times for one are added up until they exceed the trials."""
    f = Function("binomial_few", f"ptr state, {kind} trials, {kind} chance", "double", local=True)
    name = "log1pf" if kind == "float" else "log1p"
    scale = f.calls(name, kind, -f.chance).to("double")
    trials = f.trials.to("double")
    passed, count = f.var("double", 0.0), f.var("double", 0.0)
    with f.repeat() as loop:
        passed.add(f.intrinsic("ceil", _log(f, _unit(f, twister)) / scale))
        loop.leave_if(passed() > trials)
        count.add(1.0)
    f.give(count())
    return f


def binomial_many(twister: Twister, kind: str) -> Function:
    """Ten successes and more: transformed rejection with squeeze.

    W. Hoermann, "The generation of binomial random variates", Journal of Statistical Computation
    and Simulation 46 (1993), algorithm BTRS.
    """
    f = Function("binomial_many", f"ptr state, {kind} trials, {kind} chance", "double", local=True)
    table = _rests(f)
    n, p = f.trials.to("double"), f.chance.to("double")
    miss = f.const(kind, 1.0) - f.chance
    deviation = f.intrinsic("sqrt", (f.trials * f.chance * miss).to("double"))
    spread = deviation * 2.53 + 1.15
    bend = spread * 0.0248 - 0.0873 + p * 0.01
    centre = (f.trials * f.chance).to("double") + 0.5
    sure = 0.92 - 4.2 / spread
    odds = (f.chance / miss).to("double")
    steep = (5.1 / spread + 2.83) * deviation
    mode = f.intrinsic("floor", (f.trials + 1.0) * f.chance).to("double")

    def log_mass(k: Value) -> Value:
        """log of how likely k is, up to what all k share."""
        after, left = k + 1.0, n - k + 1.0
        return ((k + 0.5) * _log(f, odds * left / after) - (n + 1.0) * _log(f, left)
                - _stirling_rest(f, table, k) - _stirling_rest(f, table, n - k))

    highest = log_mass(mode)
    with f.repeat() as loop:
        u, edge, v = _centred(f, twister)
        loop.again_if(edge == 0.0)
        k = f.intrinsic("floor", (bend * 2.0 / edge + spread) * u + centre)
        loop.again_if((k < 0.0) | (k > n))
        with f.when((edge >= 0.07) & (v <= sure)):
            f.give(k)
        height = _log(f, v * steep / (bend / (edge * edge) + spread))
        with f.when(height <= log_mass(k) - highest):
            f.give(k)
    return f


def binomial(twister: Twister, dtype: str) -> list[Function]:
    kind = TYPES[dtype][1]
    few, many = binomial_few(twister, kind), binomial_many(twister, kind)
    f = Function(f"tries_binomial_{dtype}", "ptr state, ptr out, ptr trials, ptr chances, i64 n")
    lock(f)
    with f.each(0, f.n) as i:
        n, p = f.trials.load(kind, i), f.chances.load(kind, i)
        common = p > 0.5
        rare = common.pick(f.const(kind, 1.0) - p, p)
        value = f.var("double", 0.0)
        with f.when((n > 0.0) & (p > 0.0)):
            with f.when(p >= 1.0) as certain:
                value.set(n.to("double"))
            with certain.otherwise():
                with f.when(n * rare >= 10.0) as large:
                    value.set(f.run(many, f.state, n, rare))
                with large.otherwise():
                    value.set(f.run(few, f.state, n, rare))
                value.set(common.pick(n.to("double") - value(), value()))
        with f.when(p.isnan() & (n > 0.0)):
            value.set(math.nan)
        f.out.store(as_dtype(value(), dtype), i)
    unlock(f)
    return [few, many, f]


# -- gamma ---------------------------------------------------------------------------------------


def _single(x: float) -> float:
    """The nearest float32."""
    return struct.unpack("f", struct.pack("f", x))[0]


def gamma_one(twister: Twister, kind: str) -> Function:
    """A gamma number of scale 1: a cube of a normal number, squeezed or compared in logarithms.

    G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", ACM
    Transactions on Mathematical Software 26 (2000). A shape below 1 is raised by 1, and the
    number multiplied by a power of a uniform one (their section 6).
    """
    f = Function("gamma_one", f"ptr state, {kind} given", "double", local=True)
    factor, raised = f.var("double", 1.0), f.var(kind, f.given)
    with f.when(f.given == 0.0):
        f.give(f.const("double", 0.0))
    with f.when(f.given < 1.0):
        power = (f.const(kind, 1.0) / f.given).to("double")
        factor.set(f.call_math("pow", 1.0 - _unit(f, twister), power))
        raised.set(f.given + 1.0)
    d = (raised() - _single(1 / 3)).to("double")
    c = 1.0 / f.intrinsic("sqrt", d * 9.0)
    with f.repeat() as loop:
        x = f.run(twister.normal, f.state)
        base = x * c + 1.0
        loop.again_if(base <= 0.0)
        cube, u, square = base * base * base, 1.0 - _unit(f, twister), x * x
        with f.when(u < 1.0 - square * square * _single(0.0331)):
            f.give(factor() * d * cube)
        with f.when(_log(f, u) < square * 0.5 + d * (1.0 - cube + _log(f, cube))):
            f.give(factor() * d * cube)
    return f


def gamma(twister: Twister, dtype: str) -> list[Function]:
    memory, kind = TYPES[dtype]
    one = gamma_one(twister, kind)
    f = Function(f"tries_gamma_{dtype}", "ptr state, ptr out, ptr shapes, i64 n")
    lock(f)
    with f.each(0, f.n) as i:
        value = as_dtype(f.run(one, f.state, f.shapes.load(kind, i)), dtype)
        least = 2.0**-126 if memory == "float" else 2.0**-1022
        f.out.store((value < least).pick(least, value), i)
    unlock(f)
    return [one, f]


def build(name: str, dtype: str) -> list[Function]:
    twister = Twister()
    return [*twister.functions, *{"poisson": poisson, "binomial": binomial, "gamma": gamma}[name](
        twister, dtype)]
