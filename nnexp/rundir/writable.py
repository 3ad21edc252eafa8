"""Whether run directories can be made in a folder: asked before torch is imported, and nothing is left there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from nnexp.base import ConfigError, short_repr
from nnexp.rundir.create import RunIndex

LONGEST_NAME = 255  # bytes, on every common file system
BELOW = Path("r" * 130, "f" * 100)  # the longest names of a run directory and of a file in it


def open_index(runs: str) -> RunIndex:
    """The run directories of a root. Raises ConfigError where it cannot be the name of a folder."""
    try:
        if not runs:
            raise ValueError("a folder has a name")
        check_name(Path(runs))
        return RunIndex(Path(runs))
    except (OSError, ValueError) as error:
        raise refusal(runs, error) from None


def check_writable(runs: str, folder: Path) -> None:
    """Raises ConfigError where nothing can be made in `folder`, or in the nearest folder above it that exists."""
    try:
        check_name(folder)
        place = folder.absolute()
        while not os.path.lexists(place):
            place = place.parent
        with tempfile.TemporaryFile(dir=place):  # by trying, for permissions alone do not say it
            pass
    except (OSError, ValueError) as error:
        raise refusal(runs, error) from None


def check_name(folder: Path) -> None:
    """Raises OSError or ValueError where the system knows no such name, or where it is no folder's."""
    if max(len(os.fsencode(part)) for part in folder.absolute().parts) > LONGEST_NAME:
        raise ValueError(f"a name has at most {LONGEST_NAME} bytes")
    try:
        os.stat(folder / BELOW)
    except FileNotFoundError:
        return


def refusal(runs: str, error: Exception) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ConfigError(
        f"runs={short_repr(runs)}: runs cannot lie there: {reason}. Name a folder that you can write to."
    )
