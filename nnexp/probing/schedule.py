"""When probes look, and at which of these steps they draw. No list of steps is made: there may be millions."""

from __future__ import annotations

from functools import cache

MOST_PICTURES = 10  # of one name, for TensorBoard keeps no more
Every = int | str


def is_due(every: Every, step: int, max_steps: int) -> bool:
    """Whether a probe looks at a step: the first and the last are among them."""
    return step == next_due(every, step - 1, max_steps)


def next_due(every: Every, step: int, max_steps: int) -> int:
    """The first moment after a step; the last where there is none."""
    if step < 0:
        return 0
    if isinstance(every, int):
        return min((step // every + 1) * every, max_steps)
    power = 10 ** max(1, len(str(step)))  # 10, 100, 1000: the first above the step
    return min(power, max_steps) if every == "log" else max_steps


@cache
def drawn_steps(every: Every, max_steps: int) -> frozenset[int]:
    """Those of them at which it draws: all, or few with more and more steps in between, the last among them.

    They are one fewer than may be, for a run that ends early draws at its last step as well.
    """
    most = MOST_PICTURES - 1
    steps = [0]
    while steps[-1] < max_steps and len(steps) <= most:
        steps.append(next_due(every, steps[-1], max_steps))
    if steps[-1] == max_steps and len(steps) <= most:
        return frozenset(steps)
    if not isinstance(every, int):  # of so many powers of ten the latest
        return frozenset([0, *(max_steps if n == 0 else 10 ** (len(str(max_steps - 1)) - n) for n in range(most - 1))])
    last = -(-max_steps // every)
    places = {round(last ** (number / (most - 2))) for number in range(most - 1)}
    return frozenset(min(place * every, max_steps) for place in {0, *places})
