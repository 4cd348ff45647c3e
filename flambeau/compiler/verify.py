"""verify=n: a program's values against those of its op calls, made one by one."""

from __future__ import annotations

from ..core.lazily import np
from ..engine import convert
from ..engine.tensor import make
from .tape import Launch

#: relative and absolute differences that rounding explains
_CLOSE = {"float64": (1e-7, 1e-8), "float16": (2e-2, 1e-2), "bfloat16": (5e-2, 5e-2)}


def check(tracer, step, variant) -> None:
    """Raise, naming the first op whose result differs, if a program is not what eager is.

    A path that changes memory outside, draws random numbers, or goes back, cannot be made twice: it
    is not compared.
    """
    drawn = any(launch.effect and isinstance(launch, Launch) for launch in variant.program.launches)
    if drawn or variant.written or any(each.backward for each in step.path()):
        return
    everything = tuple(range(step.values))
    program = step.build(everything, _Quiet).program
    if program is None:
        return
    twins = tracer.twins_of(step)
    made = dict(zip(program.results, program.run([x.ptr for x in tracer.outside], tracer.numbers),
                    strict=True))
    names = _names(step)
    for k, result in enumerate(step.final()):
        if result.place.root[0] != "buffer":
            continue
        mem = made[result.place.root[1]]
        value = make(result.sig, mem, mem.address + result.place.offset)
        a, b = (np.asarray(convert.to_array(t)) for t in (value, twins[k]))
        relative, absolute = _CLOSE.get(result.sig.dtype.name, (1e-3, 1e-4))
        if not np.allclose(a, b, rtol=relative, atol=absolute, equal_nan=True):
            worst = float(np.nanmax(np.abs(a.astype(np.float64) - b.astype(np.float64))))
            raise RuntimeError(f"compile: verify: {names.get(k, 'a value')} differs from eager by "
                               f"up to {worst:g} (result {k} of the segment)")


class _Quiet:
    """A report that nobody reads."""

    @staticmethod
    def built(step, program) -> None:
        pass


def _names(step) -> dict[int, str]:
    """Which op made a value."""
    found, first = {}, 0
    for each in step.path():
        for k in range(first, each.values):
            found[k] = getattr(each.call[0], "name", "?")
        first = each.values
    return found
