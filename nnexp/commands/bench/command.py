"""The verb: checks its files, measures part by part, prints, writes."""

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
    """Raises NnexpError, before hours of measuring, where their results could not be written."""
    for name in filter(None, (options.csv, options.picture)):
        if not Path(name).absolute().parent.is_dir():
            raise NnexpError(f"{name}: there is no such folder.")
    if options.picture and Path(options.picture).suffix not in PICTURES:
        raise NnexpError(f"--picture {options.picture}: the name must end in one of {', '.join(PICTURES)}.")


def run(argv: Sequence[str], about: str) -> int:
    """Measure and print a table, also of what was measured before an error; 0 whatever the figures are."""
    options = parser(about).parse_args(argv)
    check_files(options)
    with frozen_import("nnexp.commands.bench.measure"):  # torch and Lightning: after help and errors
        from nnexp.commands.bench.measure import measure
        from nnexp.commands.bench.report import facts, table, write_csv

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
        print_out("; ".join(f"{name} {value}" for name, value in facts().items()))
        print_out(table(measured))
        if options.csv:
            write_csv(Path(options.csv), measured)
        if options.picture:
            from nnexp.commands.bench.picture import draw

            draw(Path(options.picture), measured)
    return code
