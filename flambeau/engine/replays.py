"""Composites that come again are played: the native calls that they came to, on new memory, and
none of the Python between those.

A call is known by the signatures of its tensors and the values of all else. After some calls of one
kind the next is recorded (see tape.py): what it launched, on what memory. The one after that is
played and made as ever, and both are compared. Calls that read values, draw numbers, write to what
they were given or hand it on are never played, nor are those that are part of a graph.
"""

from __future__ import annotations

import ctypes
from array import array
from itertools import pairwise
from types import FunctionType
from typing import Any

from ..core import dtype as dt
from ..core.device import CPU
from ..devices.cpu.bounds import within
from ..devices.cpu.remember import TABLES, keep, watchers
from ..ops.declare import Op
from .access import ASKED
from .convert import raw_array
from .eager import compile_front, new_table
from .fresh import empty
from .interception import PLAIN, tracers
from .modes import autocasting, modes
from .storage import allocate, checkers
from .tensor import Signature, Tensor, make, signature

#: calls of one kind before the next is recorded, which takes as long as some hundred of them
OFTEN = 16
#: elements of a tensor, and bytes of all that lies between: beyond, Python matters little
_MOST_ELEMENTS, _MOST_BYTES = 1 << 16, 1 << 20
_ALIGN = 64
#: native code that answers whether it failed, which is then left to the op, and what it writes
_ANSWERING = {
    "cholesky_": (0, 1, 3),
    "eigh_":     (0, 1, 3, 4),
    "exchanges_": (0, 2),
    "geqrf_":    (0, 1, 3),
    "inverse_":  (0, 1, 3, 4),
    "least_":    (0, 1, 4, 5),
    "lu_":       (0, 1, 2, 4),
    "orgqr_":    (0, 3),
    "solve_":    (0, 1, 6, 7),
    "svd_":      (0, 1, 2, 4, 5),
}

#: arguments that are known by their type and value
_VALUES = frozenset((int, bool, str, type(None), dt.dtype, Signature))


#: tables of what is known of calls, and the plans that were forgotten last
_tables: list[dict] = []
_forgotten: list = []


def _table() -> dict:
    _tables.append(made := new_table())
    return made


def _begin_anew() -> None:
    """Plans are about to be forgotten, and with them all that knows their words by address; they
    live until the next time, for another thread may be at work with them."""
    _forgotten[:] = [list(table.values()) for table in TABLES]
    for known in _tables:
        known.clear()


watchers.append(_begin_anew)


def known_by(args, tensors: list) -> list | None:
    """What arguments are known by; None where they are not plain, or part of a graph."""
    key: list = []
    for a in args:
        kind = a.__class__
        if kind is Tensor or (kind in PLAIN and isinstance(a, Tensor)):
            if a.node is not None and modes.grad:
                return None
            key.append(a.sig)
            tensors.append(a)
        elif kind in _VALUES:
            key += (kind, a)
        elif kind is float:
            key += (kind, a or str(a))  # 0 has two signs
        elif kind is tuple or kind is list:
            inner = known_by(a, tensors)
            if inner is None:
                return None
            key += (kind, tuple(inner))
        else:
            return None
    return key


def playing(op: Op, otherwise):
    """The front of a composite, given the one that knows all calls."""
    known, name = _table(), op.name

    def front(*args, **named):
        if tracers or checkers or autocasting or Tensor not in PLAIN:
            return otherwise(*args, **named)
        tensors: list = []
        key: Any = known_by((*args, *named, *named.values()) if named else args, tensors)
        if key is None:
            return otherwise(*args, **named)
        key = (dt.default_float(), len(args), *key)
        found = known.get(key)
        if found.__class__ is FunctionType:
            out = found(*tensors)
            return otherwise(*args, **named) if out is None else out
        if found is False:
            return otherwise(*args, **named)
        return _met(name, known, key, found, otherwise, args, named, tensors)

    front.__name__, front.__doc__ = name, op.doc
    return front


