"""What a plugin is and which there are: kinds, signature -> schema (read with `ast`), docstrings, discovery."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
