"""Jobs from overrides, where Hydra composes each combination of plugins once for all tests of a process.

Composing a combination takes longer than to train a small model for a hundred steps.
"""

import warnings
from collections.abc import Sequence
from typing import Any

from contract.registry import REGISTRY
from nnexp.config.hydra_compose import Composer
from nnexp.config.job import Job
from nnexp.config.sweep import Sweep
from nnexp.config.sweep_jobs import compose_sweep, compose_with
from nnexp.registry.discovery import Registry

_COMPOSERS: dict[Registry, Composer] = {}


def sweep_of(overrides: Sequence[str], registry: Registry = REGISTRY, *, multirun: bool = False, **files: Any) -> Sweep:
    """Return what `nnexp.config.compose_sweep` does; it composes anew where a test names files of its own."""
    if files:
        return compose_sweep(list(overrides), registry, multirun=multirun, **files)
    composer = _COMPOSERS.setdefault(registry, Composer(registry, "config", ()))
    with composer.open():
        return compose_with(composer, list(overrides), multirun=multirun)


def jobs_of(overrides: Sequence[str], registry: Registry = REGISTRY, **arguments: Any) -> list[Job]:
    """Return what `nnexp.config.compose_jobs` does, in the same way."""
    sweep = sweep_of(overrides, registry, **arguments)
    sweep.check()
    for note in sweep.notes:
        warnings.warn(note, stacklevel=2)
    return sweep.jobs
