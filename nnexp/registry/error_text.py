"""Describe the exceptions of training and probes, for run.json and for console output."""

from __future__ import annotations

import traceback

from nnexp.base import NnexpError
from nnexp.registry.plugin_source import plugin_files


def describe_error(error: BaseException) -> dict[str, str]:
    """Return type, message and traceback of an exception as text.

    The message of an exception that was not written for the user is extended by its type and by the file and line
    that raised it, preferably the innermost line of a plugin.
    """
    text = "".join(traceback.format_exception(error))
    try:
        message = str(error)
    except Exception:
        message = "the exception's message cannot be shown"
    if not isinstance(error, NnexpError):
        frames = traceback.extract_tb(error.__traceback__)
        in_plugins = [frame for frame in frames if frame.filename in plugin_files()]
        places = [f" ({frame.filename}:{frame.lineno})" for frame in (in_plugins or frames)[-1:]]
        message = f"{type(error).__name__}: {message}{''.join(places)}"
    return {"type": type(error).__name__, "message": message, "traceback": text}
