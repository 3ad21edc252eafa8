"""Lightning, without the plotting library: torchmetrics, which it imports, would import pyplot with all its state, and
a tenth more time would pass before each command's first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning_utilities.core.imports import RequirementCache

__all__ = ["make_trainer", "pl"]


@contextmanager
def unplotted() -> Iterator[None]:
    """In the block, libraries of Lightning's are told that there is no matplotlib."""
    known = RequirementCache.__bool__

    def is_there(requirement: RequirementCache) -> bool:
        return requirement.requirement != "matplotlib" and known(requirement)

    RequirementCache.__bool__ = is_there  # type: ignore[assignment,method-assign]  # in the block alone
    try:
        yield
    finally:
        RequirementCache.__bool__ = known  # type: ignore[method-assign]  # put back


with unplotted():
    import pytorch_lightning as pl
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment


def make_trainer(device: torch.device, precision: int | str) -> pl.Trainer:
    """One that trains one epoch, and does nothing else of all that it could."""
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
