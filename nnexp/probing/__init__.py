"""Probes: scheduling, the view that they observe, and tools for them: hooks, receptive fields, states, operations.

Why our own receptive fields: published tools follow a fixed list of layers. These measure any model by changing its
inputs, and compare that with the formula followed through whatever the model calls, and with gradients.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
