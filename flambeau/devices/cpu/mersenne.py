"""The generator behind the CPU's random numbers: torch's Mersenne twister.

Seeds, advances and saves as torch's CPU generator does, so states can be exchanged with it. The
raw words come from numpy's bit generator a block of 624 at a time.
"""

import math
import os

from ...core.config import DEFAULT_SEED
from ...core.lazily import np

WORDS = 624
STATE_BYTES = 5056

# torch's own layout of a saved state; `left` counts down to the next block of words.
STATE = np.dtype(
    [
        ("seed", "<u8"),
        ("left", "<i4"),
        ("seeded", "<i4"),
        ("next", "<u8"),
        ("key", "<u8", WORDS),
        ("normal_x", "<f8"),
        ("normal_y", "<f8"),
        ("normal_rho", "<f8"),
        ("normal_is_valid", "<i4"),
        ("pad", "<i4"),
        ("next_float_normal", "<f4"),
        ("float_is_valid", "u1"),
        ("end", "u1", 3),
    ]
)


class Mt19937:
    """A Mersenne twister that seeds, saves and advances as torch's CPU generator does."""

    def __init__(self, seed=DEFAULT_SEED):
        self._bits = np.random.MT19937(0)
        self._generator = np.random.Generator(self._bits)
        self._seeder = np.random.RandomState(self._bits)
        self.manual_seed(seed)

    def __repr__(self):
        return f"Mt19937(seed={self._seed}, next={self._next})"

    def manual_seed(self, seed):
        """Start over from a 64-bit seed; a negative one counts down from 2**64."""
        if not -(2**63) <= seed < 2**64:
            raise ValueError(f"manual_seed: {seed} is not a 64-bit integer")
        self._seed = int(seed) % 2**64
        self._seeder.seed(self._seed & 0xFFFFFFFF)
        self._block = np.empty(0, np.uint32)
        self._next = WORDS
        self._fresh = True
        self.next_normal = None
        self.next_float_normal = None
        return self

    def seed(self):
        """Start over from a seed nobody can foretell, and return it."""
        seed = int.from_bytes(os.urandom(8), "little") & (2**53 - 1)
        self.manual_seed(seed)
        return seed

    def initial_seed(self):
        """The seed of this stream."""
        return self._seed

    def get_state(self):
        """The state as torch saves it: 5056 bytes."""
        state = np.zeros((), STATE)
        state["seed"], state["seeded"] = self._seed, 1
        state["left"] = WORDS + 1 - self._next
        state["next"] = 0 if self._fresh else self._next
        state["key"] = self._bits.state["state"]["key"]
        if self.next_normal is not None:
            state["normal_y"], state["normal_is_valid"] = self.next_normal, 1
        if self.next_float_normal is not None:
            state["next_float_normal"], state["float_is_valid"] = self.next_float_normal, 1
        return np.frombuffer(state.tobytes(), np.uint8).copy()

    def set_state(self, state):
        """Take over a state saved here or by torch."""
        state = np.ascontiguousarray(state)
        if state.dtype != np.uint8:
            raise TypeError(f"set_state: expected a uint8 tensor, got {state.dtype}")
        if state.size != STATE_BYTES:
            raise RuntimeError(f"set_state: expected {STATE_BYTES} bytes, got {state.size}")
        saved = state.reshape(-1).view(STATE)[0]
        left, position = int(saved["left"]), int(saved["next"])
        if not saved["seeded"] or not 0 < left <= WORDS or position > WORDS:
            raise RuntimeError("set_state: these bytes are not a valid generator state")
        self._seed = int(saved["seed"])
        self._fresh = left == 1 and position == 0
        self._restore(saved["key"].astype(np.uint32), WORDS if left == 1 else position)
        self.next_normal = float(saved["normal_y"]) if saved["normal_is_valid"] else None
        self.next_float_normal = (
            float(saved["next_float_normal"]) if saved["float_is_valid"] else None
        )

    def clone(self):
        """Another generator at the same place of the same stream."""
        twin = Mt19937(self._seed)
        twin.set_state(self.get_state())
        return twin

    def _restore(self, key, position):
        inner = self._bits.state
        inner["state"] = {"key": key, "pos": WORDS if position == WORDS else 0}
        self._bits.state = inner
        if position != WORDS:
            self._block = self._bits.random_raw(WORDS).astype(np.uint32)
        self._next = position

    def _refill(self):
        self._block = self._bits.random_raw(WORDS).astype(np.uint32)
        self._next = 0
        self._fresh = False

    def words(self, n):
        """The next n 32-bit words; not to be written to."""
        start = self._next
        if n <= WORDS - start:
            self._next = start + n
            return self._block[start : start + n]
        out = np.empty(n, np.uint32)
        held = WORDS - start
        out[:held] = self._block[start:]
        whole = (n - held) // WORDS * WORDS
        if whole:
            out[held : held + whole] = self._whole_blocks(whole)
        self._next, self._fresh = WORDS, False
        if held + whole < n:
            self._refill()
            self._next = n - held - whole
            out[held + whole :] = self._block[: self._next]
        return out

    def _whole_blocks(self, n):
        # The same words either way; one call starts sooner, the other needs half the memory.
        if n <= 200 * WORDS:
            return self._bits.random_raw(n)
        return self._generator.integers(0, 1 << 32, size=n, dtype=np.uint32)

    def wide_words(self, n):
        """The next n 64-bit words, each made of two, the high half first."""
        pairs = self.words(2 * n).view("<u8")
        return (pairs << np.uint64(32)) | (pairs >> np.uint64(32))

    def random(self):
        """One 32-bit word."""
        if self._next == WORDS:
            self._refill()
        self._next += 1
        return int(self._block[self._next - 1])

    def random64(self):
        """One 64-bit word."""
        high = self.random()
        return high << 32 | self.random()

    def uniform(self):
        """One number of [0, 1), with 53 bits."""
        return (self.random64() & (2**53 - 1)) * 2.0**-53

    def normal(self):
        """One standard normal number; they are made in pairs, and the second one is kept."""
        kept, self.next_normal = self.next_normal, None
        if kept is not None:
            return kept
        turn, tail = self.uniform(), self.uniform()
        radius, angle = math.sqrt(-2.0 * math.log1p(-tail)), 2.0 * math.pi * turn
        self.next_normal = radius * math.sin(angle)
        return radius * math.cos(angle)
