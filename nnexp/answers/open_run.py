"""Loads a run directory: the model with its trained weights, and the data that it was trained on."""

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
    """A run loaded by `nnexp.load`; evaluating `model` on a split gives the metrics in its run.json.

    Attributes:
        job: the configuration of the run.
        dataset: instance of the dataset plugin.
        model: the trained model, on the CPU and in evaluation mode; it computes in the precision of the run.
        data: specification of the data: kind, shape, target.
        train: training split, `(x, y)` or `(x, y, lengths)`: x has shape `(rows, *data.shape)`.
        val: validation split.
        test: test split.
    """

    job: Job
    dataset: Any
    model: torch.nn.Module
    data: DataSpec
    train: Split
    val: Split
    test: Split


def make_data(job: Job, registry: Registry) -> Any:
    """Return an instance of the dataset plugin of a job, with the data that the job is trained on."""
    return make_dataset(job, registry.get("dataset", job.dataset.name).load())


def load(path: str | Path) -> LoadedRun:
    """Return the trained model and the data of a run directory.

    Plugins are looked up by name among those that are installed; no code from the directory is executed. Warns if the
    code or the files that the run was trained with have changed.

    Example:
        >>> run = nnexp.load("runs/default/seed=1-0f3a9c55")
        >>> x, y = run.test[:2]
        >>> (run.model(x).argmax(-1) == y).float().mean()

    Args:
        path: of the run directory, which has a model.pt.

    Raises:
        RecordError: if a file is missing or damaged, or if the weights do not fit the code as it is now.
        ConfigError: if config.yaml names an unknown plugin or key.
    """
    run, registry = Run(Path(path)), discover()
    facts = run.read()
    try:
        config = yaml.safe_load((run.path / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordError(f"{run.path}: config.yaml cannot be read: {shorten(' '.join(str(error).split()))}") from None
    if not isinstance(config, dict):
        raise RecordError(f"{run.path}: config.yaml is not the configuration of a job.")
    config.pop("probe", None)  # not needed, and a probe may not be installed any more
    job = make_job(config, registry, experiment=str(facts.get("experiment")))
    if job_fingerprint(job, registry) != facts.get("fingerprint"):
        warnings.warn(f"{run.path}: the code or the files that it was trained with have changed.", stacklevel=2)
    if not (run.path / MODEL_FILE).exists():
        state = f"it is '{facts['status']}' at step {facts.get('steps', 0)}"
        again = "Give its command again"
        again += ", with rerun=true" if facts["status"] == "finished" else ""
        raise RecordError(f"{run.path} has no {MODEL_FILE}: {state}. {again}.")
    lane = _load_lane(run, job, registry)
    lane.module.__dict__["forward"] = partial(_forward, lane, lane.module.forward)
    return LoadedRun(job, lane.dataset, lane.module.eval(), lane.data, **lane.splits)


def _load_lane(run: Run, job: Job, registry: Registry) -> Lane:
    weights = load_weights(run.path / MODEL_FILE)["weights"]
    try:
        lane = Lane(job, registry, torch.device("cpu"), lambda: False)
        lane.module.load_state_dict(weights)
    except (NnexpError, KeyboardInterrupt):
        raise
    except Exception as error:  # raised by a plugin, or by torch for weights of other shapes
        reason = shorten(" ".join(f"{type(error).__name__}: {error}".split()))
        raise RecordError(f"{run.path} does not fit its code and data as they are now. {reason}") from error
    return lane


def _forward(lane: Lane, forward: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Run a forward pass in the precision of the run, and return the default dtype of torch."""
    with lane.arithmetic():
        return forward(*inputs).to(torch.get_default_dtype())
