"""The verb `bench`: check the output files, measure part by part, print and write the results."""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

from nnexp.base import NnexpError, frozen_import, print_err, print_out
from nnexp.commands.bench.options import parser

PICTURES = (".png", ".svg", ".pdf")


def check_files(options: argparse.Namespace) -> None:
    """Raise NnexpError, before hours of measuring, where the results could not be written."""
    for name in filter(None, (options.csv, options.picture)):
        if not Path(name).absolute().parent.is_dir():
            raise NnexpError(f"{name}: there is no such folder.")
    if options.picture and Path(options.picture).suffix not in PICTURES:
        raise NnexpError(f"--picture {options.picture}: the name must end in one of {', '.join(PICTURES)}.")


def run(argv: Sequence[str], about: str) -> int:
    """Measure and print a table, including what was measured before an error.

    Args:
        argv: the arguments.
        about: the description for --help.

    Returns:
        1 after an error or Ctrl-C, otherwise 0, whether or not bars are passed.
    """
    options = parser(about).parse_args(argv)
    check_files(options)
    with frozen_import("nnexp.commands.bench.measure"):  # imports torch and Lightning: only after help and errors
        from nnexp.commands.bench.measure import measure
        from nnexp.commands.bench.report import machine_facts, table, write_csv

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    measured, code = [], 0
    try:
        for measurement in measure(options):
            measured.append(measurement)
            print_err(" ".join(filter(None, measurement.cells())))
    except (NnexpError, KeyboardInterrupt) as error:
        print_err(str(error) or "interrupted.")
        code = 1
    if measured:
        print_out("; ".join(f"{name} {value}" for name, value in machine_facts().items()))
        print_out(table(measured))
        if options.csv:
            write_csv(Path(options.csv), measured)
        if options.picture:
            from nnexp.commands.bench.picture import draw

            draw(Path(options.picture), measured)
    return code
