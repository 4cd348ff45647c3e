"""The generator behind the CPU's random numbers: torch's Mersenne twister.

Seeds, advances and saves as torch's CPU generator does, so states can be exchanged with it. The
words are made by machine code (assembly/twister.py) in memory that fills draw from directly.
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref

from ...core.config import DEFAULT_SEED
from ...core.lazily import np
from .assembly.state import FRESH, KEPT, LOCK, NEXT, NORMAL, RAW, STATE_SIZE, WORDS
from .foundry import machine_code
from .memory import allocate

STATE_BYTES = 5056
_CODE = ("twister_seed", "twister_temper", "twister_words", "twister_normals", "twister_shuffle",
         "twister_inside_out")


@functools.cache
def layout():
    """torch's own layout of a saved state; `left` counts down to the next block of words."""
    return np.dtype([
        ("seed", "<u8"), ("left", "<i4"), ("seeded", "<i4"), ("next", "<u8"),
        ("key", "<u8", WORDS), ("normal_x", "<f8"), ("normal_y", "<f8"), ("normal_rho", "<f8"),
        ("normal_is_valid", "<i4"), ("pad", "<i4"), ("next_float_normal", "<f4"),
        ("float_is_valid", "u1"), ("end", "u1", 3)])


def code(name: str):
    """One of the generator's own routines."""
    return machine_code("twister", _CODE)[name]


_alive: weakref.WeakSet = weakref.WeakSet()


def _unlock_all() -> None:
    # A forked process has no other thread that could be drawing.
    for one in _alive:
        one._word(LOCK).value = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_all)


class Mt19937:
    """A Mersenne twister that seeds, saves and advances as torch's CPU generator does.

    `state` is the address of its memory, which machine code draws from.
    """

    def __init__(self, seed: int = DEFAULT_SEED):
        self._memory = allocate(STATE_SIZE)
        self.state = self._memory.address
        self.next_float_normal: float | None = None
        self.manual_seed(seed)
        _alive.add(self)

    def __repr__(self) -> str:
        return f"Mt19937(seed={self._seed}, next={self._word(NEXT).value})"

    def _word(self, place: int) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self.state + place)

    def manual_seed(self, seed: int) -> Mt19937:
        """Start over from a 64-bit seed; a negative one counts down from 2**64."""
        if not -(2**63) <= seed < 2**64:
            raise ValueError(f"manual_seed: {seed} is not a 64-bit integer")
        self._seed = int(seed) % 2**64
        code("twister_seed")(self.state, self._seed & 0xFFFFFFFF)
        self.next_float_normal = None
        return self

    def seed(self) -> int:
        """Start over from a seed nobody can foretell, and return it."""
        seed = int.from_bytes(os.urandom(8), "little") & (2**53 - 1)
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed of this stream."""
        return self._seed

    @property
    def next_normal(self) -> float | None:
        """The second of a pair of normal numbers, if it was not drawn yet."""
        if not self._word(KEPT).value:
            return None
        return ctypes.c_double.from_address(self.state + NORMAL).value

    def _key(self):
        """The last block of words, in place."""
        return np.frombuffer((ctypes.c_uint32 * WORDS).from_address(self.state + RAW), np.uint32)

    def get_state(self):
        """The state as torch saves it: 5056 bytes."""
        state = np.zeros((), layout())
        position = self._word(NEXT).value
        state["seed"], state["seeded"] = self._seed, 1
        state["left"] = WORDS + 1 - position
        state["next"] = 0 if self._word(FRESH).value else position
        state["key"] = self._key()
        if self.next_normal is not None:
            state["normal_y"], state["normal_is_valid"] = self.next_normal, 1
        if self.next_float_normal is not None:
            state["next_float_normal"], state["float_is_valid"] = self.next_float_normal, 1
        return np.frombuffer(state.tobytes(), np.uint8).copy()

    def set_state(self, state) -> None:
        """Take over a state saved here or by torch."""
        state = np.ascontiguousarray(state)
        if state.dtype != np.uint8:
            raise TypeError(f"set_state: expected a uint8 tensor, got {state.dtype}")
        if state.size != STATE_BYTES:
            raise RuntimeError(f"set_state: expected {STATE_BYTES} bytes, got {state.size}")
        saved = state.reshape(-1).view(layout())[0]
        left, position = int(saved["left"]), int(saved["next"])
        if not saved["seeded"] or not 0 < left <= WORDS or position > WORDS:
            raise RuntimeError("set_state: these bytes are not a valid generator state")
        self._seed = int(saved["seed"])
        self._key()[:] = saved["key"]
        code("twister_temper")(self.state, WORDS if left == 1 else position)
        self._word(FRESH).value = left == 1 and position == 0
        self._word(KEPT).value = bool(saved["normal_is_valid"])
        ctypes.c_double.from_address(self.state + NORMAL).value = float(saved["normal_y"])
        self.next_float_normal = (
            float(saved["next_float_normal"]) if saved["float_is_valid"] else None)

    def clone(self) -> Mt19937:
        """Another generator at the same place of the same stream."""
        twin = Mt19937(self._seed)
        ctypes.memmove(twin.state, self.state, STATE_SIZE)
        twin._word(LOCK).value = 0
        twin.next_float_normal = self.next_float_normal
        return twin

    def words(self, n: int):
        """The next n 32-bit words."""
        out = np.empty(n, np.uint32)
        code("twister_words")(self.state, out.ctypes.data, n)
        return out

    def wide_words(self, n: int):
        """The next n 64-bit words, each made of two, the high half first."""
        pairs = self.words(2 * n).view("<u8")
        return (pairs << np.uint64(32)) | (pairs >> np.uint64(32))

    def random(self) -> int:
        """One 32-bit word."""
        return int(self.words(1)[0])

    def random64(self) -> int:
        """One 64-bit word."""
        return int(self.wide_words(1)[0])

    def uniform(self) -> float:
        """One number of [0, 1), with 53 bits."""
        return (self.random64() & (2**53 - 1)) * 2.0**-53

    def normal(self) -> float:
        """One standard normal number; they are made in pairs, and the second one is kept."""
        out = ctypes.c_double()
        code("twister_normals")(self.state, ctypes.addressof(out), 1)
        return out.value
