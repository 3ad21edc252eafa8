"""Training of many lanes as one stack: grouping, tracing, graph passes, random numbers, parity with solo lanes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
