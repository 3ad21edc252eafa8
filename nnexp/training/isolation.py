"""Restore the global state of the process (RNG, environment, streams, logging, torch defaults) after training."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from nnexp.data import get_rng_state, set_rng_state


@contextmanager
def isolated() -> Iterator[None]:
    """Restore global state after the block, whatever the block or the plugins that it runs changed.

    Covers the generators of Python, numpy and torch, the environment, working directory, umask, standard streams,
    log levels and handlers, and torch's threads, default dtype, default device and grad mode. Within the block torch
    uses one thread.
    """
    state, environment, threads = get_rng_state(), dict(os.environ), torch.get_num_threads()
    loggers = [logging.getLogger(name) for name in ("", "pytorch_lightning", "lightning.pytorch")]
    logger_states = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    dtype, device, grad_enabled = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
    folder, umask, streams = Path.cwd(), os.umask(0o22), (sys.stdout, sys.stderr)
    os.umask(umask)
    torch.set_num_threads(1)
    for name in [name for name in os.environ if name.startswith("PL_TRAINER_")]:
        del os.environ[name]  # Lightning reads Trainer arguments from these
    for logger in loggers[1:]:
        _set_level(logger, logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*configure_optimizers. returned .None.*")
            warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated")  # Lightning's own
            yield
    finally:
        for logger, level, handlers in logger_states:
            _set_level(logger, level)
            logger.handlers[:] = handlers
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:  # setting it, even to the CPU, makes every operation slower
            torch.set_default_device(None if device.type == "cpu" else device)
        torch.set_grad_enabled(grad_enabled)
        os.chdir(folder)
        os.umask(umask)
        sys.stdout, sys.stderr = streams
        if dict(os.environ) != environment:  # comparing is faster than setting
            os.environ.clear()
            os.environ.update(environment)
        set_rng_state(state)


def _set_level(logger: logging.Logger, level: int) -> None:
    if logger.level != level:  # setLevel clears the caches of all loggers
        logger.setLevel(level)
