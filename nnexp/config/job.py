"""The typed job and its options: what a composed, checked configuration holds."""

from __future__ import annotations

import ast
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from nnexp.registry import PARTS, Parameter, Range, SignatureReader, argument_docs, with_docs

PROBE = "probe"
GROUPS = (*PARTS, "experiment")  # Hydra's config groups of which exactly one option is chosen


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The keys of a job that belong to no plugin.

    Args:
        seed: seed of initial weights and batch order; `model.seed` and `trainer.seed` override it.
        device: where to train; auto uses cuda or mps where available.
        precision: bits of floating-point numbers; bf16 keeps 32-bit weights and uses autocast to bfloat16.
        runs: folder of the run directories.
        checkpoint_every: updates between checkpoints; null is about every ten seconds. Does not change results.
        stack: train jobs of a sweep that differ only in numbers as one stack of models; trained alone, rounding
            differs.
    """

    seed: Annotated[int, Range(min=0)] = 0
    device: Literal["cpu", "cuda", "mps", "auto"] = "cpu"
    precision: Literal[32, 64, "bf16"] = 32
    runs: str = "runs"
    checkpoint_every: Annotated[int, Range(min=1)] | None = None
    stack: bool = True


@cache
def job_options_schema() -> dict[str, Parameter]:
    """Return the schema of `JobOptions`, read from this file's source as a plugin's is."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    parameters = SignatureReader(tree, "nnexp/config/job.py").parameters("JobOptions")[1]
    return with_docs(parameters, argument_docs(JobOptions.__doc__ or ""))


@dataclass(frozen=True)
class PluginConfig:
    """A chosen plugin with its configuration.

    Args:
        kind: dataset, model, trainer or probe.
        name: the plugin's name.
        values: a value for every parameter.
        seed: the resolved seed, never None.
    """

    kind: str
    name: str
    values: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Job:
    """One fully composed, typed configuration. It was checked when it was made; later code relies on that.

    Args:
        dataset: the dataset and its values; likewise `model` and `trainer`.
        options: the keys that belong to no plugin.
        probes: the chosen probes; they never affect training.
        experiment: name of the experiment, and of the folder of its runs.
        overrides: `KEY=VALUE` texts that compose the same job again, without those of probes.
        label: the changed values, as they appear in the run directory's name.
    """

    dataset: PluginConfig
    model: PluginConfig
    trainer: PluginConfig
    options: JobOptions
    probes: tuple[PluginConfig, ...] = ()
    experiment: str = "default"
    overrides: tuple[str, ...] = ()
    label: str = "default"

    @property
    def parts(self) -> tuple[PluginConfig, ...]:
        """Dataset, model and trainer: everything that affects training."""
        return (self.dataset, self.model, self.trainer)

    def plain(self) -> dict[str, Any]:
        """Return the job as nested dictionaries of plain values, from which `make_job` makes the same job again."""
        parts = {c.kind: {"name": c.name, **c.values, "seed": c.seed} for c in self.parts}
        return {**parts, PROBE: {c.name: dict(c.values) for c in self.probes}, **asdict(self.options)}

    def flat(self) -> dict[str, Any]:
        """Return the job's values by dotted key, without probes; a plugin's name is stored under its kind."""
        flat: dict[str, Any] = {}
        for choice in self.parts:
            flat[choice.kind] = choice.name
            flat |= {f"{choice.kind}.{key}": value for key, value in choice.values.items()}
            flat[f"{choice.kind}.seed"] = choice.seed
        return flat | asdict(self.options)


def format_value(value: Any) -> str:
    """Return a value as short text for labels and tables.

    >>> format_value(3.0), format_value(None), format_value([1, 0, 1])
    ('3', 'null', '1_0_1')
    """
    if isinstance(value, list | tuple):
        return "_".join(map(format_value, value))
    if isinstance(value, float):
        return f"{value:g}".replace("+", "")
    return "null" if value is None else str(value)
