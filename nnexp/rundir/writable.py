"""Check that run directories can be created in a folder, before torch is imported and without leaving a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from nnexp.base import ConfigError, short_repr
from nnexp.rundir.create_run_dir import RunIndex

MAX_NAME_BYTES = 255  # of every common file system
LONGEST_PATH_BELOW = Path("r" * 130, "f" * 100)  # longest names of a run directory and of a file in it


def open_index(runs: str) -> RunIndex:
    """Return the index of the run directories below a root, which need not exist.

    Raises:
        ConfigError: the value of `runs` is not a valid path of a folder.
    """
    try:
        if not runs:
            raise ValueError("the path is empty")
        _check_path(Path(runs))
        return RunIndex(Path(runs))
    except (OSError, ValueError) as error:
        raise _config_error(runs, error) from None


def check_writable(runs: str, folder: Path) -> None:
    """Check that a file can be created in `folder`, or in its nearest existing parent.

    Args:
        runs: value of the key `runs`, for the message.
        folder: where run directories are to be created.

    Raises:
        ConfigError: no file can be created there.
    """
    try:
        _check_path(folder)
        existing = folder.absolute()
        while not os.path.lexists(existing):
            existing = existing.parent
        with tempfile.TemporaryFile(dir=existing):  # permission bits alone do not decide it
            pass
    except (OSError, ValueError) as error:
        raise _config_error(runs, error) from None


def _check_path(folder: Path) -> None:
    """Raise OSError or ValueError if the system refuses the path, with room for the files of a run below it."""
    if max(len(os.fsencode(part)) for part in folder.absolute().parts) > MAX_NAME_BYTES:
        raise ValueError(f"a file name has at most {MAX_NAME_BYTES} bytes")
    try:
        os.stat(folder / LONGEST_PATH_BELOW)
    except FileNotFoundError:
        return


def _config_error(runs: str, error: Exception) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ConfigError(f"runs={short_repr(runs)}: not a usable folder: {reason}. Name a folder that you can write to.")
