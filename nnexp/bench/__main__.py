"""python -m nnexp.bench"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from nnexp.bench.options import parser
from nnexp.errors import NnexpError
from nnexp.heap import kept
from nnexp.tell import answer, tell

PICTURES = (".png", ".svg", ".pdf")


def check_files(options: argparse.Namespace) -> None:
    """Raises NnexpError, before hours of measuring, where their results could not be written."""
    for name in filter(None, (options.csv, options.picture)):
        if not Path(name).absolute().parent.is_dir():
            raise NnexpError(f"{name}: there is no such folder.")
    if options.picture and Path(options.picture).suffix not in PICTURES:
        raise NnexpError(f"--picture {options.picture}: the name must end in one of {', '.join(PICTURES)}.")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print a table, also of what was measured before an error; 0 whatever the figures are."""
    options = parser().parse_args(argv)
    try:
        check_files(options)
    except NnexpError as error:
        tell(str(error))
        return 2
    with kept("nnexp.bench.measure"):  # torch and Lightning: after help and errors
        from nnexp.bench.measure import measure
        from nnexp.bench.report import facts, table, write_csv

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    measured, code = [], 0
    try:
        for measurement in measure(options):
            measured.append(measurement)
            tell(" ".join(filter(None, measurement.cells())))
    except (NnexpError, KeyboardInterrupt) as error:
        tell(str(error) or "interrupted.")
        code = 1
    if measured:
        answer("; ".join(f"{name} {value}" for name, value in facts().items()))
        answer(table(measured))
        if options.csv:
            write_csv(Path(options.csv), measured)
        if options.picture:
            from nnexp.bench.picture import draw

            draw(Path(options.picture), measured)
    return code


if __name__ == "__main__":
    sys.exit(main())
