"""Runs a plan: queue, executors, workers, retries, cost, progress, dry run, table of failures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
