"""Checkpoints: plain data, checked, the two newest kept."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from nnexp.base.errors import RecordError
from nnexp.rundir.checkpoint import (
    LAST,
    PREVIOUS,
    digest,
    load_checkpoint,
    save_checkpoint,
    save_tensors,
    to_python_numbers,
    whole_checkpoints,
)


def content(step: int, fingerprint: str = "f") -> dict:
    weights = {"w": torch.arange(6.0).view(2, 3) + step, "count": torch.tensor(step)}
    return {
        "fingerprint": fingerprint,
        "metrics_bytes": 0,
        "step": step,
        "state": {"weights": weights, "rest": [1, None, 2.5, "x"]},
    }


def test_a_file_comes_back_and_opens_with_weights_only(tmp_path: Path) -> None:
    save_tensors(tmp_path / "a.pt", content(3))
    assert digest(load_checkpoint(tmp_path / "a.pt")) == digest(content(3))
    assert torch.load(tmp_path / "a.pt", weights_only=True)["step"] == 3


def test_the_same_content_gives_the_same_bytes_under_every_name(tmp_path: Path) -> None:
    save_tensors(tmp_path / "a.pt", content(3))
    save_tensors(tmp_path / "b.ckpt", content(3))
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.ckpt").read_bytes()


@pytest.mark.parametrize("change", [{"step": 4}, {"state": {}}, {"extra": 1}])
def test_the_digest_sees_every_change(change: dict) -> None:
    assert digest(content(3) | change) != digest(content(3))


def test_a_changed_byte_in_a_tensor_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save({**content(3), "checksum": digest(content(4))}, path)
    with pytest.raises(RecordError, match="damaged"):
        load_checkpoint(path)


def test_a_cut_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    save_tensors(tmp_path / "a.pt", content(3))
    (tmp_path / "a.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:-40])
    with pytest.raises(RecordError, match=r"a\.pt cannot be read"):
        load_checkpoint(tmp_path / "a.pt")


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


@pytest.mark.parametrize("write", [torch.save, lambda thing, path: path.write_bytes(pickle.dumps(thing))])
def test_a_hostile_file_executes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write) -> None:
    monkeypatch.chdir(tmp_path)
    write({"fingerprint": "f", "checksum": "", "state": Evil()}, tmp_path / LAST)
    assert list(whole_checkpoints(tmp_path, "f")) == []
    assert not (tmp_path / "executed").exists()


def test_the_two_newest_are_kept_and_the_older_serves_when_the_newer_is_damaged(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, content(step))
    assert sorted(p.name for p in tmp_path.iterdir()) == [LAST, PREVIOUS]
    assert next(whole_checkpoints(tmp_path, "f"))["step"] == 3
    (tmp_path / LAST).write_bytes(b"half a file")
    assert next(whole_checkpoints(tmp_path, "f"))["step"] == 2


def test_a_checkpoint_of_another_job_is_not_taken(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, content(1, fingerprint="other"))
    assert list(whole_checkpoints(tmp_path, "f")) == []


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    save_tensors(tmp_path / LAST, content(1))
    with pytest.raises(RecordError, match="plain numbers, not generator"):
        save_tensors(tmp_path / LAST, content(2) | {"bad": (x for x in [1])})
    assert load_checkpoint(tmp_path / LAST)["step"] == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_numpys_numbers_become_pythons() -> None:
    made = to_python_numbers({"lr": np.float64(0.5), np.int64(3): [np.int32(1), (np.bool_(True),)], "t": torch.ones(1)})
    assert made == {"lr": 0.5, 3: [1, [True]], "t": torch.ones(1)}
    assert [type(v) for v in (made["lr"], made[3][0], made[3][1][0])] == [float, int, bool]


def test_a_damaged_newest_checkpoint_never_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, content(step))
    (tmp_path / LAST).write_bytes(b"half a file")
    assert [c["step"] for c in whole_checkpoints(tmp_path, "f")] == [1]
    save_checkpoint(tmp_path, content(3))
    assert [c["step"] for c in whole_checkpoints(tmp_path, "f")] == [3, 1]


@pytest.mark.parametrize("left", [(f"{LAST}.new",), (f"{LAST}.new", PREVIOUS), (f"{LAST}.new", LAST), (PREVIOUS,)])
def test_a_kill_between_the_renames_leaves_a_whole_checkpoint(tmp_path: Path, left: tuple[str, ...]) -> None:
    for step, name in zip((3, 2), left, strict=False):
        save_tensors(tmp_path / name, content(step))
    assert next(whole_checkpoints(tmp_path, "f"))["step"] == 3
