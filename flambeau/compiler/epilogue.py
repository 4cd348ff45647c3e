"""What follows a product or a convolution element by element is done as its last step.

Both are computed in pieces. A pointwise kernel that takes their output runs on each piece as soon
as that is done, on the thread that made it and while it is in the cache, in place of a pass of its
own over all of it afterwards.

    [product(b0, ...), relu(b1, b0)]   becomes   [product(b1, ...) then relu(b1, b1)]
"""

from __future__ import annotations

from collections import Counter

from ..core import expr as ex
from ..core.kernel import Kernel
from ..devices.cpu.assembly.conv_words import FRAME, PHASE, RESULT
from ..devices.cpu.matmul.block import HERE, WORDS, W, near_bytes
from ..devices.cpu.matmul.front import product_function
from ..engine.launch import Finished, Launch, Output, Place
from ..engine.tape import integers_at
from .fuse import is_pointwise
from .passing import is_seen, may_pass, touched

#: steps of arithmetic that take a moment; a kernel of few of them waits for memory
QUICK = frozenset(("add", "sub", "mul", "neg", "abs", "lt", "le", "gt", "ge", "eq", "ne", "and",
                    "or", "xor", "not", "select", "cast"))
_FEW = 16
#: bytes of an output that is not worth it: it is in the nearest cache whenever it is needed
LEAST = 1 << 13


def finished(launches: list, results: set[int]) -> list:
    """Launches, with pointwise kernels as last steps of the routines whose output they take."""
    done: list = []
    made: dict[Place, int] = {}     # where an output lies -> which of `done` makes it
    users = Counter(root for step in launches for root in {p.root for _, p in step.places()})
    for number, step in enumerate(launches):
        at = _maker(step, made)
        joined = None if at is None else _joined(launches[at], step, results, users)
        if at is not None and joined is not None:
            between = [touched(other) for other in done[at + 1:]]
            if may_pass(touched(launches[at]), between):
                done[at], step = None, joined
            elif may_pass(touched(step), between) and not (
                    is_seen(step) and any(other.effect for other in launches[at + 1:number])):
                done[at], step = joined, None
            if step is not launches[number]:
                del made[launches[at].args[0]]
        if isinstance(step, Launch) and step.name in _OUTPUTS:
            made[step.args[0]] = number
        done.append(step)
    return [step for step in done if step is not None]


def _maker(step, made: dict[Place, int]) -> int | None:
    """Which routine made what a pointwise kernel takes: the last, if several did."""
    if not isinstance(step, Launch) or not is_pointwise(step.kernel) or not step.kernel.dense:
        return None
    return max((made[step.args[k]] for k, operand in enumerate(step.kernel.operands)
                if not operand.written and step.args[k] in made), default=None)


def _joined(first: Launch, then: Launch, results: set[int], users: Counter) -> Finished | None:
    """A routine with its last step, if it can have one."""
    output, place = _OUTPUTS[first.name](first), first.args[0]
    if output is None or output.elements != then.args[-1] or (
            output.elements * output.size < LEAST) or not (
            output.patient or _is_light(then.kernel)):
        return None
    if then.writes & (first.reads | first.writes - {place.root}):
        return None  # other pieces are not computed yet, and need what was there
    for k, operand in enumerate(then.kernel.operands):
        if then.args[k].root == place.root and (then.args[k] != place or operand.step != "1"
                                                or operand.dtype.itemsize != output.size):
            return None
        if operand.written and operand.step != "1":
            return None
    target = _target(first, then, output, results, users)
    if target is not None:
        first, then = (step.moved(tuple(target if a == place else a for a in step.args))
                       for step in (first, then))
    return Finished(_finishing(first), then, output)


def _finishing(launch: Launch) -> Launch:
    """A launch of the code that finishes what it makes: of a product that is another."""
    if launch.name not in PRODUCTS:
        return launch
    code = product_function(*PRODUCTS[launch.name], finishing=True)
    return launch.by(code.__name__, code)


