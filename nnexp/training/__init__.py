"""One lane: flat weights, optimiser step, learning rate, precision, divergence, process state; writes no file."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
