"""Batches, splits and their checks, losses, metrics, seeds, and views that turn any kind of data into another."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
