"""The jobs that are timed: the same job for each seed, with batches of 32, evaluated at the end only."""

from __future__ import annotations

from collections.abc import Sequence

from nnexp.config import Job, compose_jobs
from nnexp.registry import Registry


def make_jobs(
    overrides: Sequence[str], registry: Registry, folder: str, steps: int, seeds: range, eval_every: int | None = None
) -> list[Job]:
    """Return one job for each seed, with run directories below `folder`.

    Args:
        overrides: dataset, model and other values.
        registry: the plugins.
        folder: the value of `runs`.
        steps: updates of each job.
        seeds: consecutive seeds.
        eval_every: updates between evaluations; None evaluates at the end only, since bare loops never evaluate.
    """
    texts = [*sweep_overrides(overrides, steps, seeds, eval_every), f"runs='{folder}'"]
    return compose_jobs(texts, registry, multirun=True)


def sweep_overrides(overrides: Sequence[str], steps: int, seeds: range, eval_every: int | None = None) -> list[str]:
    """Return the overrides of such a sweep; see `make_jobs`."""
    lengths = [f"trainer.max_steps={steps}", f"trainer.eval_every={eval_every or max(1, steps)}"]
    return [*overrides, *lengths, "trainer.batch_size=32", f"seed=range({seeds.start},{seeds.stop})"]
