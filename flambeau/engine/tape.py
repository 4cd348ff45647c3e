"""What ops ask of the machine, as they ask it: launches of native code on buffers.

While a Recorder listens, every native call is told to it, and every block of memory that is taken
is a buffer of its own, until it dies. An address is then a place in a buffer, in memory that came
from outside, or in a constant. What cannot be told apart this way
(values read by Python, code that does not say what it writes) makes the op a break.
"""

from __future__ import annotations

import bisect
import ctypes
import sys
import threading
import weakref
from array import array

from ..core.kernel import Kernel
from ..devices.cpu.bridge import Watch
from ..devices.cpu.compile import ADDRESSES, KERNELS
from ..devices.cpu.memory import pool_of, return_heap, return_pages
from ..devices.cpu.remember import TABLES, watchers
from . import storage
from .access import extremes_code
from .launch import Check, Launch, Live, Place
from .node import fronts
from .packed import Packed


class Break(Exception):
    """Why an op cannot be part of a program."""


#: native code that is no kernel: the beginning of its name -> positions of what it writes
WRITES: dict[str, tuple[int, ...]] = {
    "product_":            (0,),
    "dot_":                (0,),
    "triangle_":           (0,),
    "conv_":               (0, -3),
    "pool_taps":           (0, 2),
    "pool_places":         (0, 2),
    "pool_":               (0,),
    "planes_":             (0,),
    "resample":            (0,),
    "attention_forward_":  (0, 1),
    "attention_backward_": (0, 1, 2),
    "lstm_forward_":       (0, 1, 2, 3, 4, 5, 6),
    "gru_forward_":        (0, 1, 2, 3, 4, 5, 6),
    "rnn_tanh_forward_":   (0, 1, 2, 3, 4, 5, 6),
    "rnn_relu_forward_":   (0, 1, 2, 3, 4, 5, 6),
    "lstm_backward_":      (0, 1, 2, 3),
    "gru_backward_":       (0, 1, 2, 3),
    "rnn_tanh_backward_":  (0, 1, 2, 3),
    "rnn_relu_backward_":  (0, 1, 2, 3),
    "copy_rows":           (0,),
    "transposed_copy":     (0,),
    "join_rows_":          (0,),
    "sort_":               (1, 2, 3),
    "topk_":               (1, 2, 3),
    "median_":             (1, 2, 3),
    "kthvalue_":           (1, 2, 3),
    "nanmedian_":          (1, 2, 3),
    "mode_":               (1, 2, 3),
    "places_":             (2,),
    "cumsum_":             (0,),
    "cumprod_":            (0,),
    "cummax_":             (0, 1),
    "cummin_":             (0, 1),
    "qr_":                 (0, 1, 3),
    "logcumsumexp_":       (0,),
    "fourier_":            (0,),
    "fill_dropout":        (1, 2),
    "fill_":               (1,),
    "twister_shuffle":     (1,),
    "repeats_":            (0, 1, 2, 3),
    "expand_rows_":        (0,),
    "fold_rows_":          (0,),
    "add_rows_":           (0,),
}  # fmt: skip

#: of what it writes and reads that may be one memory, if nobody reads it afterwards: positions
REPLACES: dict[str, tuple[int, ...]] = {
    "lstm_backward_":     (0, 1, 5),  # slopes of gates, and the gates
    "gru_backward_":      (0, 5),
    "rnn_tanh_backward_": (0, 1, 5),
    "rnn_relu_backward_": (0, 1, 5),
}  # fmt: skip
#: of what it writes, what it reads before: states, forwards what the input gave to the gates, rows
UPDATES: dict[str, tuple[int, ...]] = {
    "lstm_forward_":      (0, 5, 6),
    "gru_forward_":       (0, 5),
    "rnn_tanh_forward_":  (0, 5),
    "rnn_relu_forward_":  (0, 5),
    "lstm_backward_":     (2, 3),
    "gru_backward_":      (2,),
    "rnn_tanh_backward_": (2,),
    "rnn_relu_backward_": (2,),
    "expand_rows_":       (0,),
    "fold_rows_":         (0,),
    "add_rows_":          (0,),
}  # fmt: skip


def positions(table: dict[str, tuple[int, ...]], name: str) -> tuple[int, ...]:
    """What a table says of native code of this name; nothing if it does not know it."""
    return next((found for start, found in table.items() if name.startswith(start)), ())


#: it changes the state of a generator, which is always the same memory
EFFECTS = ("fill_", "twister_shuffle")

