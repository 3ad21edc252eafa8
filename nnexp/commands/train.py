"""The training command: compose jobs, plan, train, print a table. Errors are raised before torch is imported."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nnexp.base import NnexpError, print_err, print_out
from nnexp.registry import Registry

if TYPE_CHECKING:
    from nnexp.config import SweepOptions
    from nnexp.rundir import Cohort

RERUN = ("rerun=true", "rerun=True")


def train(arguments: argparse.Namespace, registry: Registry, argv: Sequence[str]) -> int:
    """Train the jobs of a command, print its table, and return its exit code.

    Args:
        arguments: as parsed by `nnexp.commands.arguments.parser`.
        registry: the plugins.
        argv: the unparsed arguments, for the command that resumes.
    """
    from nnexp.config import compose_sweep, error_lines
    from nnexp.execution import dry_run_report, num_workers, plan_cohorts

    folder = arguments.config_dir
    if folder is not None and not os.path.isdir(folder):
        raise NnexpError(f"--config-dir {folder}: there is no such folder.")
    sweep = compose_sweep(
        arguments.overrides,
        registry,
        multirun=arguments.multirun,
        config_name=arguments.config_name,
        searchpath=(os.path.abspath(folder),) if folder else (),
        probes=tuple(registry.names("probe")),
    )
    if arguments.cfg:
        import yaml

        sweep.check()
        print_out("---\n".join(yaml.safe_dump(job.plain(), sort_keys=False) for job in sweep.jobs).rstrip())
        return 0
    options = sweep.options if arguments.multirun else replace(sweep.options, workers=0)
    retry = options.retry_statuses if arguments.multirun else ("failed",)  # repeating a single failed job retries it
    cohorts = plan_cohorts(sweep.jobs, registry, retry_statuses=retry, rerun=options.rerun, invalid=sweep.invalid)
    if not options.dry_run or not sweep.jobs:
        sweep.check()
    for note in sweep.notes:
        print_err(note)
    if options.dry_run:
        print_out(dry_run_report(cohorts, sweep.invalid, registry, num_workers(options, [])))
        sweep.check()
        return 0
    for line in error_lines(sweep.invalid, all_invalid=False):
        print_err(f"skipped: {line}")
    return _run(cohorts, registry, options, resume_command(argv), is_sweep=arguments.multirun)


def _run(cohorts: list[Cohort], registry: Registry, options: SweepOptions, resume: str, *, is_sweep: bool) -> int:
    """Train the cohorts, print the results and, where runs are unfinished, the command that resumes."""
    from nnexp.answers import run_summary, runs_table, sweep_summary
    from nnexp.base import StopRequest
    from nnexp.execution import run_plan
    from nnexp.rundir import ENDED, in_command_order

    stop = StopRequest()
    with stop.handling():
        try:
            trained = run_plan(cohorts, registry, stop, options)
        except KeyboardInterrupt:
            print_err(f"stopped at once. To resume from the last checkpoints: {resume}")
            return stop.exit_code
    if trained:
        print_out(runs_table(trained) if is_sweep else run_summary(trained[0].run))
    planned = in_command_order(cohorts)
    if is_sweep:
        print_out(sweep_summary(planned))
    if any(item.status not in ENDED for item in planned):
        print_err(f"{'interrupted' if stop.signal else 'some jobs were not trained'}. To resume: {resume}")
    if stop.signal is not None:
        return stop.exit_code
    return 0 if all(item.status == "finished" and not item.failure for item in planned) else 1


def resume_command(argv: Sequence[str]) -> str:
    """Return the command that resumes a command: the same without `rerun=true`."""
    program = "nnexp" if os.path.basename(sys.argv[0]) == "nnexp" else "python -m nnexp"
    return f"{program} {shlex.join(text for text in argv if text.lstrip('+') not in RERUN)}".rstrip()
