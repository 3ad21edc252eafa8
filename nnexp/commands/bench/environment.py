"""Environment variables of the measured processes: one thread each, and optionally empty caches."""

from __future__ import annotations

import os

from nnexp.registry import PACKAGE

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
CACHES = ("XDG_CACHE_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")


def one_thread() -> dict[str, str]:
    """Return an environment that limits numeric libraries to one thread and puts this nnexp on the import path."""
    places = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": os.pathsep.join(places)}


def no_caches(folder: str) -> dict[str, str]:
    """Return the same environment with the caches of torch and nnexp in a folder."""
    return {**one_thread(), **{name: os.path.join(folder, name.lower()) for name in CACHES}}
