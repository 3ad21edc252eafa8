"""Command line: each module that defines `main` is a verb of `nnexp`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
