"""Flags of the training command, and the argument parser of all verbs."""

from __future__ import annotations

import argparse
from typing import NoReturn

from nnexp.base import ConfigError, shorten

USAGE = """\
nnexp [KIND=NAME ...] [KEY=VALUE ...]        train one job
nnexp -m [KEY=A,B,C | KEY='range(8)' ...]    train every point of a sweep
nnexp VERB ...                               run a verb; nnexp VERB --help describes it
nnexp --help [KIND=NAME ...]                 show this text, or the keys of plugins

`nnexp` is short for `python -m nnexp`."""


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors on one line, as ConfigError."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError with argparse's message."""
        raise ConfigError(f"{shorten(message)}. --help lists the arguments.")


def parser() -> Parser:
    """Return the parser of the training command: the flags of Hydra that do not import code named by a config."""
    result = Parser(prog="nnexp", usage=USAGE, add_help=False, allow_abbrev=False)
    add = result.add_argument
    add("--help", "-h", action="store_true", help="print this text, or the keys of the named plugins")
    add("--version", action="store_true", help="print the version")
    add("--multirun", "-m", action="store_true", help="train every point of a sweep")
    add("--cfg", "-c", choices=["job"], help="print the composed job instead of training it")
    add("--config-name", "-cn", default="config", help="the primary config (default: config)")
    add("--config-dir", "-cd", help="another folder of configs, such as your own experiments")
    add("overrides", nargs="*", help="KIND=NAME or KEY=VALUE")
    return result
