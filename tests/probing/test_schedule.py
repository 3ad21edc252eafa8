"""Steps at which probes observe, and at which of these they draw."""

from __future__ import annotations

import pytest

from nnexp.probing.schedule import drawn_steps, is_due, next_due

SCHEDULES = [(every, steps) for every in ("log", "ends", 1, 3, 1000) for steps in (0, 1, 9, 10, 11, 100, 4000)]


def observed_steps(every, max_steps: int) -> list[int]:
    return [step for step in range(max_steps + 1) if is_due(every, step, max_steps)]


@pytest.mark.parametrize(("every", "max_steps"), SCHEDULES)
def test_observations_are_at_the_first_and_the_last_step_and_few_of_them_are_drawn(every, max_steps: int) -> None:
    steps, drawn = observed_steps(every, max_steps), drawn_steps(every, max_steps)
    assert (steps[0], steps[-1]) == (0, max_steps)
    assert {0, max_steps} <= drawn <= set(steps)
    assert len(drawn) <= 9  # a run that ends early draws one more
    assert len(steps) > 9 or drawn == set(steps)


@pytest.mark.parametrize(("every", "max_steps"), SCHEDULES)
def test_each_is_the_next_of_the_one_before(every, max_steps: int) -> None:
    steps = observed_steps(every, max_steps)
    assert [next_due(every, step, max_steps) for step in (-1, *steps)] == [*steps, max_steps]


@pytest.mark.parametrize("every", ["log", "ends", 1, 7])
def test_of_a_billion_steps_a_few_are_drawn_and_no_list_is_made(every) -> None:
    drawn = drawn_steps(every, 10**9)
    assert {0, 10**9} <= drawn
    assert len(drawn) <= 9
    assert all(is_due(every, step, 10**9) for step in drawn)


def test_the_schedules_are_what_they_say() -> None:
    assert observed_steps("log", 4000) == [0, 10, 100, 1000, 4000]
    assert observed_steps("log", 1000) == [0, 10, 100, 1000]
    assert observed_steps("ends", 4000) == [0, 4000]
    assert observed_steps(1500, 4000) == [0, 1500, 3000, 4000]
    assert sorted(drawn_steps(100, 4000)) == [0, 100, 200, 300, 500, 800, 1400, 2400, 4000]
