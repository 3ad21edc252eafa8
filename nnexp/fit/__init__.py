"""Trains a cohort into its run directories: chunks, resume, checkpoints. The only room that imports Lightning."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