def playing_back(name: str, formula):
    """f(parents, values) of an op: what `formula(parents, values)` gives, a gradient or None for
    each of the parents of a step, where nothing of it is recorded."""
    known = _table()

    def front(parents: tuple, values: list) -> list:
        if tracers or checkers or autocasting or Tensor not in PLAIN:
            return formula(parents, values)
        tensors: list = []
        key: Any = known_by(values, tensors)
        if key is None:
            return formula(parents, values)
        key = (dt.default_float(), *[p is None for p in parents], *key)
        found = known.get(key)
        if found.__class__ is FunctionType:
            out = found(*tensors)
            return formula(parents, values) if out is None else out
        if found is False:
            return formula(parents, values)
        return _met(f"{name}_back", known, key, found, lambda *given: formula(parents, given),
                    values, {}, tensors, True)

    return front


def _met(name: str, known: dict, key: tuple, found, run, args, named: dict, tensors: list,
         handed=False):
    """The result of a call that is not played yet: it is counted, recorded, or compared."""
    if found is None or found.__class__ is int:
        count = 1 if found is None else found + 1
        if count <= OFTEN:
            keep(known, key, count)
            return run(*args, **named)
        out, known[key] = _recorded(name, run, args, named, tensors, count, handed)
        return out
    out = run(*args, **named)
    known[key] = found.play if found.gives(out, tensors) else False
    return out


class _Trial:
    """What may be played, once it was seen to give what the op gives."""

    def __init__(self, play):
        self.play = play

    def gives(self, wanted, tensors: list) -> bool:
        found = self.play(*tensors)
        return found is not None and all(
            _bytes_of(a) == _bytes_of(b)
            for a, b in zip(_parts(found), _parts(wanted), strict=True))


def _bytes_of(x: Tensor | None):
    return x if x is None else (x.sig, raw_array(x).tobytes())


def _parts(out) -> list:
    return [out] if isinstance(out, Tensor) else list(out)


# -- recording -------------------------------------------------------------------------------------


def _recorded(name: str, run, args, named: dict, tensors: list, count: int, handed: bool):
    """(result, what to remember of a call): what may be played, or that it is not to be."""
    from .tape import LISTENING  # not needed before something comes often

    if not tensors or any([x.sig.tag is not None or x.sig.device is not CPU or not (
            0 < x.sig.numel <= _MOST_ELEMENTS) for x in tensors]):
        return run(*args, **named), False
    if LISTENING.locked():
        return run(*args, **named), count
    recorder = _listener()
    if not _are_apart(tensors):
        copies = iter([_copied(x) for x in tensors])
        args = [_replaced(a, copies) for a in args]
        named = {name: _replaced(a, copies) for name, a in named.items()}
        tensors = []
        known_by((*args, *named.values()), tensors)
    for x in tensors:
        recorder.add_outside(*_extent(x), x.ptr)
    recorder.start()
    try:
        out = run(*args, **named)
    finally:
        recorder.stop()
    try:
        play = _written(name, recorder, out, len(tensors), handed)
    finally:
        recorder.end()
    return out, False if play is None else _Trial(play)


def _are_apart(tensors: list) -> bool:
    """Whether each lies in memory of its own."""
    extents = sorted(map(_extent, tensors))
    return all(a[1] <= b[0] for a, b in pairwise(extents))


def _copied(x: Tensor) -> Tensor:
    """The same in memory of its own, and as it lay."""
    low, high = _extent(x)
    mem = allocate(high - low)
    ctypes.memmove(mem.address, low, high - low)
    return make(x.sig, mem, mem.address + x.ptr - low)


def _replaced(value, tensors):
    """Arguments with other tensors in the places of theirs."""
    if isinstance(value, Tensor):
        return next(tensors)
    if value.__class__ is tuple or value.__class__ is list:
        return value.__class__([_replaced(v, tensors) for v in value])
    return value


