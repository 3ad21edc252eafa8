"""Many lanes as one: what can be stacked, tracing, random numbers, the check against a lane alone."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