def _target(first: Launch, then: Launch, output: Output, results, users) -> Place | None:
    """Where a routine puts what nobody else reads, so that the kernel works in place."""
    place = first.args[0]
    if place.root[0] != "buffer" or place.root[1] in results or users[place.root] > 2 or (
            place.root in first.reads):
        return None
    return next((then.args[k] for k in then.written
                 if then.args[k].root not in then.reads
                 and then.kernel.operands[k].dtype.itemsize == output.size), None)


def _is_light(kernel: Kernel) -> bool:
    """Whether a kernel mostly waits for memory, so that small pieces in the cache are soon done.

    To call a kernel that computes much on few elements at a time takes longer than is gained.
    """
    exprs = [ex.expand(store.value) for store in kernel.stages[0][1]]
    steps = [e for e in ex.nodes(*exprs) if e.args]
    return len(steps) <= _FEW and all(e.head in QUICK for e in steps)


def _product(launch: Launch) -> Output | None:
    """The output of a product whose matrices and rows lie side by side."""
    words = words_at(launch.args[-1], WORDS)
    batch, m, n, size = (words[name] for name in ("batch", "m", "n", "c_size"))
    offsets = integers_at(words["offsets"], 4 * batch)[2::4]
    if (m > 1 and words["c_row"] != n * size) or any(
            offset != k * m * n * size for k, offset in enumerate(offsets)) or not _is_whole(words):
        return None
    return Output(size, batch * m * n, len(launch.args) - 1, 8 * len(WORDS), 8 * W["finish"],
                  batch * m * n * size <= patience())


def patience() -> int:
    """Bytes of an output up to which a kernel that computes much may finish it: it gains little,
    and loses that where panels have to come from afar again in the meantime."""
    return 4 * near_bytes()


def _is_whole(words: dict[str, int]) -> bool:
    """Whether pieces are whole rows, or many elements of each: a kernel's calls take their time,
    and rows far apart push each other out of the cache.

    Threads that share columns have little of every row, as have blocks of packed columns.
    """
    if words["m"] == 1:
        return True
    whole = words["m"] * words["n"] * words["c_size"] <= near_bytes()
    return not words["across"] and (words["pack_b"] != HERE or whole)


def _convolution(launch: Launch) -> Output | None:
    """The output of a convolution whose samples, channels and lines lie side by side."""
    address = launch.args[-2]
    words, begin = words_at(address, RESULT.names), len(RESULT) + len(FRAME)
    if words["phases"] != 1:
        return None
    phase = words_at(address + 8 * begin, PHASE.names)
    side = phase["out_w"]  # of squares of results, or 1
    size, apart = 1, [("od", "out_d", 1), ("oh", "out_h", side), ("ow", "out_w", side)]
    samples = phase["cols"] // (phase["od"] * phase["oh"] * phase["ow"])
    for count, stride, together in reversed(apart):
        if phase[count] > 1 and phase[stride] != size * together:
            return None
        size *= phase[count] * together
    rows = phase["rows"]
    if side not in (1, 2) or phase["out_0"] or [phase[n] for n in ("out_m", "out_g", "out_n")] != [
            size, rows * size, phase["groups"] * rows * size]:
        return None
    return Output(words["bytes"], samples * phase["groups"] * rows * size, len(launch.args) - 2,
                  8 * (begin + len(PHASE)), 8 * RESULT.place["finish"], False)


def words_at(address: int, names) -> dict[str, int]:
    """Words in memory by their names."""
    return dict(zip(names, integers_at(address, len(names)), strict=True))


#: products, their dtype of sums, and whether something is added
PRODUCTS = {f"product_{sums}{'_added' if added else ''}": (sums, added)
             for sums in ("float32", "float64") for added in (False, True)}
#: routines that finish what they make, and what tells of that
_OUTPUTS = {**dict.fromkeys(PRODUCTS, _product), "conv_result": _convolution}
