"""Where randomness comes from: streams derived from a job's seeds, and the global generators a lane may use."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch

State = dict[str, Any]


def derive(seed: int, stream: str) -> int:
    """A seed of its own for each use of a job's seed, so that weights, data and order are never the same draws."""
    return int.from_bytes(hashlib.sha256(f"{stream}/{seed}".encode()).digest()[:8], "little") >> 1


def generator(seed: int, stream: str) -> torch.Generator:
    """A generator of torch on the CPU, seeded by `derive`."""
    return torch.Generator().manual_seed(derive(seed, stream))


def seed_all(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if torch.cuda.is_available():
        torch.manual_seed(seed)  # where CUDA is not in use yet, this notes the seed, and formats a stack for it
    else:
        torch.default_generator.manual_seed(seed)


def capture() -> State:
    """The global generators' states as tensors and numbers."""
    _, keys, position, has_gauss, gauss = cast(tuple[str, np.ndarray, int, int, float], np.random.get_state())
    kind, words, gauss_next = random.getstate()
    state: State = {
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(keys.astype(np.int64)),
        "numpy_rest": [position, has_gauss, gauss],
        "python": torch.tensor(words),
        "python_rest": [kind, gauss_next],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def same(one: State, other: State) -> bool:
    """Whether two captured states are equal."""
    return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list):  # of tensors or of numbers
        return len(one) == len(other) and all(map(_equal, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


def apply(state: State) -> None:
    """Put the global generators into a captured state."""
    torch.set_rng_state(state["torch"])
    np.random.set_state(("MT19937", state["numpy"].numpy().astype(np.uint32), *state["numpy_rest"]))
    kind, gauss_next = state["python_rest"]
    random.setstate((kind, tuple(state["python"].tolist()), gauss_next))
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Global generators seeded inside the block, and outside as if it had not run."""
    outer = capture()
    seed_all(seed)
    try:
        yield
    finally:
        apply(outer)


class Generators:
    """The state in which one lane finds the global generators: seeded once, then carried from chunk to chunk."""

    def __init__(self, seed: int) -> None:
        with seeded(seed):
            self.state = capture()

    @contextmanager
    def active(self) -> Iterator[None]:
        """The lane's state inside the block; outside, everybody else's."""
        outer = capture()
        apply(self.state)
        try:
            yield
        finally:
            self.state = capture()
            apply(outer)
