"""How many workers, and which GPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from nnexp.base.errors import NnexpError
from nnexp.base.machine import num_cores
from nnexp.config.sweep_options import SweepOptions
from nnexp.execution.devices import gpus_for, num_workers


def test_auto_is_a_worker_for_each_gpu_or_core() -> None:
    assert num_workers(SweepOptions(), []) == num_cores() >= 1
    assert num_workers(SweepOptions(), ["0", "1", "2"]) == 3
    assert num_workers(SweepOptions(workers=5), ["0"]) == 5
    assert num_workers(SweepOptions(workers=0), []) == 1


def test_a_container_with_little_time_or_memory_has_fewer_workers(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("nnexp.base.machine.CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    (tmp_path / "cpu.max").write_text("350000 100000")
    assert num_cores() == 4
    (tmp_path / "cpu.max").write_text("max 100000")
    assert num_cores() == 16
    (tmp_path / "memory.max").write_text(str(3 << 30))
    (tmp_path / "memory.current").write_text(str(1 << 30))
    assert num_workers(SweepOptions(), []) <= 4


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux alone lets a process choose its cores")
def test_only_cores_that_the_process_may_use_count() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert num_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_the_gpus_of_jobs_are_those_that_this_process_may_see(make_job, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus_for([make_job()]) == []
    assert gpus_for([make_job(), make_job("device=cuda")]) == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-1")
    assert gpus_for([make_job("device=auto")]) == ["4", "GPU-1"]


def test_a_device_that_is_not_there_is_refused(make_job, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpus_for([make_job("device=auto")]) == []
    with pytest.raises(NnexpError, match="Use device=cpu"):
        gpus_for([make_job("device=cuda")])
