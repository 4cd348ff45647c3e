"""The source of random numbers: torch's Generator over the CPU's Mersenne twister."""

from __future__ import annotations

import os
from typing import Any

from ..core.config import DEFAULT_SEED
from ..core.device import CPU, device
from ..core.lazily import Lazily, np
from . import convert
from .interception import plainly, tracers, tracing
from .onlookers import notice, onlookers
from .tensor import Tensor

mersenne: Any = Lazily("flambeau.devices.cpu.mersenne")


class Generator:
    """A stream of random numbers with a seed and a state of its own.

    >>> Generator().manual_seed(5).initial_seed()
    5
    """

    __module__ = "torch"

    def __init__(self, device="cpu"):
        self.device = _available(device)
        self._seed, self._twister = DEFAULT_SEED, None

    @property
    def twister(self) -> Any:
        """The words; made when first drawn from."""
        if self._twister is None:
            self._twister = mersenne.Mt19937(self._seed)
        return self._twister

    def manual_seed(self, seed: int) -> Generator:
        """Start over from a seed."""
        seed = int(seed)
        if not -(2**63) <= seed < 2**64:
            raise RuntimeError(f"Overflow when unpacking long long: manual_seed({seed}) expects a "
                               "64-bit integer")
        if tracing():  # what a compiled function has drawn so far comes first
            return plainly(self.manual_seed, seed)
        self._seed = seed % 2**64
        if self._twister is not None:
            self._twister.manual_seed(seed)
        return self

    def seed(self) -> int:
        """Start over from a seed that nobody knows, and return it."""
        if tracing():
            return plainly(self.seed)
        chosen = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(chosen)
        return chosen

    def initial_seed(self) -> int:
        """The seed this stream started from."""
        return self._seed

    def get_state(self) -> Tensor:
        """The state as a tensor of bytes."""
        if tracing():
            return plainly(self.get_state)
        return convert.copied(self.twister.get_state())

    def set_state(self, new_state: Tensor) -> Generator | None:
        """Go on from a saved state."""
        if not isinstance(new_state, Tensor):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
        if tracing():
            return plainly(self.set_state, new_state)
        self.twister.set_state(np.array(convert.to_array(new_state)))
        self._seed = self.twister._seed
        return self

    def clone_state(self) -> Generator:
        """Another generator at the same place of the same stream."""
        if tracing():
            return plainly(self.clone_state)
        twin = Generator(self.device)
        twin._seed, twin._twister = self._seed, self.twister.clone()
        return twin

    def graphsafe_get_state(self) -> Generator:
        return self.clone_state()

    def graphsafe_set_state(self, state: Generator) -> Generator:
        if tracing():
            return plainly(self.graphsafe_set_state, state)
        self._seed, self._twister = state._seed, state.twister.clone()
        return self

    def get_offset(self) -> int:
        raise RuntimeError("CPU Generator does not use offset")

    set_offset = get_offset

    def __reduce__(self):
        return (_rebuilt, (str(self.device), self._seed, self.twister.get_state()))

    def __deepcopy__(self, memo):
        return self.clone_state()


def _available(given) -> device:
    found = device(given)
    if found.type != "cpu":
        raise RuntimeError(f"Cannot get a generator for device {found}: random numbers are drawn "
                           "on the cpu only")
    return CPU


def _rebuilt(where: str, seed: int, state) -> Generator:
    made = Generator(where)
    made._seed = seed
    made.twister.set_state(state)
    return made


default_generator = Generator()


def twister_of(generator: Generator | None) -> Any:
    """The words to draw from: the given generator's, or the default ones."""
    if onlookers:
        notice()
    if tracers:
        tracers[-1].draws()
    if generator is None:
        return default_generator.twister
    if not isinstance(generator, Generator):
        raise TypeError(f"argument 'generator' must be torch.Generator, not "
                        f"{type(generator).__name__}")
    return generator.twister


def manual_seed(seed) -> Generator:
    """Seed the default generator."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from a source nobody knows; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator as a tensor of bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Let the default generator go on from a saved state."""
    default_generator.set_state(new_state)


def thread_safe_generator() -> Generator | None:
    """The generator of the data loader's thread that calls; None outside of one."""
    return None
