"""figures/: names that cannot leave it, records that are whole, and what is forgotten on a resume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnexp.base.errors import NnexpError
from nnexp.config.job import PluginConfig
from nnexp.registry.observation import Observation, Picture, to_plain
from nnexp.rundir.figures import Figures
from nnexp.rundir.probe_result import ProbeResult


def sight(step: int, seen: Observation | None, drawn: tuple[str, ...] = ()) -> ProbeResult:
    contents = {name: {"png": b"a picture", "svg": b"<svg/>"} for name in drawn}
    numbers = {name: {"x": [1.0]} for name in drawn}
    return ProbeResult(PluginConfig("probe", "eye", {}, 0), step, seen, numbers=numbers, drawn=contents)


def pictures(*names: str) -> Observation:
    return Observation(
        {"a/b": 1.0}, {name: Picture("Title", {"x": [1.0]}, lambda figure, numbers: None) for name in names}
    )


def test_a_look_is_files_of_one_stem_and_a_record_that_names_them(tmp_path: Path) -> None:
    figures = Figures(tmp_path)
    record = figures.save(sight(12, pictures("field/depth"), ("field/depth",)), "me")
    stems = {f"eye-field_depth-0000012.{ending}" for ending in ("png", "svg", "json")}
    assert {path.name for path in figures.folder.iterdir()} == {*stems, "eye-0000012.json"}
    assert [*figures.records()] == [record]
    assert json.loads((figures.folder / "eye-field_depth-0000012.json").read_text())["numbers"] == {"x": [1.0]}
    assert figures.content(record["pictures"]["field/depth"], "png") == b"a picture"


@pytest.mark.parametrize("name", ["", 3, None])
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    for seen, drawn in (
        (Observation({name: 1.0}), ()),
        (Observation(texts={name: "x"}), ()),
        (pictures(name), (name,)),
    ):
        with pytest.raises(NnexpError, match="is no name"):
            Figures(tmp_path).save(sight(0, seen, drawn), "me")
    assert not [*Figures(tmp_path).records()]


@pytest.mark.parametrize("name", ["../up", "/etc/x", "-a", ".hidden", "conv 1", "\u03b2", "a/../../b", "..\\up"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    figures = Figures(tmp_path / "run")
    (tmp_path / "run").mkdir()
    record = figures.save(sight(0, pictures(name), (name,)), "me")
    assert [*figures.records()] == [record]
    assert figures.content(record["pictures"][name], "png") == b"a picture"
    assert {path.parent for path in tmp_path.rglob("*.*")} == {figures.folder}


def test_two_pictures_of_one_name_in_a_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NnexpError, match="two pictures"):
        Figures(tmp_path).save(sight(0, pictures("a/b", "a_b"), ("a/b", "a_b")), "me")


def test_what_was_seen_after_a_step_is_forgotten_and_nothing_else(tmp_path: Path) -> None:
    figures = Figures(tmp_path)
    for step in (0, 10, 20_000_000):
        figures.save(sight(step, pictures("one"), ("one",)), "me")
    (figures.folder / "mine-20.txt").write_text("mine")
    figures.remove_after(10)
    assert [record["step"] for record in figures.records()] == [0, 10]
    assert len([*figures.folder.iterdir()]) == 9
    figures.remove_after(-1)
    assert [path.name for path in figures.folder.iterdir()] == ["mine-20.txt"]


DAMAGED = [
    {"scalars": {"a": "1"}},
    {"scalars": [1]},
    {"texts": {"a": 1}},
    {"pictures": {"a": ["b"]}},
    {"histograms": {"a": [[1, 2]]}},
    {"step": True},
    {"step": 7},
    {"probe": "other"},
    {"fits": 1},
    {"scalars": {"a": 10**400}},
    {"texts": {"a": "\ud800"}},
    {"told": 3},
]


@pytest.mark.parametrize("damage", DAMAGED, ids=str)
def test_a_record_that_says_what_none_of_ours_says_is_not_read(tmp_path: Path, damage: dict) -> None:
    figures = Figures(tmp_path)
    record = figures.save(sight(3, Observation({"a": 1.0})), "me")
    assert [*figures.records()] == [record]
    (figures.folder / "eye-0000003.json").write_text(json.dumps(record | damage))
    assert [*figures.records()] == []


def test_a_picture_is_never_read_from_outside(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    figures = Figures(tmp_path)
    figures.save(sight(3, Observation()), "me")
    assert figures.content("../secret", "png") is None


def test_figures_that_are_a_link_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "figures").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NnexpError, match="is a symbolic link"):
        Figures(tmp_path).save(sight(3, Observation()), "me")


def test_numbers_are_plain_and_what_is_not_finite_is_null() -> None:
    import torch

    given = {"t": torch.tensor([[1.0, float("nan")]]), 3: (float("inf"), "text", None, True), "r": range(2)}
    assert to_plain(given) == {"t": [[1.0, None]], "3": [None, "text", None, True], "r": [0, 1]}
    with pytest.raises(TypeError, match="not of object"):
        to_plain({"x": object()})


def test_of_figures_that_are_a_link_nothing_is_read_or_removed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    own = tmp_path / "elsewhere" / "holiday-20240801.png"
    own.write_bytes(b"mine")
    (tmp_path / "figures").symlink_to(tmp_path / "elsewhere")
    Figures(tmp_path).remove_after(0)
    assert own.read_bytes() == b"mine"
    assert [*Figures(tmp_path).records()] == []
    assert Figures(tmp_path).content("holiday-20240801", "png") is None


def test_what_is_no_file_of_ours_is_not_read(tmp_path: Path) -> None:
    figures = Figures(tmp_path)
    figures.save(sight(3, Observation()), "me")
    (figures.folder / "eye-0000004.json").symlink_to("/dev/zero")
    (figures.folder / "eye-0000005.json").mkdir()
    with (figures.folder / "eye-0000006.json").open("wb") as file:
        file.truncate(1 << 40)
    assert [record["step"] for record in figures.records()] == [3]
    figures.remove_after(0)
    assert (figures.folder / "eye-0000005.json").is_dir()
