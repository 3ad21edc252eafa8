"""What is trained again: a failed run as often as is allowed, the lanes of a task whose process died in halves."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.compose import jobs_of

from nnexp.base.signals import StopRequest
from nnexp.execution.cost_model import CostModel
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.retry import RetryPolicy
from nnexp.execution.task_queue import TaskQueue


@pytest.fixture
def policy(registry, tmp_path: Path):
    def make(*overrides: str, max_retries: int = 0, stop: StopRequest | None = None) -> RetryPolicy:
        jobs = jobs_of([*overrides, f"runs='{tmp_path / 'runs'}'"], registry, multirun=True)
        queue = TaskQueue(plan_cohorts(jobs, registry), 1, CostModel({}))
        return RetryPolicy(queue, max_retries, stop or StopRequest())

    return make


def order(queue: TaskQueue) -> list[list[int]]:
    return [[item.number for item in task.cohort] for task in iter(queue.next, None)]


def test_the_halves_of_a_task_come_next(policy) -> None:
    retry = policy("seed=range(5)", "model.hidden_size=4,8")
    first = retry.queue.next()
    assert retry.retry_in_halves(first.cohort[1:])
    assert order(retry.queue) == [[2, 4], [6, 8], [1, 3, 5, 7, 9]]


def test_a_single_lane_has_no_halves(policy) -> None:
    retry = policy("seed=0,1")
    task = retry.queue.next()
    assert not retry.retry_in_halves(task.cohort[:1])
    assert not retry.retry_in_halves([])
    assert order(retry.queue) == []


def test_a_failed_run_is_retried_as_often_as_is_allowed(policy) -> None:
    retry = policy("seed=0,1", "stack=false", max_retries=2)
    (failed,) = retry.queue.next().cohort
    (other,) = retry.queue.waiting[0].cohort
    assert not retry.has_failed(failed)
    assert [retry.retry_run(failed) for _ in range(3)] == [True, True, False]
    assert (retry.has_failed(failed), retry.has_failed(other)) == (True, False)
    assert retry.queue.waiting_jobs() == {0, 1}
    assert order(retry.queue) == [[1], [0], [0]]


def test_after_a_stop_request_nothing_is_trained_again(policy) -> None:
    stop = StopRequest()
    retry = policy("seed=0,1", max_retries=2, stop=stop)
    task = retry.queue.next()
    stop.requested = True
    assert not retry.retry_in_halves(task.cohort)
    assert not retry.retry_run(task.cohort[0])
    assert order(retry.queue) == []
