"""Processes that are measured: one thread each, caches where they are told."""

from __future__ import annotations

import os

from nnexp.registry import PACKAGE

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
CACHES = ("XDG_CACHE_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")


def one_thread() -> dict[str, str]:
    """The environment of a process in one thread, which finds this nnexp wherever it runs."""
    places = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": os.pathsep.join(places)}


def no_caches(folder: str) -> dict[str, str]:
    """The same, with everything that torch or nnexp may have kept elsewhere out of sight."""
    return {**one_thread(), **{name: os.path.join(folder, name.lower()) for name in CACHES}}
