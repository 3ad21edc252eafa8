"""What a command describes: jobs, and points that are none."""

from __future__ import annotations

from dataclasses import dataclass

from nnexp.base import ConfigError
from nnexp.config.job import Job
from nnexp.config.sweep_options import SweepOptions

SHOWN = 20  # errors of a sweep


@dataclass(frozen=True)
class Sweep:
    """What a command describes.

    Args:
        jobs: one for each valid point.
        invalid: the points that are no jobs, with the reason.
        notes: what a reader of the plan should know.
    """

    jobs: list[Job]
    command: SweepOptions
    invalid: list[tuple[str, str]]
    notes: list[str]

    def check(self) -> None:
        """Raises ConfigError, naming every bad point, unless these are to be left out and there are others."""
        if self.invalid and not (self.command.skip_invalid and self.jobs):
            advice = ["sweep.skip_invalid=true trains the others."] if self.jobs else []
            raise ConfigError("\n".join([*error_lines(self.invalid, is_all=not self.jobs), *advice]))


def error_lines(invalid: list[tuple[str, str]], is_all: bool) -> list[str]:
    """A line for each bad point; one where all points are wrong in the same way."""
    reasons = {reason: None for _, reason in invalid}
    if is_all and len(reasons) == 1:
        return list(reasons)
    lines = [f"{point}: {reason}" if point else reason for point, reason in invalid[:SHOWN]]
    return [*lines, f"and {len(invalid) - SHOWN} errors more."] if len(invalid) > SHOWN else lines
