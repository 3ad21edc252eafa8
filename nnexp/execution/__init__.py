"""Runs a plan: cohorts, task queue, retries, executors and their workers, cost estimates, progress, dry run.

Why our own workers: in pebble's pool, a plugin that calls `os._exit(0)` hangs its task for ever, and a worker that
dies between tasks can break the pool (both seen). Here each task has a process of its own, forked from one that has
imported everything (13 ms), which keeps what a plugin changes from the next task, and ends when its lifeline, a pipe
from the command, is closed, even while it runs C code.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
