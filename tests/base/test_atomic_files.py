"""Files written whole, from an offset, and settled."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nnexp.base.atomic_files import fsync_all, open_regular, write_at, write_atomically


def test_a_replaced_file_is_the_new_one_and_a_failed_write_leaves_the_old_one_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    with pytest.raises(TypeError):
        write_atomically(path, "no bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"new"
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "folder", b"new")
    assert sorted(os.listdir(tmp_path)) == ["a", "folder"]


def test_what_was_written_half_is_written_again_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"kept,hal")
    assert write_at(path, 5, b"half,") == 10
    assert write_at(path, 10, b"more") == 14
    assert path.read_bytes() == b"kept,half,more"


def test_a_file_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_at(tmp_path / "a", 5, b"x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("create", [True, False])
def test_no_link_is_followed(tmp_path: Path, create: bool) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        open_regular(tmp_path / "link", create=create)
    assert os.listdir(tmp_path) == ["link"]


def test_a_file_that_cannot_be_settled_is_told_of_its_own_group(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    first, second, third = fsync_all([[tmp_path / "a", tmp_path / "b"], [tmp_path / "c", tmp_path / "d"], []])
    assert first is None
    assert isinstance(second, FileNotFoundError)
    assert third is None
    assert (tmp_path / "a").read_text() == "a"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes of what the system has been told to put on disk; it is told all the same."""
    inodes: list[int] = []
    fsync = os.fsync

    def note(file: int) -> None:
        inodes.append(os.fstat(file).st_ino)
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    return inodes


def test_each_file_is_put_on_disk_and_a_folder_after_them_with_their_names(tmp_path: Path, synced: list[int]) -> None:
    paths = [tmp_path / "a", tmp_path / "b", tmp_path]
    for path in paths[:2]:
        write_atomically(path, b"new")
    assert fsync_all([paths]) == [None]
    assert synced == [path.stat().st_ino for path in paths]


@pytest.mark.parametrize(("number", "is_told"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)])
def test_a_file_system_that_puts_no_names_on_disk_costs_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_told: bool
) -> None:
    def refuse(_file: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    (error,) = fsync_all([[tmp_path]])
    assert (error is not None) == is_told


def test_a_link_that_lies_where_a_file_is_made_ready_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / f".a.{os.getpid()}.part").symlink_to("precious")
    write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "a").read_bytes() == b"new"
