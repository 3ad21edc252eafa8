"""What every worker needs, imported once by the process that all of them are forked from.

Nothing here may touch CUDA, which does not survive a fork, or start a thread.
"""

from __future__ import annotations

from nnexp.heap import kept

with kept("nnexp.fit"):
    import torch

    torch.set_num_threads(1)
    import nnexp.fit
    import nnexp.stack
    import nnexp.worker  # noqa: F401
