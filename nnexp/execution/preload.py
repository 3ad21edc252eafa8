"""What every worker needs, imported once by the process that all of them are forked from.

Nothing here may touch CUDA, which does not survive a fork, or start a thread.
"""

from __future__ import annotations

import atexit
import os
import threading

from nnexp.base import frozen_import

THREADS = "OPENBLAS_NUM_THREADS"  # numpy starts as many when it is imported
given = os.environ.get(THREADS)
os.environ[THREADS] = "1"
with frozen_import("pytorch_lightning"):
    import torch

    torch.set_num_threads(1)
    # torch.compile makes a progress bar; its own lock is a semaphore that stays in the system if the worker is killed.
    torch.hub.tqdm.set_lock(threading.RLock())  # type: ignore[attr-defined]
    from nnexp.fit import CohortFit  # noqa: F401  # for the workers that are forked

os.environ.pop("PYTHONSAFEPATH", None)  # which was for this process
if given is None:
    del os.environ[THREADS]
else:
    os.environ[THREADS] = given

atexit.register(os._exit, 0)  # nothing of all this needs an orderly end, which takes a second and a half
