"""Plugin registry: kinds of plugins, discovery, and schemas read from class signatures with `ast`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
