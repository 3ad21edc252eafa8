"""The command without a verb: overrides -> jobs -> plan -> runs -> a table. Errors come before torch is imported."""

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
    """Train what a command describes, print its table, and return its exit code."""
    from nnexp.config import compose_sweep, error_lines
    from nnexp.execution import dry_run_report, num_workers, plan_cohorts

    folder = arguments.config_dir
    if folder is not None and not os.path.isdir(folder):
        raise NnexpError(f"--config-dir {folder}: there is no such folder.")
    composed = compose_sweep(
        arguments.overrides,
        registry,
        multirun=arguments.multirun,
        config_name=arguments.config_name,
        searchpath=(os.path.abspath(folder),) if folder else (),
        probes=tuple(registry.names("probe")),
    )
    if arguments.cfg:
        import yaml

        composed.check()
        print_out("---\n".join(yaml.safe_dump(job.plain(), sort_keys=False) for job in composed.jobs).rstrip())
        return 0
    command = composed.command if arguments.multirun else replace(composed.command, workers=0)
    again = command.again if arguments.multirun else ("failed",)  # what else could a single job be given again for
    cohorts = plan_cohorts(composed.jobs, registry, again=again, rerun=command.rerun, invalid=composed.invalid)
    if not command.dry_run or not composed.jobs:
        composed.check()
    for note in composed.notes:
        print_err(note)
    if command.dry_run:
        print_out(dry_run_report(cohorts, composed.invalid, registry, num_workers(command, [])))
        composed.check()
        return 0
    for line in error_lines(composed.invalid, is_all=False):
        print_err(f"left out: {line}")
    return _run(cohorts, registry, command, again_command(argv), is_sweep=arguments.multirun)


def _run(cohorts: list[Cohort], registry: Registry, command: SweepOptions, again: str, *, is_sweep: bool) -> int:
    """Train, and answer with what came of it. Gives the exit code."""
    from nnexp.answers import run_summary, runs_table, sweep_summary
    from nnexp.base import StopRequest
    from nnexp.execution import run_plan
    from nnexp.rundir import ENDED, in_command_order

    stop = StopRequest()
    with stop.handling():
        try:
            begun = run_plan(cohorts, registry, stop, command)
        except KeyboardInterrupt:
            print_err(f"ended at once. To go on from the last checkpoints: {again}")
            return stop.exit_code
    if begun:
        print_out(runs_table(begun) if is_sweep else run_summary(begun[0].run))
    planned = in_command_order(cohorts)
    if is_sweep:
        print_out(sweep_summary(planned))
    if any(item.status not in ENDED for item in planned):
        print_err(f"{'interrupted' if stop.signal else 'not all was trained'}. To go on from here: {again}")
    if stop.signal is not None:
        return stop.exit_code
    return 0 if all(item.status == "finished" and not item.failure for item in planned) else 1


def again_command(argv: Sequence[str]) -> str:
    """The command that continues: the same, without what asks for everything anew."""
    program = "nnexp" if os.path.basename(sys.argv[0]) == "nnexp" else "python -m nnexp"
    return f"{program} {shlex.join(text for text in argv if text.lstrip('+') not in RERUN)}".rstrip()
