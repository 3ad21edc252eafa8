"""The order of tasks, large cohorts in parts, and runs that other processes hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.compose import jobs_of

from nnexp.execution.cost_model import CostModel, cost_kind, guess_seconds
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.task import Task
from nnexp.execution.task_queue import TaskQueue
from nnexp.rundir.planned_run import create_missing_runs


@pytest.fixture
def cohorts(registry, tmp_path: Path):
    def make(*overrides: str):
        return plan_cohorts(jobs_of([*overrides, f"runs='{tmp_path / 'runs'}'"], registry, multirun=True), registry)

    return make


def queue_of(cohorts, size: int) -> TaskQueue:
    return TaskQueue(cohorts, size, CostModel({}))


def order(queue: TaskQueue) -> list[list[int]]:
    return [[item.number for item in task.cohort] for task in iter(queue.next, None)]


def test_one_worker_keeps_the_order_and_several_begin_with_the_longest(cohorts) -> None:
    made = cohorts("trainer.max_steps=10,1000,100")
    assert order(queue_of(made, 1)) == [[0], [1], [2]]
    assert order(queue_of(made, 2)) == [[1], [2], [0]]


def test_what_is_known_of_runs_that_ended_counts_more_than_a_guess(cohorts) -> None:
    made = cohorts("model=mlp,lstm", "model.hidden_size=64")
    mlp, lstm = (cohort[0] for cohort in made)
    costs = CostModel({})
    costs.learn(mlp, {"steps": 10, "seconds": 5.0, "lanes": 1})
    costs.learn(lstm, {"steps": 1000, "seconds": 5.0, "lanes": 1})
    assert order(TaskQueue(made, 2, costs)) == [[0], [1]]
    assert costs.of(Task(made[1])) == pytest.approx(5.0 * 4)  # 4,000 steps
    costs.learn(lstm, {"steps": 1000, "seconds": 5.0, "lanes": 16})
    assert costs.of(Task(made[1])) == pytest.approx(5.0 * 4 / 16**0.75)


def test_what_is_not_known_is_guessed_in_proportion_to_what_is(cohorts) -> None:
    one, other = cohorts("model.hidden_size=8,16")
    costs = CostModel({})
    before = costs.of(Task(other))
    costs.learn(one[0], {"steps": 1, "seconds": 7 * guess_seconds(one[0].job)})
    assert costs.of(Task(other)) == pytest.approx(7 * before)


def test_jobs_of_one_kind_differ_in_real_numbers_and_seeds_only(make_job) -> None:
    assert cost_kind(make_job("model.init_scale=2", "seed=3", "trainer.lr=0.5")) == cost_kind(make_job())
    assert cost_kind(make_job("model.hidden_size=8")) != cost_kind(make_job())
    assert guess_seconds(make_job("model.hidden_size=512")) > guess_seconds(make_job())


def test_large_cohorts_are_split_while_workers_have_nothing(cohorts) -> None:
    made = cohorts("seed=range(40)")
    assert [len(lanes) for lanes in order(queue_of(made, 1))] == [40]
    halves = order(queue_of(made, 2))
    assert halves == [list(range(0, 40, 2)), list(range(1, 40, 2))]
    assert [len(lanes) for lanes in order(queue_of(made, 16))] == [10] * 4
    assert order(queue_of(cohorts("seed=range(15)"), 4)) == [list(range(15))]
    assert all(item.in_cohort for task in queue_of(made, 4).waiting for item in task.cohort)


def test_runs_that_another_process_holds_are_polled_until_they_end_or_are_unlocked(cohorts) -> None:
    (cohort,) = made = cohorts("seed=0,1,2,3")
    queue = queue_of(made, 1)
    create_missing_runs(cohort)
    order(queue)
    for item in cohort:
        item.run.lock()
    queue.add_locked(Task(cohort))
    assert queue.poll_locked() == []
    assert [task.cohort for task in queue.locked] == [cohort]
    cohort[0].run.write(status="finished")
    for item in cohort[:3]:
        item.run.unlock()
    assert queue.poll_locked() == cohort[:1]
    assert order(queue) == [[1, 2]]
    assert [task.cohort for task in queue.locked] == [cohort[3:]]
    cohort[3].run.unlock()
