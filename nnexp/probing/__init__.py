"""What a probe is given, and what probes share: receptive fields, states over time, hooks, operations."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
