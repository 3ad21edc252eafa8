"""One lane: flat weights, optimiser step, learning rate, precision, divergence, and the process state it trains in; writes no file."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