#: bytes that are looked at together
_PIECE = 1 << 16


class _NoTensor:
    """What native fronts take for the type of tensors while Python shall decide everything."""


#: held while somebody listens: native code knows one listener at a time
LISTENING = threading.Lock()
#: those that may be listening
_recorders: weakref.WeakSet = weakref.WeakSet()


def _hold_plans() -> None:
    for recorder in list(_recorders):
        recorder.hold()


watchers.append(_hold_plans)


class Recorder:
    """Listens to one op at a time; knows all memory of the segment so far."""

    def __init__(self) -> None:
        return_heap()  # which makes room for what is learnt
        self.packed = Packed()                  # all launches of the path, and of the op at work
        self._kept = self.packed.mark()         # where those begin
        self.changed: set[int] = set()          # memory from outside that it has written
        self.rewrites = False                   # whether it has written to buffers of ops before
        self._own = 0                           # the first buffer of its own
        self.buffers: list[int] = []            # sizes in bytes
        self.outside = 0                        # how many pieces of memory are from outside
        self.constants: list[bytes] = []
        # Buffers whose first contents Python wrote; nothing stands for zeros.
        self.filled: dict[int, bytes] = {}
        self.reason: str | None = None
        self._starts: list[int] = []
        # What is at a start: a buffer, or (the end, a place, where that is) of outside memory.
        self._ranges: dict[int, int | tuple[int, Place, int]] = {}
        self._shared: dict = {}                 # what many launches have in common
        self._written: set[tuple[str, int]] = set()
        self._checked: dict[tuple[str, int], set] = {}  # memory -> indices there, and their bounds
        self._live: dict[int, int] = {}         # id of a number -> its place on the path
        self._numbers: list[float] = []         # they live as long as their ids are known
        # Memory goes here when it dies, and is used again when its address means nothing any more.
        self._dead: list = []
        self._taken: set[int] = set()           # ids of storages
        self._type = fronts.word("tensor").value
        self.thread = threading.get_ident()
        self._forgotten: list = []
        self._kept_hook = self._called          # native code knows it by its address
        _recorders.add(self)

    def plans(self) -> list:
        """All plans that what was recorded may have run: launches know addresses of what they hold.

        Those that were forgotten in the meantime are among them.
        """
        return [*self._forgotten, *(list(table.values()) for table in TABLES if table)]

    def hold(self) -> None:
        """Plans are about to be forgotten."""
        self._forgotten = self.plans()

    # -- memory --------------------------------------------------------------------------------

    def _add_range(self, start: int, what: int | tuple[int, Place, int]) -> None:
        if start not in self._ranges:
            bisect.insort(self._starts, start)
        self._ranges[start] = what

    def _range(self, start: int) -> tuple[int, Place, int]:
        """Where the memory ends that begins here, and the place it belongs to, with its address."""
        what = self._ranges[start]
        if isinstance(what, tuple):
            return what
        return start + self.buffers[what], Place(("buffer", what), 0), start

    def taken(self, mem, nbytes: int) -> None:
        """A block of memory was taken: a new buffer, of the bytes that were asked for."""
        if threading.get_ident() != self.thread:
            return
        if self._dead:
            self._bury()
        mem.free = self._dead
        self._taken.add(id(mem))
        self._add_range(mem.address, len(self.buffers))
        self.buffers.append(max(1, nbytes))

    def _bury(self) -> None:
        """Forget where dead blocks are, and let them be used again.

        Their pages go back to the system: what a program needs of them lies in its arena.
        """
        while self._dead:
            block = self._dead.pop()
            self._taken.discard(id(block))
            if self._ranges.pop(block.address, None) is not None:
                del self._starts[bisect.bisect_left(self._starts, block.address)]
            return_pages(block)
            block.free = pool_of(block.nbytes)
            del block

    def end(self) -> None:
        """Nothing is recorded any more: all memory goes where it came from when it dies."""
        self._bury()
        for number in self._taken:
            block = ctypes.cast(number, ctypes.py_object).value  # it has not died, or it were there
            block.free = pool_of(block.nbytes)
        self._taken.clear()
        del self._kept_hook  # which knows us: nobody should have to look for cycles

    def add_outside(self, low: int, high: int, origin: int) -> None:
        """Memory that is there already, and may be elsewhere on another run.

        What lies in bytes that were named before belongs to the first name.
        """
        root = ("outside", self.outside)
        self.outside += 1
        for start in self._starts:
            end, other, first = self._range(start)
            if low < end and start < high:
                if low < start or end < high:
                    del self._ranges[start]
                    self._starts.remove(start)
                    self._add_range(min(low, start), (max(high, end), other, first))
                return
        if low < high:
            self._add_range(low, (high, Place(root, 0), origin))

    def find(self, address: int) -> Place | None:
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        end, first, origin = self._range(self._starts[at])
        if address >= end:
            return None
        return first if address == origin else Place(first.root, address - origin)

    def _once(self, value):
        """The same object for equal ones: integers, or tuples of them."""
        return self._shared.setdefault(value, value)

    def shared(self, parts: tuple) -> tuple:
        """The same, of parts that others have in common with it."""
        return tuple([self._once(p) if type(p) is tuple else p for p in parts])

    # -- listening -----------------------------------------------------------------------------

    def know(self, numbers, first: int) -> None:
        """Numbers of a path from the first on: objects of their own, that may differ next time."""
        self._numbers += numbers
        self._live.update({id(v): first + k for k, v in enumerate(numbers)})

    def start(self) -> None:
        """Listen."""
        LISTENING.acquire()
        self.packed.cut(self._kept)
        self.changed.clear()
        self.rewrites, self._own = False, len(self.buffers)
        self.reason = None
        self.met: set[int] = set()
        storage.takers.append(self.taken)
        storage.readers.append(self.read)
        storage.checkers.append(self.check)
        fronts.word("tensor").value = id(_NoTensor)
        Watch.word.value = id(self._kept_hook)

    def stop(self) -> None:
        Watch.word.value = 0
        fronts.word("tensor").value = self._type
        storage.takers.remove(self.taken)
        storage.readers.remove(self.read)
        storage.checkers.remove(self.check)
        LISTENING.release()

    @property
    def launches(self) -> list:
        """What the op at work, or the last one, has launched."""
        return self.packed.since(self._kept)

    def keep(self) -> None:
        """What the last op launched is part of the path."""
        self._kept = self.packed.mark()

    def close(self) -> None:
        """There are no more ops."""
        self.packed.cut(self._kept)
        self.packed.close()

    def _add(self, launch: Launch | Check) -> None:
        self.packed.append(launch)
        for kind, number in launch.writes:
            if kind == "outside":
                self.changed.add(number)
            elif number < self._own:
                self.rewrites = True

    def read(self) -> None:
        """Python looked at values."""
        if threading.get_ident() == self.thread:
            self.reason = self.reason or "Python reads values"

    def check(self, index, low: int, high: int, refuse) -> None:
        """Bounds of an index were checked: every run has to."""
        if threading.get_ident() != self.thread:
            return
        place = self.find(index.ptr)
        if place is None:
            self.reason = self.reason or "checks an index nobody named"
            return
        run, words = extremes_code(index)
        known = self._checked.setdefault(place.root, set())
        if (place, words, low, high) in known:
            return  # on the way forward; the way back uses the same index
        known.add((place, words, low, high))
        ends = [Place(("buffer", len(self.buffers) + k), 0) for k in (0, 1)]
        self.buffers += [8, 8]
        self._add(Launch(sys.intern(run.__name__), run, KERNELS[run], (*ends, place, 0),
                         self._once(words), (0, 1)))
        self._add(Check(ends[0], ends[1], low, high, refuse))

    def check_anew(self) -> None:
        """What follows runs by itself, later: indices may have been changed by then."""
        self._checked.clear()

    def _called(self, known_by, *args):
        native = Watch.called[id(known_by)]
        if threading.get_ident() == self.thread:
            if native.name.startswith("within_"):
                return 0  # bounds are checked the way that programs can check them too
            if native.name == "copy" and self.reason is None and self._is_host_fill(*args):
                native.unwatched(*args)
                return self._host_filled(self.find(args[0]))
            # A generator that is drawn from for the first time is made, and seeded, only now.
            if self.reason is None and native.name != "twister_seed":
                try:
                    launch = self._launch(native.function, native.name, args)
                except Break as why:
                    self.reason = str(why)
                else:
                    self._add(launch)
                    for root in self._checked.keys() & launch.writes:
                        del self._checked[root]
        return native.unwatched(*args)

    def _launch(self, function, name: str, args) -> Launch:
        if function not in ADDRESSES:
            raise Break(f"{name} cannot be called from a program")
        kernel = KERNELS.get(function)
        if kernel is None:
            return self._opaque(function, name, args)
        count = len(kernel.operands)
        words = None
        last = self._once(args[-1])
        if not kernel.dense:
            loops = kernel.kept + kernel.reduced
            size = 1 + loops * (1 + count) + sum(kernel.indirect)
            words = self._once(integers_at(last - 8, size))
        places = [self._operand(kernel, k, args[k], words, last) for k in range(count)]
        written = self._once(tuple(k for k, o in enumerate(kernel.operands) if o.written))
        self._written.update(places[k].root for k in written)
        numbers = [self._number(a) for a in args[count:-1]]
        return Launch(name, function, kernel, (*places, *numbers, last), words, written)

    def _operand(self, kernel: Kernel, k: int, address: int, words, last: int) -> Place:
        place = self.find(address)
        operand = kernel.operands[k]
        if place is None:
            if operand.written:
                raise Break("writes to memory nobody named")
            return self._constant(address, _extent(kernel, k, words, last))
        if place.root[0] == "buffer" and place.root not in self._written and not operand.written:
            self._host_filled(place)
        return place

    def _constant(self, address: int, extent: tuple[int, int] | None) -> Place:
        if extent is None:
            raise Break("reads memory nobody named")
        low, high = extent
        self.constants.append(ctypes.string_at(address + low, high - low))
        return Place(("constant", len(self.constants) - 1), -low)

    def seen(self, place: Place) -> None:
        """A result lies here: if no launch wrote it, Python did."""
        if place.root[0] == "buffer" and place.root not in self._written:
            self._host_filled(place)

    def _is_host_fill(self, target: int, source: int, size: int) -> bool:
        """Whether a copy is of numbers that an op has made of its shapes, to a buffer of its own.

        Had it read values to make them, that would be why it is no part of a program.
        """
        place = self.find(target)
        return self.find(source) is None and place is not None and (
            place.root[0] == "buffer" and place.root not in self._written)

    def _host_filled(self, place: Place) -> None:
        """A buffer that is read before any launch wrote to it: Python filled it."""
        number = place.root[1]
        if number not in self.filled:
            start = next(s for s in self._starts if self._range(s)[1].root == place.root)
            size = self.buffers[number]
            self.filled[number] = b"" if _are_zeros(start, size) else ctypes.string_at(start, size)
        self._written.add(place.root)

    def _number(self, a):
        index = self._live.get(id(a)) if type(a) is float else None
        if index is None:
            return a
        self.met.add(index)
        return Live(index)

    def writes(self, name: str) -> tuple[int, ...]:
        """Positions of what native code that is no kernel writes; nothing if nobody knows."""
        return positions(WRITES, name)

    def _opaque(self, function, name: str, args) -> Launch:
        written = self.writes(name)
        if not written:
            raise Break(f"{name} does not say what it writes")
        written = self._once(tuple(i % len(args) for i in written if args[i] != 0))
        found = [self.find(a) if type(a) is int and a > 1 << 16 else None for a in args]
        updates = positions(UPDATES, name)
        for i, place in enumerate(found):
            if place is not None and place.root[0] == "buffer" and (
                    i in updates or i not in written) and place.root not in self._written:
                self._host_filled(place)
        for i in written:
            target = found[i]
            if target is None:
                raise Break(f"{name} writes to memory nobody named")
            self._written.add(target.root)
        mixed = tuple([p if p is not None else self._once(a) if type(a) is int else a
                       for a, p in zip(args, found, strict=True)])
        return Launch(name, function, None, mixed, None, written, updates,
                      name.startswith(EFFECTS))


def integers_at(address: int, count: int) -> tuple[int, ...]:
    """Words in memory; for each number of them ctypes would make a type."""
    return tuple(array("q", ctypes.string_at(address, 8 * count)))


def _are_zeros(address: int, size: int) -> bool:
    """Whether there is nothing but zeros in some bytes; they are many, and not copied at once."""
    return all(raw.count(0) == len(raw) for raw in (
        ctypes.string_at(address + k, min(_PIECE, size - k)) for k in range(0, size, _PIECE)))


def _extent(kernel: Kernel, k: int, words, last: int) -> tuple[int, int] | None:
    """Bytes before and after its address that a kernel reads of an operand."""
    operand = kernel.operands[k]
    size = operand.dtype.itemsize
    if kernel.dense:
        return (0, size * last) if operand.step == "1" else (0, size)
    if kernel.indirect and kernel.indirect[k]:
        return None
    loops = kernel.kept + kernel.reduced
    sizes = words[1:1 + loops]
    strides = words[1 + loops * (1 + k):1 + loops * (2 + k)]
    reach = [(n - 1) * s for n, s in zip(sizes, strides, strict=True)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + size
