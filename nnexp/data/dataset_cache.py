"""Construct datasets, each once for all jobs that use the same one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch

from nnexp.config import Job, PluginConfig
from nnexp.data.seeding import derive_seed, seeded, seeded_generator
from nnexp.data.split_checks import check_attribute, check_spec, check_split
from nnexp.data.splits import Split, to_device

SPLITS = ("train", "val", "test")


class DatasetCache:
    """Datasets by configuration, precision and device. Lanes share the tensors and must not change them."""

    def __init__(self) -> None:
        self._datasets: dict[tuple[str, torch.dtype, torch.device], tuple[Any, dict[str, Split]]] = {}

    def get(
        self, job: Job, dataset_class: Any, dtype: torch.dtype, device: torch.device
    ) -> tuple[Any, dict[str, Split]]:
        """Return a job's dataset and its splits on a device.

        Args:
            job: names the dataset, its values and its seed.
            dataset_class: the plugin, called as `make_dataset` does.
            dtype: of the splits' real numbers; integers keep their type.
            device: of the splits.

        Raises:
            NnexpError: the dataset violates its contract.
        """
        key = (_name(job.dataset), dtype, device)
        if key not in self._datasets:
            same = [dataset for (name, *_), (dataset, _) in self._datasets.items() if name == key[0]]
            dataset = same[0] if same else make_dataset(job, dataset_class)
            self._datasets[key] = dataset, {name: to_device(getattr(dataset, name), dtype, device) for name in SPLITS}
        return self._datasets[key]

    def retain(self, jobs: Iterable[Job]) -> None:
        """Drop every dataset that none of these jobs uses."""
        names = {_name(job.dataset) for job in jobs}
        self._datasets = {key: value for key, value in self._datasets.items() if key[0] in names}


def _name(choice: PluginConfig) -> str:
    return json.dumps([choice.name, choice.values, choice.seed], sort_keys=True)


def make_dataset(job: Job, dataset_class: Any) -> Any:
    """Construct a job's dataset from `dataset.seed` alone and check its splits.

    Args:
        job: names the dataset's values and its seed.
        dataset_class: the plugin, called with a `torch.Generator` and the values.

    Raises:
        NnexpError: the dataset violates the contract `nnexp.data.data_spec.Dataset`.
    """
    with seeded(derive_seed(job.dataset.seed, "dataset")):
        dataset = dataset_class(seeded_generator(job.dataset.seed, "data"), **job.dataset.values)
    where = f"dataset '{job.dataset.name}'"
    spec = check_spec(where, getattr(dataset, "spec", None))
    for name in SPLITS:
        check_split(f"{where}, split '{name}'", getattr(dataset, name, ()), spec)
        check_attribute(f"{where}, split '{name}'", dataset, name)
    return dataset
