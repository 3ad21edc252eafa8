"""A composed sweep: its jobs, and the points that are not valid jobs."""

from __future__ import annotations

from dataclasses import dataclass

from nnexp.base import ConfigError
from nnexp.config.job import Job
from nnexp.config.sweep_options import SweepOptions

MAX_ERROR_LINES = 20


@dataclass(frozen=True)
class Sweep:
    """The jobs that a command describes; a single job is a sweep of one point.

    Args:
        jobs: one for each valid point.
        options: the keys `rerun` and `sweep.*`.
        invalid: the points that are not valid jobs, with the reason.
        notes: messages for the user, such as keys that were ignored.
    """

    jobs: list[Job]
    options: SweepOptions
    invalid: list[tuple[str, str]]
    notes: list[str]

    def check(self) -> None:
        """Raise ConfigError, naming the invalid points, unless `sweep.skip_invalid` is set and valid points remain."""
        if self.invalid and not (self.options.skip_invalid and self.jobs):
            advice = ["sweep.skip_invalid=true trains the others."] if self.jobs else []
            raise ConfigError("\n".join([*error_lines(self.invalid, all_invalid=not self.jobs), *advice]))


def error_lines(invalid: list[tuple[str, str]], *, all_invalid: bool) -> list[str]:
    """Return one line for each invalid point, at most 20; a single line where all points fail for the same reason.

    Args:
        invalid: points with the reason.
        all_invalid: True where the sweep has no valid point.
    """
    reasons = {reason: None for _, reason in invalid}
    if all_invalid and len(reasons) == 1:
        return list(reasons)
    lines = [f"{point}: {reason}" if point else reason for point, reason in invalid[:MAX_ERROR_LINES]]
    num_more = len(invalid) - MAX_ERROR_LINES
    return [*lines, f"and {num_more} more errors."] if num_more > 0 else lines
