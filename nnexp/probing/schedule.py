"""Steps at which a probe observes and draws, computed without listing them: a run may have millions of steps."""

from __future__ import annotations

from functools import cache

MAX_PICTURES = 10  # of one name, the number that TensorBoard keeps
Every = int | str


def is_due(every: Every, step: int, max_steps: int) -> bool:
    """Return whether a probe observes at a step; the first and the last step always count."""
    return step == next_due(every, step - 1, max_steps)


def next_due(every: Every, step: int, max_steps: int) -> int:
    """Return the first scheduled step after `step`, or `max_steps` where there is none.

    Args:
        every: number of updates between observations, "log" or "ends".
        step: number of updates done; -1 returns step 0.
        max_steps: number of updates of the complete training.
    """
    if step < 0:
        return 0
    if isinstance(every, int):
        return min((step // every + 1) * every, max_steps)
    power = 10 ** max(1, len(str(step)))  # 10, 100, 1000: the first above the step
    return min(power, max_steps) if every == "log" else max_steps


@cache
def drawn_steps(every: Every, max_steps: int) -> frozenset[int]:
    """Return the scheduled steps at which pictures are drawn, always with the first and the last.

    All scheduled steps where they are few; otherwise a selection with growing distances. At most `MAX_PICTURES` - 1
    steps: a run that stops early also draws at the step where it ends.
    """
    limit = MAX_PICTURES - 1
    steps = [0]
    while steps[-1] < max_steps and len(steps) <= limit:
        steps.append(next_due(every, steps[-1], max_steps))
    if steps[-1] == max_steps and len(steps) <= limit:
        return frozenset(steps)
    if not isinstance(every, int):  # the latest powers of ten
        return frozenset([0, *(max_steps if n == 0 else 10 ** (len(str(max_steps - 1)) - n) for n in range(limit - 1))])
    last = -(-max_steps // every)
    indices = {round(last ** (number / (limit - 2))) for number in range(limit - 1)}
    return frozenset(min(index * every, max_steps) for index in {0, *indices})
