"""The run directory: layout, status, fingerprint, metrics.csv, checkpoints, figures, logs, provenance."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
