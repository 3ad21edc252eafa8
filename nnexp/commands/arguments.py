"""Flags of the command line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from nnexp.base import ConfigError, shorten

USAGE = """\
nnexp [KIND=NAME ...] [KEY=VALUE ...]        train one job
nnexp -m [KEY=A,B,C | KEY='range(8)' ...]    train every point of a sweep
nnexp VERB ...                               nnexp VERB --help describes one
nnexp --help [KIND=NAME ...]                 this text, or the keys of plugins

`nnexp` is short for `python -m nnexp`."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all others are."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(f"{shorten(message)}. --help shows what there is.")


def parser() -> Parser:
    """Return a parser of Hydra's flags, as far as they apply here: none imports or runs what a config names."""
    result = Parser(prog="nnexp", usage=USAGE, add_help=False, allow_abbrev=False)
    add = result.add_argument
    add("--help", "-h", action="store_true", help="print this text, or the keys of the plugins that are named")
    add("--version", action="store_true", help="print the version")
    add("--multirun", "-m", action="store_true", help="train every point of a sweep")
    add("--cfg", "-c", choices=["job"], help="print the composed job instead of training it")
    add("--config-name", "-cn", default="config", help="another primary config")
    add("--config-dir", "-cd", help="a further folder of configs, such as your own experiments")
    add("overrides", nargs="*", help="KIND=NAME or KEY=VALUE")
    return result
