"""The keys of a command: what they are, and that they are no job's."""

from __future__ import annotations

from typing import Any

import pytest

from nnexp.base.errors import ConfigError
from nnexp.commands.help_text import help_text
from nnexp.commands.train import resume_command
from nnexp.config.sweep_options import SweepOptions, make_sweep_options, sweep_options_schema, take_sweep_options
from nnexp.rundir.fingerprint import job_fingerprint


def test_the_defaults_are_those_of_the_class_and_every_key_has_help(registry) -> None:
    assert make_sweep_options({key: p.default for key, p in sweep_options_schema().items()}) == SweepOptions()
    assert all(parameter.help for parameter in sweep_options_schema().values())
    assert all(f"  {key}=" in help_text(registry, [], {}) for key in sweep_options_schema())


def test_keys_of_a_command_are_taken_out_of_a_config() -> None:
    config = {"seed": 1, "rerun": True, "sweep": {"workers": 2}}
    assert take_sweep_options(config) == {"rerun": True, "sweep.workers": 2}
    assert config == {"seed": 1}
    with pytest.raises(ConfigError, match="sweep: expected a mapping"):
        take_sweep_options({"sweep": 3})


def test_they_change_no_job(registry, make_job) -> None:
    other = make_job("sweep.workers=3", "sweep.retries=1", "rerun=true")
    assert other == make_job()
    assert job_fingerprint(other, registry) == job_fingerprint(make_job(), registry)


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({}, float("inf")),
        ({"max_failures": 3}, 3),
        ({"on_error": "stop"}, 1),
        ({"on_error": "stop", "max_failures": 3}, 1),
    ],
)
def test_failures_that_are_allowed(values: dict[str, Any], limit: float) -> None:
    assert SweepOptions(**values).failure_limit == limit


def test_the_command_that_goes_on_trains_nothing_anew() -> None:
    words = ["-m", "seed=range(3)", "rerun=true", "runs=a b"]
    assert resume_command(words) == "python -m nnexp -m 'seed=range(3)' 'runs=a b'"
