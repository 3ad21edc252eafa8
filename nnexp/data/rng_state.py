"""Read, set and compare the states of the global random number generators of Python, numpy and torch."""

from __future__ import annotations

import random
from typing import Any, cast

import numpy as np
import torch

RngState = dict[str, Any]


def get_rng_state() -> RngState:
    """Return the states of the global generators as tensors and numbers, as a checkpoint can hold them."""
    _, keys, position, has_gauss, gauss = cast(tuple[str, np.ndarray, int, int, float], np.random.get_state())
    kind, words, gauss_next = random.getstate()
    state: RngState = {
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(keys.astype(np.int64)),
        "numpy_rest": [position, has_gauss, gauss],
        "python": torch.tensor(words),
        "python_rest": [kind, gauss_next],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def rng_states_equal(one: RngState, other: RngState) -> bool:
    """Return True where two captured states are equal."""
    return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list):  # of tensors or of numbers
        return len(one) == len(other) and all(map(_equal, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


def set_rng_state(state: RngState) -> None:
    """Set the global generators to a state that `get_rng_state` returned."""
    torch.set_rng_state(state["torch"])
    np.random.set_state(("MT19937", state["numpy"].numpy().astype(np.uint32), *state["numpy_rest"]))
    kind, gauss_next = state["python_rest"]
    random.setstate((kind, tuple(state["python"].tolist()), gauss_next))
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])
