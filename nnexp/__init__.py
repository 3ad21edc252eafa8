"""nnexp: an experiment harness for small neural networks.

A plugin imports `dataset`, `model`, `trainer` or `probe`, and what its signature needs, from here. In a notebook,
`nnexp.plugin("model", "lstm")` is a plugin's class, `nnexp.load("runs/default/...")` a trained model with its data.

Names are imported when they are first used: some of them import torch.
"""

import lazy_loader

__version__ = "0.2.0"
__getattr__, _names, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __dir__() -> list[str]:
    return [*_names(), "__version__", "__doc__", "__path__", "__file__", "__name__"]
