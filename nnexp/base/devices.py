"""The device that a job asks for."""

from __future__ import annotations

import torch

from nnexp.base.errors import NnexpError


def torch_device(name: str) -> torch.device:
    """The device that a job asks for. Raises NnexpError where this machine has none."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, there in found.items() if there))
    if not found[name]:
        raise NnexpError(f"device={name}: there is none on this machine. Use device=cpu, or device=auto.")
    return torch.device(name)
