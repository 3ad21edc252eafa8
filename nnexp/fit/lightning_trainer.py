"""PyTorch Lightning, imported without matplotlib.

torchmetrics, which Lightning imports, would import pyplot: that adds a tenth to the start time of every command and
changes global state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning_utilities.core.imports import RequirementCache

__all__ = ["make_trainer", "pl"]


@contextmanager
def hide_matplotlib() -> Iterator[None]:
    """Report matplotlib as not installed to Lightning's libraries inside the block."""
    is_installed = RequirementCache.__bool__

    def is_installed_and_visible(requirement: RequirementCache) -> bool:
        return requirement.requirement != "matplotlib" and is_installed(requirement)

    RequirementCache.__bool__ = is_installed_and_visible  # type: ignore[assignment,method-assign]  # in the block only
    try:
        yield
    finally:
        RequirementCache.__bool__ = is_installed  # type: ignore[method-assign]  # restored


with hide_matplotlib():
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
