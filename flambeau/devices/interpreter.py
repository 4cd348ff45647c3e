"""Runs kernels with numpy, loop by loop: the reference device, which the others are tested against.

It takes what machine code takes, addresses and a count or a layout, and does what the kernel says
in the plainest way: folds go through their elements one by one, in order.
"""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from ..core import dtype as dt
from ..core import expr as ex
from ..core.kernel import Kernel
from .reference import _Evaluation, _narrow, _widen


def compile_kernel(kernel: Kernel):
    """A callable that interprets a kernel."""

    def run(*arguments):
        with np.errstate(all="ignore"):
            _Run(kernel, arguments).stages()

    return run


def _array(address: int, dtype: dt.dtype, shape, strides) -> np.ndarray:
    """Memory seen with strides in bytes; 0 repeats an element."""
    if not all(shape):
        return np.empty(shape, dtype.numpy)
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + dtype.itemsize
    buffer = (ctypes.c_char * reach).from_address(address)
    flat = np.frombuffer(buffer, np.uint8)
    return np.ndarray(shape, dtype.numpy, flat, 0, strides)


class _Elements:
    """The operands' elements at some places, read when they are asked for."""

    def __init__(self, arrays, operands, at):
        self.arrays, self.operands, self.at = arrays, operands, at

    def __getitem__(self, k: int) -> np.ndarray:
        return _widen(self.arrays[k][self.at], self.operands[k].dtype)


