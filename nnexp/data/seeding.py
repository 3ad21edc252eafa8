"""Derive random streams from a job's seeds, and swap the state of the global random generators."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from nnexp.data.rng_state import get_rng_state, set_rng_state


def derive_seed(seed: int, stream: str) -> int:
    """Return a seed in [0, 2**63) for one use of a job's seed, so that weights, data and order are independent.

        derive_seed(0, "model") != derive_seed(0, "order")

    Args:
        seed: a seed of the job.
        stream: name of the use.
    """
    return int.from_bytes(hashlib.sha256(f"{stream}/{seed}".encode()).digest()[:8], "little") >> 1


def seeded_generator(seed: int, stream: str) -> torch.Generator:
    """Return a `torch.Generator` on the CPU, seeded with `derive_seed(seed, stream)`."""
    return torch.Generator().manual_seed(derive_seed(seed, stream))


def seed_all(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if torch.cuda.is_available():
        torch.manual_seed(seed)  # not the default: before CUDA is initialised it formats a stack trace, which is slow
    else:
        torch.default_generator.manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators inside the block; restore their state afterwards, also after an exception.

    with seeded(derive_seed(seed, "trainer")):
        trainer = trainer_class(**values)
    """
    outer = get_rng_state()
    seed_all(seed)
    try:
        yield
    finally:
        set_rng_state(outer)


class LaneGenerators:
    """State of the global generators as one lane has it: seeded once, then carried from chunk to chunk.

    Args:
        seed: the lane's seed, one of `derive_seed`.
    """

    def __init__(self, seed: int) -> None:
        with seeded(seed):
            self.state = get_rng_state()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Set the global generators to the lane's state inside the block; save it and restore theirs afterwards."""
        outer = get_rng_state()
        set_rng_state(self.state)
        try:
            yield
        finally:
            self.state = get_rng_state()
            set_rng_state(outer)
