"""Turn command-line overrides and YAML files into typed, checked jobs; uses Hydra for composition."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
