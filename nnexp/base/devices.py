"""Resolve the `device` key of a job to a `torch.device`."""

from __future__ import annotations

import torch

from nnexp.base.errors import NnexpError


def torch_device(name: str) -> torch.device:
    """Return the device called `name`; `auto` is the first available of cuda, mps and cpu.

    Raises NnexpError where this machine has no such device.
    """
    is_available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, available in is_available.items() if available))
    if not is_available[name]:
        raise NnexpError(f"device={name}: not available on this machine. Use device=cpu or device=auto.")
    return torch.device(name)
