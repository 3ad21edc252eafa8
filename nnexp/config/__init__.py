"""Command line and files -> jobs: the typed job, sweep options, safe YAML, Hydra, axes, grid, names."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
