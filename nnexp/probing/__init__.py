"""Probes: scheduling, the view that they observe, and tools for them: hooks, receptive fields, states, operations."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
