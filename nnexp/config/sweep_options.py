"""What a command asks of its jobs together: keys that belong to no job and change no number."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from nnexp.base import ConfigError, did_you_mean
from nnexp.config.job import check_value
from nnexp.registry import Parameter, Range, SignatureReader, argument_docs, with_docs

GROUP = "sweep"
ALONE = ("rerun",)  # not below sweep., for a single job has it too


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The keys `rerun` and `sweep.*`.

    Args:
        rerun: train what is finished once more, beside the old run.
        workers: processes that train at once, auto is one for each core or GPU; 0 trains in the command's own process,
            which a job that is killed takes with it.
        retry: failed trains again what has failed, from its last checkpoint; what diverged would diverge again.
        retries: how often a run that fails is tried again at once, from its last checkpoint.
        on_error: stop ends the sweep at the first run that fails or diverges.
        max_failures: end the sweep when so many runs have failed or diverged; null is never.
        skip_invalid: leave out the points that are no valid job.
        dry_run: print what would be trained, with an estimate of the time, and train nothing.
        zip: keys whose values move together, `[model.hidden_size,trainer.lr]`, or a list of such lists.
        exclude: points to leave out, those with all of some values: `"'model=gru seed=range(4)'"`, or a list of such.
        repeats: train each point so many times, with seed, seed + 1, and so on.
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
    def most_failures(self) -> float:
        """With how many failures the sweep ends."""
        most = float("inf") if self.max_failures is None else self.max_failures
        return min(most, 1) if self.on_error == "stop" else most

    @property
    def again(self) -> tuple[str, ...]:
        """Statuses that are ends, and are trained all the same."""
        return () if self.retry is None else (self.retry,)


@cache
def sweep_options_schema() -> dict[str, Parameter]:
    """The schema of `SweepOptions` by the keys as they are typed, read as a plugin's is."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    parameters = SignatureReader(tree, "nnexp/config/sweep_options.py").parameters("SweepOptions")[1]
    found = with_docs(parameters, argument_docs(SweepOptions.__doc__ or ""))
    return {_key(name): replace(parameter, name=_key(name)) for name, parameter in found.items()}


def _key(name: str) -> str:
    return name if name in ALONE else f"{GROUP}.{name}"


def is_sweep_option(key: str) -> bool:
    """Whether a key of the command line or of a file is one of the command's, known or not."""
    return key in ALONE or key.partition(".")[0] == GROUP


def make_sweep_options(values: dict[str, Any]) -> SweepOptions:
    """The command from its keys. Raises ConfigError at the first that is wrong."""
    schema = sweep_options_schema()
    for key in values:
        if key not in schema:
            raise ConfigError(f"{key}: there is no such key.{did_you_mean(key, schema)} Available: {', '.join(schema)}.")
    checked = {key: check_value(key, schema[key], value) for key, value in values.items()}
    return SweepOptions(**{key.removeprefix(f"{GROUP}."): value for key, value in checked.items()})


def nested(schema: dict[str, Parameter]) -> dict[str, Any]:
    """The defaults, as a composed configuration has them."""
    own = {key.removeprefix(f"{GROUP}."): p.default for key, p in schema.items() if key not in ALONE}
    return {key: schema[key].default for key in ALONE} | {GROUP: own}


def take_sweep_options(config: dict[str, Any]) -> dict[str, Any]:
    """Remove the command's keys from a composed configuration, and give them as they are typed."""
    values = {key: config.pop(key) for key in ALONE if key in config}
    own = config.pop(GROUP, {})
    if not isinstance(own, dict):
        raise ConfigError(f"{GROUP} holds keys, such as {GROUP}.workers. Write them below it.")
    return values | {f"{GROUP}.{key}": value for key, value in own.items()}
