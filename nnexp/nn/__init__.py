"""For models: initial weights, recurrent layers, compiled kernels.

Why our own kernels: `torch.func.vmap` has no rule for torch's RNN, LSTM and GRU, and a loop of small operations in
their place is bound by overhead. A kernel computes a layer for all lanes of a stack at once, bit for bit independent
of how many there are; without a compiler, the same in operations of torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
