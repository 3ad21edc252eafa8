"""A run opened again: its model with the trained weights, and the data that it was trained on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from nnexp.base import NnexpError, RecordError, shorten
from nnexp.config import Job, make_job
from nnexp.data import DataSpec, Split, make_dataset
from nnexp.registry import Registry, discover
from nnexp.rundir import MODEL_FILE, Run, job_fingerprint
from nnexp.rundir import load_checkpoint as load_weights
from nnexp.training import Lane


@dataclass(frozen=True)
class LoadedRun:
    """What `nnexp.load` gives: `model(x)` of a row of `test` is what the run's own metrics were computed from."""

    job: Job
    dataset: Any
    model: torch.nn.Module
    data: DataSpec
    train: Split
    val: Split
    test: Split


def make_data(job: Job, registry: Registry) -> Any:
    """The dataset of a job, as it was made for its training."""
    return make_dataset(job, registry.get("dataset", job.dataset.name).load())


def load(path: str | Path) -> LoadedRun:
    """The model of a run directory, its weights those of model.pt, in evaluation mode on the CPU.

    The plugins are looked up by name among those that are installed, and nothing else of the directory is executed.
    Raises RecordError where a file is missing or damaged, ConfigError where a plugin or a key is not known.
    Warns where the plugins' code is not what it was.
    """
    run, registry = Run(Path(path)), discover()
    facts = run.read()
    try:
        config = yaml.safe_load((run.path / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordError(f"{run.path}: config.yaml cannot be read: {shorten(' '.join(str(error).split()))}") from None
    if not isinstance(config, dict):
        raise RecordError(f"{run.path}: config.yaml holds no job.")
    config.pop("probe", None)  # of which one may be gone
    job = make_job(config, registry, experiment=str(facts.get("experiment")))
    if job_fingerprint(job, registry) != facts.get("fingerprint"):
        warnings.warn(f"{run.path}: the code or the files that it was trained with have changed.", stacklevel=2)
    if not (run.path / MODEL_FILE).exists():
        state = f"it is '{facts['status']}' at step {facts.get('steps', 0)}"
        raise RecordError(f"{run.path} has no {MODEL_FILE} yet: {state}. Give its command again.")
    lane = _lane(run, job, registry)
    lane.module.__dict__["forward"] = partial(_computed, lane, lane.module.forward)
    return LoadedRun(job, lane.dataset, lane.module.eval(), lane.data, **lane.splits)


def _lane(run: Run, job: Job, registry: Registry) -> Lane:
    weights = load_weights(run.path / MODEL_FILE)["weights"]
    try:
        lane = Lane(job, registry, torch.device("cpu"), lambda: False)
        lane.module.load_state_dict(weights)
    except (NnexpError, KeyboardInterrupt):
        raise
    except Exception as error:  # a plugin's, or torch's of weights of other shapes
        reason = shorten(" ".join(f"{type(error).__name__}: {error}".split()))
        raise RecordError(f"{run.path} does not fit its code and data as they are now. {reason}") from error
    return lane


def _computed(lane: Lane, forward: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """A forward pass in the precision of the run."""
    with lane.arithmetic():
        return forward(*inputs).to(torch.get_default_dtype())
