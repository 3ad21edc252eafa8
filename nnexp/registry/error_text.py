"""Exceptions in words: of training and of probes, for run.json and for a person."""

from __future__ import annotations

import traceback

from nnexp.base import NnexpError
from nnexp.registry.plugin_source import plugin_files


def describe_error(error: BaseException) -> dict[str, str]:
    """An exception as text; a message not written for the user gets its type and place, a plugin's before ours."""
    text = "".join(traceback.format_exception(error))
    try:
        message = str(error)
    except Exception:
        message = "its message cannot be shown"
    if not isinstance(error, NnexpError):
        frames = traceback.extract_tb(error.__traceback__)
        in_plugins = [frame for frame in frames if frame.filename in plugin_files()]
        places = [f" ({frame.filename}:{frame.lineno})" for frame in (in_plugins or frames)[-1:]]
        message = f"{type(error).__name__}: {message}{''.join(places)}"
    return {"type": type(error).__name__, "message": message, "traceback": text}
