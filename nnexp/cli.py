"""The command line: overrides -> jobs -> plan -> runs -> a table. Errors are short, and come before torch."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Sequence
from typing import NoReturn

from nnexp.errors import ConfigError, NnexpError, cut
from nnexp.registry import KINDS, Registry, conf_dir, discover
from nnexp.tell import answer, open_streams, tell

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
        return _train(arguments, registry)
    except NnexpError as error:
        tell(str(error))
        return 2
    except OSError as error:
        tell(f"{error.strerror or error}: {error.filename or ''}")
        return 1
    except KeyboardInterrupt:
        return 130


def help_text(registry: Registry) -> str:
    """Usage, what can be chosen, and the keys that belong to no plugin."""
    from nnexp.config import settings_schema

    experiments = sorted(path.stem for path in (conf_dir() / "experiment").glob("*.yaml"))
    lines = [parser().format_help().replace("usage: ", "usage:\n").rstrip(), "", "choices:"]
    lines += [f"  {kind}={'|'.join(registry.names(kind))}" for kind in KINDS]
    lines += [f"  experiment={'|'.join(experiments)}"]
    lines += ["", "keys of every job:"]
    keys = [(f"{name}={p.default}", f"{p.help} ({p.allowed})") for name, p in settings_schema().items()]
    lines += [f"  {key:<22}{text}" for key, text in keys]
    return "\n".join(lines)


def _train(arguments: argparse.Namespace, registry: Registry) -> int:
    from nnexp.launcher import launch
    from nnexp.plan import plan
    from nnexp.stop import Stop
    from nnexp.sweeper import compose_jobs
    from nnexp.table import many_runs, one_run

    folder = arguments.config_dir
    if folder is not None and not os.path.isdir(folder):
        raise NnexpError(f"--config-dir {folder}: there is no such folder.")
    with warnings.catch_warnings(record=True) as caught:
        jobs = compose_jobs(
            arguments.overrides,
            registry,
            multirun=arguments.multirun,
            config_name=arguments.config_name,
            searchpath=(os.path.abspath(folder),) if folder else (),
        )
    for warning in caught:
        tell(str(warning.message))
    if arguments.cfg:
        import yaml

        answer("---\n".join(yaml.safe_dump(job.plain(), sort_keys=False) for job in jobs).rstrip())
        return 0
    stop = Stop()
    with stop.handling():
        cohorts = plan(jobs, registry)
        begun = launch(cohorts, registry, stop)
    if begun:
        answer(many_runs(begun) if arguments.multirun else one_run(begun[0].run))
    if stop.requested:
        tell("interrupted. The same command goes on from here.")
        return stop.exit_code
    is_done = len(begun) == sum(map(len, cohorts)) and all(planned.run.status == "finished" for planned in begun)
    return 0 if is_done else 1
