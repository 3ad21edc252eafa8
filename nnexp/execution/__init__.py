"""Runs a plan: cohorts, task queue, retries, executors and their workers, cost estimates, progress, dry run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
