"""A process left as it was: training, and the plugins that it runs, change much that is global."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from nnexp.base.rng_state import get_rng_state, set_rng_state


@contextmanager
def isolated() -> Iterator[None]:
    """What the block does to generators, environment, folder, streams, threads, defaults and logging, undone."""
    state, environment, threads = get_rng_state(), dict(os.environ), torch.get_num_threads()
    loggers = [logging.getLogger(name) for name in ("", "pytorch_lightning", "lightning.pytorch")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    default, device, gradients = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
    here, umask, streams = Path.cwd(), os.umask(0o22), (sys.stdout, sys.stderr)
    os.umask(umask)
    torch.set_num_threads(1)
    for name in [name for name in os.environ if name.startswith("PL_TRAINER_")]:
        del os.environ[name]  # they would change the Trainer's arguments behind our back
    for logger in loggers[1:]:
        _set_level(logger, logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*configure_optimizers. returned .None.*")
            warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated")  # Lightning's own
            yield
    finally:
        for logger, level, handlers in before:
            _set_level(logger, level)
            logger.handlers[:] = handlers
        torch.set_num_threads(threads)
        torch.set_default_dtype(default)
        if torch.get_default_device() != device:  # setting it, even to the CPU, makes every operation slower
            torch.set_default_device(None if device.type == "cpu" else device)
        torch.set_grad_enabled(gradients)
        os.chdir(here)
        os.umask(umask)
        sys.stdout, sys.stderr = streams
        if dict(os.environ) != environment:  # to set it takes longer than to look
            os.environ.clear()
            os.environ.update(environment)
        set_rng_state(state)


def _set_level(logger: logging.Logger, level: int) -> None:
    """What a logger is told it forgets all it knows for, and so do all others."""
    if logger.level != level:
        logger.setLevel(level)
