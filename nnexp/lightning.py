"""Lightning, without the plotting library: torchmetrics, which it imports, would import pyplot with all its state, and
a tenth more time would pass before each command's first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lightning_utilities.core.imports import RequirementCache

__all__ = ["LightningEnvironment", "pl"]


@contextmanager
def unplotted() -> Iterator[None]:
    """In the block, libraries of Lightning's are told that there is no matplotlib."""
    known = RequirementCache.__bool__

    def is_there(requirement: RequirementCache) -> bool:
        return requirement.requirement != "matplotlib" and known(requirement)

    RequirementCache.__bool__ = is_there  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        RequirementCache.__bool__ = known  # type: ignore[method-assign]


with unplotted():
    import pytorch_lightning as pl
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