class _Run:
    """One run of a kernel."""

    sizes: tuple[int, ...]
    strides: list[tuple[int, ...]]

    def __init__(self, kernel: Kernel, arguments):
        self.kernel = kernel
        count = len(kernel.operands)
        self.addresses, self.last = arguments[:count], arguments[-1]
        self.params = self._params(arguments[count:-1])
        self._read_layout()
        # Folding nothing gives the start; one place that is never read stands for the loop.
        self.folded = self.sizes[kernel.kept:]
        self.sizes = (*self.sizes[:kernel.kept], *(max(n, 1) for n in self.folded))
        self.arrays = [_array(a, o.dtype, self.sizes, s) for a, o, s in zip(
            self.addresses, kernel.operands, self.strides, strict=True)]
        self.folds: list[np.ndarray] = []

    def _params(self, given) -> list:
        given = iter(given)
        return [complex(next(given), next(given)) if d.kind == "c" else next(given)
                for d in self.kernel.params]

    def _read_layout(self) -> None:
        kernel = self.kernel
        if kernel.dense and kernel.reduced:
            self.sizes = (1, self.last)
            self.strides = [(0, 0 if o.written else o.dtype.itemsize) for o in kernel.operands]
            return
        if kernel.dense:
            self.sizes = (self.last,)
            self.strides = [(o.dtype.itemsize if o.step == "1" else 0,) for o in kernel.operands]
            return
        loops = kernel.kept + kernel.reduced
        count = loops * (1 + len(kernel.operands)) + sum(kernel.indirect)
        words = iter((ctypes.c_int64 * count).from_address(self.last))
        self.sizes = tuple(itertools.islice(words, loops))
        self.strides = [tuple(itertools.islice(words, loops)) for _ in kernel.operands]
        extra = kernel.indirect or (0,) * len(kernel.operands)
        self.own = [tuple(itertools.islice(words, n)) for n in extra]

    # -- evaluating ------------------------------------------------------------------------------

    def evaluate(self, exprs, at, states=()) -> list[np.ndarray]:
        """Exprs at places `at` (an index into the arrays), with states of a fold so far."""
        shape = np.broadcast_to(np.False_, self.sizes)[at].shape
        inputs = _Elements(self.arrays, self.kernel.operands, at)
        coordinates = [c[at] for c in np.indices(self.sizes)]
        found = _Evaluation(inputs, self.params, coordinates)
        for k, state in enumerate(states):
            found.values[ex.make("state", (), k, state[1])] = state[0]
        results = []
        for e in map(ex.expand, exprs):
            self._prefill(e, found, at)
            results.append(np.broadcast_to(np.asarray(found.run(e)), shape))
        return results

    def _prefill(self, e, found, at) -> None:
        """Values of folds, and of loads at computed coordinates."""
        for node in _postorder(e):
            if node.head == "fold":
                whole = self.folds[node.attr].reshape(
                    self.folds[node.attr].shape + (1,) * self.kernel.reduced)
                found.values[node] = np.broadcast_to(whole, self.sizes)[at]
            elif node.head == "load":
                coordinates = [found.run(a) for a in node.args]
                found.values[node] = self._gather(node.attr, coordinates, at)

    def _offsets(self, k: int, coordinates, at) -> np.ndarray:
        """Bytes from an operand's start: where the loops are, and the coordinates on top."""
        places = np.indices(self.sizes, np.int64)
        walked = sum((p * s for p, s in zip(places, self.strides[k], strict=True)),
                     np.zeros(self.sizes, np.int64))[at]
        return sum((np.asarray(c, np.int64) * s for c, s in zip(
            coordinates, self.own[k], strict=True)), walked)

    def _gather(self, k: int, coordinates, at) -> np.ndarray:
        dtype = self.kernel.operands[k].dtype
        offsets = self._offsets(k, coordinates, at)
        flat = np.asarray(offsets).reshape(-1)
        values = [_array(self.addresses[k] + int(o), dtype, (1,), (0,))[0] for o in flat]
        return _widen(np.array(values, dtype.numpy).reshape(np.shape(offsets)), dtype)

    # -- stages ----------------------------------------------------------------------------------

    def stages(self) -> None:
        if not all(self.sizes):
            return
        for kind, payload in self.kernel.stages:
            if kind == "fold":
                self._fold(payload)
            elif kind == "map":
                if all(self.folded):
                    self._store(payload, ...)
            else:
                self._store(payload, (slice(None),) * self.kernel.kept + (0,) * self.kernel.reduced)

    def _fold(self, fold) -> None:
        kept = self.sizes[:self.kernel.kept]
        first = (slice(None),) * self.kernel.kept
        starts = self.evaluate(fold.start, (*first, *(0,) * self.kernel.reduced))
        states = [(np.array(v), e.dtype) for v, e in zip(starts, fold.start, strict=True)]
        for place in np.ndindex(*self.folded):
            values = self.evaluate(fold.step, (*first, *place), states)
            states = [(np.array(v), e.dtype) for v, e in zip(values, fold.start, strict=True)]
            self._store(fold.running, (*first, *place), states)
        self.folds += [np.broadcast_to(v, kept) for v, _ in states]

    def _store(self, stores, at, states=()) -> None:
        values = self.evaluate([ex.cast(s.value, self.kernel.operands[s.operand].dtype.compute)
                                for s in stores], at, states)
        for store, value in zip(stores, values, strict=True):
            dtype = self.kernel.operands[store.operand].dtype
            if store.coordinates is None:
                self.arrays[store.operand][at] = _narrow(value, dtype)
            else:
                self._scatter(store, value, at, dtype)

    def _scatter(self, store, value, at, dtype) -> None:
        offsets = self._offsets(store.operand, self.evaluate(store.coordinates, at), at)
        for offset, v in zip(offsets.reshape(-1), np.asarray(value).reshape(-1), strict=True):
            cell = _array(self.addresses[store.operand] + int(offset), dtype, (1,), (0,))
            there = _widen(cell, dtype)
            joined = v if store.combine is None else _COMBINE[store.combine](there, v)
            cell[...] = _narrow(joined, dtype)


_COMBINE = {"add": np.add, "mul": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _postorder(e) -> list:
    """The nodes under an expr, arguments before what uses them."""
    order, seen, stack = [], set(), [(e, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((a, False) for a in node.args)
    return order
