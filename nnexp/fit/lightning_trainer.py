"""PyTorch Lightning, imported without matplotlib and scipy.

torchmetrics, which Lightning imports, would import pyplot and scipy.signal where they are installed: that adds a third
to the start time of every command and changes global state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from unittest.mock import patch

import torch
from lightning_utilities.core import imports
from lightning_utilities.core.imports import RequirementCache

__all__ = ["make_trainer", "pl"]


HIDDEN = ("matplotlib", "scipy")


@contextmanager
def hide_unused() -> Iterator[None]:
    """Report matplotlib and scipy as not installed to Lightning's libraries inside the block; after it, as they are."""
    is_installed = RequirementCache.__bool__

    def is_installed_and_visible(requirement: RequirementCache) -> bool:
        return requirement.requirement not in HIDDEN and is_installed(requirement)

    with (
        patch.object(RequirementCache, "__bool__", is_installed_and_visible),
        patch.object(imports, "find_spec", lambda name: None if name in HIDDEN else find_spec(name)),
    ):
        yield
    imports.package_available.cache_clear()


with hide_unused():
    import pytorch_lightning as pl
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment


def make_trainer(device: torch.device, precision: int | str) -> pl.Trainer:
    """Return a Lightning trainer for one epoch on one device, without logger, checkpoints and progress bar.

    Args:
        device: of the lanes.
        precision: 64 for float64; bf16 is autocast by the lanes themselves, so all others are float32.
    """
    return pl.Trainer(
        accelerator={"cuda": "gpu"}.get(device.type, device.type),
        devices=1,
        precision="64-true" if precision == 64 else "32-true",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        plugins=[LightningEnvironment()],  # one process, also inside a Slurm job of many tasks
    )
