"""Sorting networks for short rows of packed elements: no branch depends on what is compared.

Batcher's bitonic merges, all rising: the first step of a merge compares each element with its
mirror image, the others with the one half as far away each time. Up to CHUNK elements stay in
registers; longer rows are chunks that are merged in memory.
"""

from __future__ import annotations

from .writer import Function, Value, wide

LANES = 8
CHUNK = 64
VECTOR = wide("i64", LANES)


def _exchange(f: Function, one: Value, other: Value) -> tuple[Value, Value]:
    return f.intrinsic("umin", one, other), f.intrinsic("umax", one, other)


def _inside(f: Function, v: Value, partner: int, distance: int) -> Value:
    """Lanes compared with those whose numbers differ by the bits of `partner`."""
    low, high = _exchange(f, v, v.shuffle([k ^ partner for k in range(LANES)]))
    return low.shuffle([k + LANES * bool(k & distance) for k in range(LANES)], high)


def _mirrored(f: Function, vs: list[Value]) -> list[Value]:
    """The first step of a merge of two halves; the larger ones come out turned round."""
    half = len(vs) // 2
    pairs = [_exchange(f, one, other.shuffle(range(LANES - 1, -1, -1)))
             for one, other in zip(vs[:half], vs[:half - 1:-1], strict=True)]
    return [low for low, _ in pairs] + [high for _, high in pairs]


def _halved(f: Function, vs: list[Value]) -> list[Value]:
    """The other steps, down to neighbours."""
    apart = len(vs) // 2
    vs = list(vs)
    while apart:
        for k in (k for k in range(len(vs)) if not k & apart):
            vs[k], vs[k + apart] = _exchange(f, vs[k], vs[k + apart])
        apart //= 2
    for distance in (4, 2, 1):
        vs = [_inside(f, v, distance, distance) for v in vs]
    return vs


def _in_registers(f: Function, vs: list[Value]) -> list[Value]:
    """Vectors in order, each by itself and then merged two and two."""
    for size in (2, 4, 8):
        vs = [_inside(f, v, size - 1, size // 2) for v in vs]
        for distance in (d for d in (2, 1) if d < size // 2):
            vs = [_inside(f, v, distance, distance) for v in vs]
    merged = 2
    while merged <= len(vs):
        runs = [vs[k:k + merged] for k in range(0, len(vs), merged)]
        vs = [v for run in runs for v in _halved(f, _mirrored(f, run))]
        merged *= 2
    return vs


def _chunk(name: str, size: int, steps) -> Function:
    """A function that does steps to so many elements."""
    f = Function(f"{name}_{size}", "ptr a", local=True)
    vs = steps(f, [f.a.load(VECTOR, k) for k in range(0, size, LANES)])
    for k, v in enumerate(vs):
        f.a.store(v, k * LANES)
    return f


def _merge_chunks(f: Function, size: Value, run: Value, tidy: Function) -> None:
    """Sorted runs, two and two: steps between chunks in memory, those within by registers."""
    with f.each(0, size, run * 2) as start:
        left, right = f.a.at("i64", start), f.a.at("i64", start + run)
        with f.each(0, run / 2, LANES) as i:
            # The larger ones of two vectors and of their mirror images change places: all four at
            # once, since each is overwritten by what another gives.
            ends = (i, run - LANES - i)
            made = []
            for k in ends:
                mirror = right.load(VECTOR, run - LANES - k)
                made.append(_exchange(f, left.load(VECTOR, k),
                                      mirror.shuffle(range(LANES - 1, -1, -1))))
            for k, (low, high) in zip(ends, made, strict=True):
                left.store(low, k)
                right.store(high, k)
    apart = f.var("i64", run / 2)
    with f.repeat() as loop:
        loop.leave_if(apart() < CHUNK)
        with f.each(0, size, apart() * 2) as start:
            left, right = f.a.at("i64", start), f.a.at("i64", start + apart())
            with f.each(0, apart(), LANES) as i:
                low, high = _exchange(f, left.load(VECTOR, i), right.load(VECTOR, i))
                left.store(low, i)
                right.store(high, i)
        apart.set(apart() / 2)
    with f.each(0, size, CHUNK) as start:
        f.run(tidy, f.a.at("i64", start))


def build(longest: int) -> list[Function]:
    """`network(a, n)`: up to so many elements in order; a has room for a power of two of them.

    Before it comes the function that puts CHUNK elements in order.
    """
    few = [_chunk("network", size, _in_registers) for size in (16, 32, CHUNK)]
    tidy = _chunk("tidy", CHUNK, _halved)
    f = Function("network", "ptr a, i64 n", local=True)
    size = f.var("i64", 16)
    with f.repeat() as loop:
        loop.leave_if(size() >= f.n)
        size.set(size() * 2)
    with f.each(f.n, size(), LANES) as i:
        f.a.store(f.const(VECTOR, -1), i)
    for chunk, most in zip(few[:2], (16, 32), strict=True):
        with f.when(f.n <= most):
            f.run(chunk, f.a)
            f.give()
    with f.each(0, size(), CHUNK) as start:
        f.run(few[-1], f.a.at("i64", start))
    run = f.var("i64", CHUNK)
    if longest > CHUNK:
        with f.repeat() as loop:
            loop.leave_if(run() >= size())
            _merge_chunks(f, size(), run(), tidy)
            run.set(run() * 2)
    return [tidy, *few, f]