def _extent(x: Tensor) -> tuple[int, int]:
    """The addresses that a tensor's elements lie between."""
    reach = [(n - 1) * s for n, s in zip(x.sig.shape, x.sig.strides, strict=True)]
    size = x.sig.dtype.itemsize
    return (x.ptr + sum([r for r in reach if r < 0]) * size,
            x.ptr + (sum([r for r in reach if r > 0]) + 1) * size)


def _listener():
    """A recorder that is also told of indices, and when they were checked."""
    from .tape import Recorder, positions

    class Listener(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.bounds: list[tuple] = []

        def writes(self, name: str) -> tuple[int, ...]:
            return super().writes(name) or positions(_ANSWERING, name)

        def answers(self, launch) -> bool:
            return bool(positions(_ANSWERING, launch.name))

        def check(self, index, low: int, high: int, refuse) -> None:
            place, sig = self.find(index.ptr), index.sig
            if place is None or sig.dtype not in ASKED:
                self.reason = "checks an index that native code does not"
            else:
                self.bounds.append((self.packed.count, place, sig, low, high))

    return Listener()


# -- what is played --------------------------------------------------------------------------------


def _written(name: str, recorder, out, count: int, handed: bool):
    """A function of the tensors that does what was recorded; None if that cannot be said of it.

    What was given is part of the result only if it may be `handed` on.
    """
    if not isinstance(out, (Tensor, tuple, list)):
        return None
    parts = [t for t in _parts(out) if t is not None or not handed]
    if not all(type(t) is Tensor and t.node is None and t.sig.tag is None for t in parts):
        return None
    parts = [t for t in parts if t.sig.numel]
    ends = [recorder.find(t.ptr) for t in parts]
    if not parts or None in ends or any(p.root[0] == "constant" for p in ends):
        return None
    if not handed and (len({p.root for p in ends}) < len(ends)
                       or any(p.root[0] == "outside" for p in ends)):
        return None
    for place in ends:
        recorder.seen(place)
    launches = recorder.launches
    made = {root for launch in launches for root in launch.writes} | {p.root for p in ends}
    if recorder.reason or recorder.changed or any(launch.effect for launch in launches) or (
            any(("buffer", b) in made for b in recorder.filled)):
        return None
    return _Text(recorder, launches, out, parts, ends).compiled(name, count)


class _Text:
    """The text of what is played, and the objects that it names."""

    def __init__(self, recorder, launches, out, parts, ends):
        self.recorder, self.lines = recorder, []
        self.scope: dict[str, Any] = {"empty": empty, "make": make}
        self.held: list = []      # memory that the text knows by its address
        self.fixed: dict = {}     # what never changes -> its address
        self.homes: dict[int, int] = {}  # buffer of a result -> the first one that lies there
        for k, p in enumerate(ends):
            if p.root[0] == "buffer":
                self.homes.setdefault(p.root[1], k)
        self._memory(launches)
        results = [self._result(k, t.sig, p) for k, (t, p) in enumerate(
            zip(parts, ends, strict=True))]
        self._calls(launches)
        self.lines.append(f"return {self._answer(out, results)}")

    def compiled(self, name: str, count: int):
        if self.room > _MOST_BYTES:
            return None
        given = [f"x{k}" for k in range(count)]
        starts = [f"a{k} = x{k}.ptr" for k in range(count)]
        text = "".join(f"    {line}\n" for line in (*starts, *self.lines))
        play = compile_front(f"def {name}({', '.join(given)}):\n{text}", name, self.scope)
        self.scope["held"] = self.held
        return play

    def _memory(self, launches) -> None:
        """One block for all that lies between."""
        used = [a.root[1] for launch in launches for _, a in launch.places()
                if a.root[0] == "buffer"]
        used += [place.root[1] for _, place, *_ in self.recorder.bounds
                 if place.root[0] == "buffer"]
        self.room, self.starts = 0, {}
        for b in dict.fromkeys(used):
            if b not in self.homes and b not in self.recorder.filled:
                self.starts[b] = self.room
                self.room += -(-self.recorder.buffers[b] // _ALIGN) * _ALIGN
        if self.room:
            self.scope["between"] = signature(dt.uint8, (self.room,))
            self.lines += ["room = empty(between)", "at = room.ptr"]

    def _result(self, k: int, sig, place) -> str:
        """Takes the memory of a result, and says how the tensor over it is made."""
        kind, number = place.root
        self.scope[f"sig{k}"] = sig
        if kind == "outside":
            return f"make(sig{k}, x{number}.mem, a{number} + {place.offset})"
        home, size = self.homes[number], self.recorder.buffers[number]
        if home != k:
            return f"make(sig{k}, r{home}.mem, b{home} + {place.offset})"
        whole = sig.contiguous and not place.offset and size == max(1, sig.nbytes)
        self.scope[f"kind{k}"] = sig if whole else signature(dt.uint8, (size,))
        self.lines += [f"r{k} = empty(kind{k})", f"b{k} = r{k}.ptr"]
        return f"r{k}" if whole else f"make(sig{k}, r{k}.mem, b{k} + {place.offset})"

    def _calls(self, launches) -> None:
        bounds = list(self.recorder.bounds)
        for n, launch in enumerate(launches):
            while bounds and bounds[0][0] <= n:
                self._bound(*bounds.pop(0)[1:])
            self.scope[f"f{n}"] = launch.function
            args = [self._argument(a, launch, k) for k, a in enumerate(launch.args)]
            call = f"f{n}({', '.join(args)})"
            self.lines += [f"if {call}:", "    return None"] if self.recorder.answers(launch) else [
                call]
        for bound in bounds:
            self._bound(*bound[1:])

    def _bound(self, place, sig, low: int, high: int) -> None:
        """An index that is out of bounds is left to the op, which says so."""
        self.scope[check := f"within_{sig.dtype.name}"] = within(sig.dtype.name)
        self.lines += [f"if not {check}({self._address(place)}, {sig.numel}, {low}, {high}):",
                       "    return None"]

    def _argument(self, a, launch, k: int) -> str:
        if hasattr(a, "root"):
            return self._address(a)
        if launch.words is not None and k == len(launch.args) - 1:
            return str(self._words(launch.words) + 8)
        if type(a) is int:
            return str(a)
        name = f"v{len(self.scope)}"
        self.scope[name] = a
        return name

    def _address(self, place) -> str:
        kind, number = place.root
        if kind == "outside":
            start = f"a{number}"
        elif kind == "constant":
            start = str(self._bytes(("constant", number), self.recorder.constants[number]))
        elif number in self.recorder.filled:
            size = self.recorder.buffers[number]
            start = str(self._bytes(("filled", number),
                                    self.recorder.filled[number] or bytes(size)))
        elif number in self.homes:
            start = f"b{self.homes[number]}"
        else:
            start = f"at + {self.starts[number]}"
        return f"{start} + {place.offset}" if place.offset else start

    def _words(self, words: tuple[int, ...]) -> int:
        if words not in self.fixed:
            self.held.append(made := array("q", words))
            self.fixed[words] = made.buffer_info()[0]
        return self.fixed[words]

    def _bytes(self, key: tuple, raw: bytes) -> int:
        if key not in self.fixed:
            self.held.append(mem := allocate(max(1, len(raw))))
            ctypes.memmove(mem.address, raw, len(raw))
            self.fixed[key] = mem.address
        return self.fixed[key]

    def _nothing(self, t: Tensor) -> str:
        """A new tensor without elements."""
        name = f"none{len(self.scope)}"
        self.scope[name] = t.sig
        return f"empty({name})"

    def _answer(self, out, results: list[str]) -> str:
        if isinstance(out, Tensor):
            return results[0]
        left = iter(results)
        listed = ", ".join(["None" if t is None else next(left) if t.sig.numel else self._nothing(t)
                            for t in out])
        if type(out) is list:
            return f"[{listed}]"
        self.scope["kind"] = type(out)
        return f"kind({listed})" if hasattr(out, "_fields") else f"kind(({listed},))"


#: composites that take long enough in Python
NAMES = frozenset((
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "addr", "aminmax", "as_strided_copy",
    "as_strided_scatter", "batch_norm", "bilinear", "block_diag", "cartesian_prod", "cdist",
    "channel_shuffle", "cholesky", "cholesky_ex", "cholesky_inverse", "cholesky_solve",
    "column_stack", "cond", "conv1d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "corrcoef", "cov", "cross", "cross_entropy", "cumulative_trapezoid",
    "diag_embed", "diagflat", "diagonal_copy", "diagonal_scatter", "diff", "dist", "dstack", "eigh",
    "eigvalsh", "einsum", "fft2", "fftshift", "flip", "fliplr", "flipud", "float_power", "fold",
    "gather", "geqrf", "glu", "gradient", "group_norm", "hfft", "hfft2", "hfftn",
    "householder_product", "hstack", "ifft2", "ifftn", "ifftshift", "ihfft2", "ihfftn", "index_add",
    "index_copy", "index_fill", "index_put", "index_reduce", "index_select", "interpolate", "inv",
    "inv_ex", "irfft", "irfft2", "irfftn", "kron", "kthvalue", "layer_norm", "ldexp",
    "least_squares", "linear", "local_response_norm", "logcumsumexp", "lstsq", "lu", "lu_factor",
    "lu_factor_ex", "lu_solve", "lu_unpack", "matrix_norm", "matrix_power", "matrix_rank",
    "max_pool1d", "max_pool2d", "max_pool3d", "mode", "multi_dot", "multi_margin_loss",
    "native_batch_norm", "native_group_norm", "native_layer_norm", "nll_loss", "norm", "ormqr",
    "pad", "pairwise_distance", "pdist", "pinv", "pinverse", "pixel_shuffle", "pixel_unshuffle",
    "polygamma", "put", "qr", "renorm", "repeat", "repeat_interleave", "rfft2", "roll", "rot90",
    "rsub", "scatter", "scatter_add", "scatter_reduce", "select_scatter", "singular_values",
    "slice_scatter", "softmin", "solve", "solve_ex", "solve_triangular", "split_with_sizes_copy",
    "std_mean", "stft", "svd", "svdvals", "symmetric_values", "take_along_dim", "tensordot",
    "tensorinv", "tensorsolve", "tile", "trapezoid", "triangular_solve", "unbind_copy", "unfold",
    "unfold_copy", "upsample", "upsample_bilinear", "upsample_nearest", "vander", "var_mean",
    "vecdot", "vector_norm", "vstack"))
#: ops whose formulas do
BACKS = frozenset((
    "_adaptive_avg_pool1d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_scatter_fold",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices", "addbmm", "addmm", "addmv", "addr", "attention_weights",
    "baddbmm", "both_extremes", "cholesky_ex", "cummax", "cummin", "cumsum", "deviation",
    "deviation_and_mean", "eigh", "embedding", "fft_c2c", "fft_c2r", "fft_r2c",
    "fractional_max_pool2d_with_indices", "fractional_max_pool3d_with_indices", "im2col",
    "kthvalue", "logcumsumexp", "max_all", "max_along", "max_pool1d_with_indices",
    "max_pool2d_with_indices", "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d",
    "max_unpool3d", "median_all", "median_along", "min_all", "min_along", "mode",
    "nanmedian_all", "nanmedian_along", "pseudo_inverse", "qr", "shifted_logsumexp",
    "solve_triangular", "svd", "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_trilinear3d",
    "variance", "variance_and_mean", "vector_norm"))
