"""Options of a whole command (`rerun`, `sweep.*`): they belong to no job and change no trained number."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from nnexp.base import ConfigError, suggestion
from nnexp.config.job_keys import check_value
from nnexp.registry import Parameter, Range, SignatureReader, argument_docs, with_docs

GROUP = "sweep"
TOP_LEVEL = ("rerun",)  # not below `sweep.`, because a single job has it too


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The keys `rerun` and `sweep.*`.

    Args:
        rerun: train finished jobs again, into new run directories.
        workers: worker processes; auto is one for each core or GPU, 0 trains in the command's own process, where a job
            that is killed ends the command too.
        retry: failed resumes failed runs from their last checkpoint; diverged runs are not retried.
        retries: number of immediate retries of a run that fails, each from its last checkpoint.
        on_error: stop ends the sweep at the first run that fails or diverges.
        max_failures: end the sweep after this many runs have failed or diverged; null sets no limit.
        skip_invalid: skip points that are not valid jobs.
        dry_run: print what would be trained, with an estimate of the time, and exit.
        zip: vary keys together, `[model.hidden_size,trainer.lr]`; a list of such lists for several groups.
        exclude: skip points that have all of these values, `"'model=gru seed=range(4)'"`; a list for several.
        repeats: train each point this many times, with seeds seed, seed + 1, ...
    """

    rerun: bool = False
    workers: Annotated[int, Range(min=0, max=1024)] | Literal["auto"] = "auto"
    retry: Literal["failed"] | None = None
    retries: Annotated[int, Range(min=0)] = 0
    on_error: Literal["continue", "stop"] = "continue"
    max_failures: Annotated[int, Range(min=1)] | None = None
    skip_invalid: bool = False
    dry_run: bool = False
    zip: list[str | list[str]] | None = None
    exclude: str | list[str] | None = None
    repeats: Annotated[int, Range(min=1, max=100_000)] = 1

    @property
    def failure_limit(self) -> float:
        """The number of failures after which the sweep ends; infinite where there is no limit."""
        limit = float("inf") if self.max_failures is None else self.max_failures
        return min(limit, 1) if self.on_error == "stop" else limit

    @property
    def retry_statuses(self) -> tuple[str, ...]:
        """The final statuses whose runs are trained again."""
        return () if self.retry is None else (self.retry,)


@cache
def sweep_options_schema() -> dict[str, Parameter]:
    """Return the schema of `SweepOptions` by command-line key, read from this file's source as a plugin's is."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    parameters = SignatureReader(tree, "nnexp/config/sweep_options.py").parameters("SweepOptions")[1]
    described = with_docs(parameters, argument_docs(SweepOptions.__doc__ or ""))
    return {_key(name): replace(parameter, name=_key(name)) for name, parameter in described.items()}


def _key(name: str) -> str:
    return name if name in TOP_LEVEL else f"{GROUP}.{name}"


def is_sweep_option(key: str) -> bool:
    """Return True where a key addresses the sweep options, even one that does not exist, as `sweep.typo`."""
    return key in TOP_LEVEL or key.partition(".")[0] == GROUP


def make_sweep_options(values: dict[str, Any]) -> SweepOptions:
    """Return the options for values by command-line key. Raises ConfigError at the first invalid key or value."""
    schema = sweep_options_schema()
    for key in values:
        if key not in schema:
            guess = suggestion(key, schema)
            raise ConfigError(f"{key}: there is no such key.{guess} Available: {', '.join(schema)}.")
    checked = {key: check_value(key, schema[key], value) for key, value in values.items()}
    return SweepOptions(**{key.removeprefix(f"{GROUP}."): value for key, value in checked.items()})


def nested(schema: dict[str, Parameter]) -> dict[str, Any]:
    """Return the defaults as nested dictionaries, as in a composed configuration."""
    below_group = {key.removeprefix(f"{GROUP}."): p.default for key, p in schema.items() if key not in TOP_LEVEL}
    return {key: schema[key].default for key in TOP_LEVEL} | {GROUP: below_group}


def take_sweep_options(config: dict[str, Any]) -> dict[str, Any]:
    """Remove the sweep options from a composed configuration, and return them by command-line key.

    Raises ConfigError where `sweep` is not a mapping.
    """
    values = {key: config.pop(key) for key in TOP_LEVEL if key in config}
    below_group = config.pop(GROUP, {})
    if not isinstance(below_group, dict):
        raise ConfigError(f"{GROUP}: expected a mapping of keys such as {GROUP}.workers. Write them below it.")
    return values | {f"{GROUP}.{key}": value for key, value in below_group.items()}
