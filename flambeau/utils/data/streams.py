"""The streams of random numbers that loading draws from, saved and put back."""

import random

import numpy as np

import flambeau


def saved():
    """The streams of this process: flambeau's default one, Python's and numpy's."""
    kind, words, *rest = np.random.get_state()
    return {
        "flambeau": flambeau.get_rng_state(),
        "python": random.getstate(),
        "numpy": (kind, words.tolist(), *rest),
    }


def put_back(state):
    """Let the streams of this process go on from a saved state."""
    flambeau.set_rng_state(state["flambeau"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, words, *rest = state["numpy"]
    np.random.set_state((kind, np.array(words, np.uint32), *rest))


def seed_worker(base_seed, worker):
    """Give a worker random numbers of its own; returns the seed."""
    seed = base_seed + worker
    random.seed(seed)
    flambeau.manual_seed(seed)
    words = [worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    np.random.seed(np.random.SeedSequence(words).generate_state(4))
    return seed


def generators_of(*holders):
    """The generators that a loader and its samplers were given, each once."""
    found = []
    for holder in holders:
        generator = getattr(holder, "generator", None)
        if isinstance(generator, flambeau.Generator) and not any(generator is g for g in found):
            found.append(generator)
    return found
