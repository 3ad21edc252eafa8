"""Exceptions shown to users: each message names what was asked, what exists and what to do next."""


class NnexpError(Exception):
    """Base of errors whose message is written for the user and printed without a traceback."""


class ConfigError(NnexpError):
    """A job cannot be composed; raised before torch is imported and before anything is written."""


class PluginError(NnexpError):
    """A plugin file cannot be read or violates its contract."""


class RecordError(NnexpError):
    """A run directory cannot be used: locked by another process, damaged, or of another format version."""
