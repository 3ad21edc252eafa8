"""TensorBoard event files; the only package that imports tensorboard."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
