"""Where randomness comes from: streams derived from a job's seeds, and the global generators a lane may use."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from nnexp.base import get_rng_state, set_rng_state


def derive_seed(seed: int, stream: str) -> int:
    """A seed of its own for each use of a job's seed, so that weights, data and order are never the same draws."""
    return int.from_bytes(hashlib.sha256(f"{stream}/{seed}".encode()).digest()[:8], "little") >> 1


def seeded_generator(seed: int, stream: str) -> torch.Generator:
    """A generator of torch on the CPU, seeded by `derive`."""
    return torch.Generator().manual_seed(derive_seed(seed, stream))


def seed_all(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if torch.cuda.is_available():
        torch.manual_seed(seed)  # where CUDA is not in use yet, this notes the seed, and formats a stack for it
    else:
        torch.default_generator.manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Global generators seeded inside the block, and outside as if it had not run."""
    outer = get_rng_state()
    seed_all(seed)
    try:
        yield
    finally:
        set_rng_state(outer)


class LaneGenerators:
    """The state in which one lane finds the global generators: seeded once, then carried from chunk to chunk."""

    def __init__(self, seed: int) -> None:
        with seeded(seed):
            self.state = get_rng_state()

    @contextmanager
    def active(self) -> Iterator[None]:
        """The lane's state inside the block; outside, everybody else's."""
        outer = get_rng_state()
        set_rng_state(self.state)
        try:
            yield
        finally:
            self.state = get_rng_state()
            set_rng_state(outer)
