"""verify=n: what programs compute against their op calls, made one by one.

Both start from the same state, bit for bit: memory from outside that the calls change, gradients,
versions, generators of random numbers. It is put back twice, so the call itself finds it as it was.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ..core.lazily import np
from ..engine import backward as bw
from ..engine import convert
from ..engine.generator import Generator, default_generator
from ..engine.launch import Launch
from ..engine.tensor import Tensor, make
from .fewer import fewer
from .graph_steps import ending_at, step_of
from .phantom import extent_of, plain
from .program import Program
from .reverse import has_hooks
from .simplify import needed

#: relative and absolute differences that rounding explains; elsewhere 1e-3 and 1e-4
_CLOSE = {"float64": (1e-7, 1e-8), "float16": (2e-2, 1e-2), "bfloat16": (5e-2, 5e-2)}


class State:
    """What the calls of a path change besides making values."""

    def __init__(self, outside: list[Tensor], path: list, written, draws: bool):
        changed = {*written}.union(*[step.writes for step in path])
        self.written = sorted(changed)
        self.memory = []
        for k in self.written:
            low, high = extent_of(real(outside[k]))
            self.memory.append((low, ctypes.string_at(low, high - low)))
        self.versions = [(x.mem, x.mem.version) for x in outside]
        self.generators = [(g, g.twister.get_state()) for g in _generators(path)] if draws else []

    def restore(self) -> None:
        for low, raw in self.memory:
            ctypes.memmove(low, raw, len(raw))
        for mem, version in self.versions:
            mem.version = version
        for generator, state in self.generators:
            generator.twister.set_state(state)


def _generators(path) -> list[Generator]:
    """The default generator, and those that calls are given."""
    found = {id(default_generator): default_generator}
    for step in path:
        found |= {id(a): a for a in step.args if isinstance(a, Generator)}
    return [*found.values()]


def real(x: Tensor) -> Tensor:
    """A tensor as it is when nothing is traced."""
    return make(plain(x.sig), x.mem, x.ptr)


def check(tracer, step, variant) -> Back | None:
    """Raise, naming the first op whose result differs, if a program is not what eager is.

    What comes back can compare the way back too, once the program has been run.
    """
    path, program, outside = step.path(), variant.program, tracer.outside
    draws = any(launch.effect and isinstance(launch, Launch) for launch in program.launches)
    state = State(outside, path, variant.written, draws)
    pointers = [x.ptr for x in outside]
    try:
        try:
            made = program.run(pointers[:program.outside], tracer.numbers)
        except Exception:
            return None  # an index out of bounds: the call itself is about to raise the same
        found = _values(variant.live, program, made, outside)
        left = {k: _copy(real(outside[k])) for k in state.written}
        state.restore()
        twins = tracer.twins_of(step)
        wrong = [(k, _difference(found[k], _copy(twins[k]))) for k in sorted(found)]
        wrong = [(k, worst) for k, worst in wrong if worst is not None]
        changed = {k: _difference(left[k], _copy(real(outside[k]))) for k in state.written}
        if wrong or any(worst is not None for worst in changed.values()):
            expected = {k: _copy(t) for k, t in enumerate(twins)}
            state.restore()
            raise RuntimeError(_told(step, _first(step, tracer, expected) or wrong, changed,
                                     outside))
        back = Back(tracer, step, variant, twins) if variant.wanting else None
    finally:
        state.restore()
    return back


def _values(live, program, made, outside) -> dict[int, Any]:
    """Copies of the values that a program has made."""
    memory = dict(zip(program.results, made, strict=True))
    found = {}
    for k, result in live:
        (kind, number), offset = result.place.root, result.place.offset
        if kind == "buffer":
            x = make(result.sig, memory[number], memory[number].address + offset)
        elif kind == "outside":
            x = make(result.sig, outside[number].mem, outside[number].ptr + offset)
        else:
            continue
        found[k] = _copy(x)
    return found


def _copy(x: Tensor) -> tuple:
    """A copy of the elements of a tensor, and what its dtype is called."""
    return np.array(convert.to_array(real(x))), x.sig.dtype.name


def _difference(one: tuple, two: tuple) -> float | None:
    """The greatest difference, if it is more than rounding explains."""
    (a, name), (b, _) = one, two
    if a.dtype.kind not in "fc":
        return None if np.array_equal(a, b) else float(
            np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))))
    relative, absolute = _CLOSE.get(name, (1e-3, 1e-4))
    size = np.abs(b[np.isfinite(b)])
    absolute *= max(1.0, float(size.max())) if size.size else 1.0
    if np.allclose(a, b, rtol=relative, atol=absolute, equal_nan=True):
        return None
    with np.errstate(invalid="ignore"):
        apart = np.abs(a.astype(np.complex128) - b.astype(np.complex128))
    return float(np.nanmax(apart)) if not np.isnan(apart).all() else float("nan")


def _first(step, tracer, expected) -> list[tuple[int, float]]:
    """The first value that differs where a program leaves all of them."""
    chain, final = step.chain, step.final()
    results = sorted({r.place.root[1] for r in final if r.place.root[0] == "buffer"})
    launches = needed(chain.launches.first(step.end), {*results})
    launches, buffers, words = fewer(launches, chain.buffers, {*results}, chain.filled)
    program = Program(launches, buffers, chain.constants, chain.filled, results,
                      [*chain.keep, *words])
    made = program.run([x.ptr for x in tracer.outside], tracer.numbers)
    found = _values([*enumerate(final)], program, made, tracer.outside)
    for k in sorted(found):
        worst = _difference(found[k], expected[k])
        if worst is not None:
            return [(k, worst)]
    return []


def _told(step, wrong, changed, outside) -> str:
    if wrong:
        k, worst = wrong[0]
        return (f"compile: verify: {_names(step).get(k, 'a value')} differs from eager by up to "
                f"{worst:g} (result {k} of the segment)")
    k, worst = next((k, worst) for k, worst in changed.items() if worst is not None)
    name = next((_name(each) for each in step.path() if k in each.writes), "a call")
    return (f"compile: verify: {name} differs from eager by up to {worst:g} in a tensor of shape "
            f"{tuple(outside[k].sig.shape)} that it changes")


def _name(step) -> str:
    return "backward" if step.backward else getattr(step.op, "name", "?")


def _names(step) -> dict[int, str]:
    """Which op made a value."""
    found, first = {}, 0
    for each in step.path():
        for k in range(first, each.values):
            found[k] = _name(each)
        first = each.values
    return found


class Back:
    """Gradients of what a segment made, by way of its op calls, to compare with those of its
    program."""

    def __init__(self, tracer, step, variant, twins: list[Tensor]):
        self.outputs = [k for k in variant.wanting if k in step.stop.reverse.outputs]
        self.inputs = [x for x in tracer.outside if x.node is not None]
        dice = np.random.RandomState(0)
        self.given = [_cotangent(twins[k], dice) for k in self.outputs]
        self.names = _names(step)
        self.expected = self._gradients(tracer, twins)

    def _gradients(self, tracer, values) -> list | None:
        if not self.outputs or not self.inputs or any(map(_is_watched, self.inputs)):
            return None
        tracer._untag()
        try:
            with ending_at(map(step_of, self.inputs)):
                return bw.grad([values[k] for k in self.outputs], self.inputs, self.given,
                               retain_graph=True, allow_unused=True)
        except RuntimeError:  # what was kept has been changed: going back later says the same
            return None
        finally:
            tracer._retag()

    def compare(self, tracer) -> None:
        """Raise if a program goes another way back."""
        found = self._gradients(tracer, tracer.values) if self.expected is not None else None
        if found is None or self.expected is None:
            return
        for x, a, b in zip(self.inputs, found, self.expected, strict=True):
            if a is None and b is None:
                continue
            worst = float("inf") if a is None or b is None else _difference(_copy(a), _copy(b))
            if worst is not None:
                made = ", ".join(dict.fromkeys(self.names.get(k, "?") for k in self.outputs))
                raise RuntimeError(f"compile: verify: the way back from {made} differs from eager "
                                   f"by up to {worst:g} in the gradient of a tensor of shape "
                                   f"{tuple(x.sig.shape)}")


def _is_watched(x: Tensor) -> bool:
    """Whether somebody would be told of a gradient that is only computed to be compared."""
    return has_hooks(x) or getattr(step_of(x), "extra", None) is not None


def _cotangent(x: Tensor, dice) -> Tensor:
    array = dice.standard_normal(tuple(x.sig.shape)).astype(np.float32)
    return bw.engine.cast(convert.copied(np.array(array)), x.sig.dtype)
