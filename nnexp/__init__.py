"""nnexp: an experiment harness for small neural networks.

Plugins import the decorators `dataset`, `model`, `trainer` and `probe`, and the types of their signatures, from here.
In a notebook:

>>> LSTM = nnexp.plugin("model", "lstm")  # the class of a plugin
>>> run = nnexp.load("runs/default/...")  # a finished run: trained model and data

Names are imported on first use, because some of them import torch.
"""

import lazy_loader

__version__ = "0.2.0"
__getattr__, _names, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __dir__() -> list[str]:
    return [*_names(), "__version__", "__doc__", "__path__", "__file__", "__name__"]
