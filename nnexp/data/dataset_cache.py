"""The data of jobs, made once for all that have the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch

from nnexp.base import NnexpError
from nnexp.config import Job, PluginConfig
from nnexp.data.data_spec import DataSpec
from nnexp.data.seeding import derive_seed, seeded, seeded_generator
from nnexp.data.splits import Split, check_split, to_device

SPLITS = ("train", "val", "test")


class DatasetCache:
    """What lanes read, shared by those whose jobs name the same data: nobody changes it."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, torch.dtype, torch.device], tuple[Any, dict[str, Split]]] = {}

    def get(self, job: Job, made: Any, dtype: torch.dtype, device: torch.device) -> tuple[Any, dict[str, Split]]:
        """The dataset, and its splits on the device with real numbers of the given precision."""
        key = (_name(job.dataset), dtype, device)
        if key not in self._made:
            same = [dataset for (name, *_), (dataset, _) in self._made.items() if name == key[0]]
            dataset = same[0] if same else make_dataset(job, made)
            self._made[key] = dataset, {name: to_device(getattr(dataset, name), dtype, device) for name in SPLITS}
        return self._made[key]

    def keep(self, jobs: Iterable[Job]) -> None:
        """Forget what none of these jobs needs."""
        names = {_name(job.dataset) for job in jobs}
        self._made = {key: value for key, value in self._made.items() if key[0] in names}


def _name(choice: PluginConfig) -> str:
    return json.dumps([choice.name, choice.values, choice.seed], sort_keys=True)


def make_dataset(job: Job, made: Any) -> Any:
    """A job's data, drawn from `dataset.seed` alone. Raises NnexpError where the plugin breaks its contract."""
    with seeded(derive_seed(job.dataset.seed, "dataset")):
        dataset = made(seeded_generator(job.dataset.seed, "data"), **job.dataset.values)
    spec = getattr(dataset, "spec", None)
    if not isinstance(spec, DataSpec):
        raise NnexpError(f"dataset '{job.dataset.name}' must set self.spec to a DataSpec.")
    for name in SPLITS:
        check_split(name, getattr(dataset, name, ()), spec)
    return dataset
