"""The command line: overrides -> jobs -> plan -> runs -> a table. Errors are short, and come before torch."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from nnexp.errors import ConfigError, NnexpError, cut
from nnexp.registry import PARTS, Registry, conf_dir, discover
from nnexp.tell import answer, open_streams, tell

if TYPE_CHECKING:
    from nnexp.command import Command
    from nnexp.plan import Cohort

RERUN = ("rerun=true", "rerun=True")
USAGE = """\
python -m nnexp [KIND=NAME ...] [KEY=VALUE ...]        train one job
python -m nnexp -m [KEY=A,B,C | KEY='range(8)' ...]    train every point of a sweep
python -m nnexp.plugins [NAME]                         what can be chosen, and its keys"""


class Parser(argparse.ArgumentParser):
    """One whose errors are one line, as all others are."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{cut(message)}. --help shows what there is.")


def parser() -> Parser:
    """Hydra's own flags, as far as they have a meaning here: nothing that a config names is imported or run."""
    result = Parser(prog="nnexp", usage=USAGE, add_help=False, allow_abbrev=False)
    result.add_argument("--help", "-h", action="store_true", help="this text")
    result.add_argument("--multirun", "-m", action="store_true", help="train every point of a sweep")
    result.add_argument("--cfg", "-c", choices=["job"], help="print the composed job instead of training it")
    result.add_argument("--config-name", "-cn", default="config", help="another primary config")
    result.add_argument("--config-dir", "-cd", help="a further folder of configs, such as your own experiments")
    result.add_argument("overrides", nargs="*", help="KIND=NAME or KEY=VALUE")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; gives its exit code: 0, 1 for a failed run, 2 for a bad command, 128 + signal."""
    open_streams()
    try:
        arguments = parser().parse_intermixed_args(argv)
        registry = discover()
        if arguments.help:
            answer(help_text(registry))
            return 0
        return _train(arguments, registry, sys.argv[1:] if argv is None else argv)
    except NnexpError as error:
        tell(str(error))
        return 2
    except OSError as error:
        tell(f"{error.strerror or error}: {error.filename or ''}")
        return 1
    except KeyboardInterrupt:
        tell("interrupted before anything was begun.")
        return 130


def help_text(registry: Registry) -> str:
    """Usage, what can be chosen, and the keys that belong to no plugin."""
    from nnexp.command import command_schema
    from nnexp.config import settings_schema, shown

    experiments = sorted(path.stem for path in (conf_dir() / "experiment").glob("*.yaml"))
    lines = [parser().format_help().replace("usage: ", "usage:\n").rstrip(), "", "choices:"]
    lines += [f"  {kind}={'|'.join(registry.names(kind))}" for kind in PARTS]
    lines += [
        f"  probe=[{','.join(registry.names('probe'))}]",
        "    several; a single job has all, a sweep what it names",
    ]
    lines += [f"  experiment={'|'.join(experiments)}"]
    lines += ["", "keys of every job:"]
    keys = [(f"{name}={p.default}", f"{p.help} ({p.allowed})") for name, p in settings_schema().items()]
    lines += [f"  {key:<22}{text}" for key, text in keys]
    lines += ["", "keys of a sweep:"]
    lines += [f"  {name + '=' + shown(p.default):<26}{p.help} ({p.allowed})" for name, p in command_schema().items()]
    return "\n".join(lines)


def _train(arguments: argparse.Namespace, registry: Registry, argv: Sequence[str]) -> int:
    from nnexp.composed import told
    from nnexp.devices import num_workers
    from nnexp.plan import plan
    from nnexp.preview import preview
    from nnexp.sweeper import compose

    folder = arguments.config_dir
    if folder is not None and not os.path.isdir(folder):
        raise NnexpError(f"--config-dir {folder}: there is no such folder.")
    composed = compose(
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
        answer("---\n".join(yaml.safe_dump(job.plain(), sort_keys=False) for job in composed.jobs).rstrip())
        return 0
    command = composed.command if arguments.multirun else replace(composed.command, workers=0)
    again = command.again if arguments.multirun else ("failed",)  # what else could a single job be given again for
    cohorts = plan(composed.jobs, registry, again=again, rerun=command.rerun, invalid=composed.invalid)
    if not command.dry_run or not composed.jobs:
        composed.check()
    for note in composed.notes:
        tell(note)
    if command.dry_run:
        answer(preview(cohorts, composed.invalid, registry, num_workers(command, [])))
        composed.check()
        return 0
    for line in told(composed.invalid, is_all=False):
        tell(f"left out: {line}")
    return _run(cohorts, registry, command, again_command(argv), is_sweep=arguments.multirun)


def _run(cohorts: list[Cohort], registry: Registry, command: Command, again: str, *, is_sweep: bool) -> int:
    """Train, and answer with what came of it. Gives the exit code."""
    from nnexp.launcher import launch
    from nnexp.plan import in_order
    from nnexp.record import ENDED
    from nnexp.stop import Stop
    from nnexp.table import ending, many_runs, one_run

    stop = Stop()
    with stop.handling():
        try:
            begun = launch(cohorts, registry, stop, command)
        except KeyboardInterrupt:
            tell(f"ended at once. To go on from the last checkpoints: {again}")
            return stop.exit_code
    if begun:
        answer(many_runs(begun) if is_sweep else one_run(begun[0].run))
    planned = in_order(cohorts)
    if is_sweep:
        answer(ending(planned))
    if any(item.status not in ENDED for item in planned):
        tell(f"{'interrupted' if stop.signal else 'not all was trained'}. To go on from here: {again}")
    if stop.signal is not None:
        return stop.exit_code
    return 0 if all(item.status == "finished" and not item.lost for item in planned) else 1


def again_command(argv: Sequence[str]) -> str:
    """The command that continues: the same, without what asks for everything anew."""
    program = "nnexp" if os.path.basename(sys.argv[0]) == "nnexp" else "python -m nnexp"
    return f"{program} {shlex.join(text for text in argv if text.lstrip('+') not in RERUN)}".rstrip()
