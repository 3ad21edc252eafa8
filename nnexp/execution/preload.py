"""Imports of the fork server: what every worker needs, imported once before workers are forked.

Nothing here may use CUDA, which does not survive a fork, or start a thread.
"""

from __future__ import annotations

import atexit
import os
import threading

from nnexp.base import frozen_import

NUM_THREADS = "OPENBLAS_NUM_THREADS"  # numpy starts this many threads when it is imported
before = os.environ.get(NUM_THREADS)
os.environ[NUM_THREADS] = "1"
with frozen_import("pytorch_lightning"):
    import torch

    torch.set_num_threads(1)
    # torch.compile makes a progress bar; its own lock is a semaphore that stays in the system if the worker is killed.
    torch.hub.tqdm.set_lock(threading.RLock())  # type: ignore[attr-defined]
    from nnexp.fit import CohortFit  # noqa: F401  # imported for the workers

os.environ.pop("PYTHONSAFEPATH", None)  # set for the fork server only
if before is None:
    del os.environ[NUM_THREADS]
else:
    os.environ[NUM_THREADS] = before

atexit.register(os._exit, 0)  # skips the clean-up of all these modules, which takes 1.5 s
