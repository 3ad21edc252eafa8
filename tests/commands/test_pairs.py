"""The table of every dataset with every model, and what needs no model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from nnexp.base.errors import NnexpError
from nnexp.commands import pairs
from nnexp.commands.cli import command_line
from nnexp.data.data_spec import DataSpec

TEXT = DataSpec(kind="tokens", shape=(4,), vocab=2, outputs=2, per_step=True)


def windows(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.tensor([int(character) for character in text])
    return tokens[:-1].unfold(0, 4, 1), tokens[1:].unfold(0, 4, 1)


def test_the_baseline_of_an_alternating_text_is_its_bigrams() -> None:
    split = windows("01" * 200)
    name, value = pairs.text_baseline(TEXT, split, split)
    assert name == "bigram"
    assert value < 0.01


def test_the_baseline_of_a_random_text_is_one_bit_per_character() -> None:
    text = "".join(map(str, torch.randint(2, (5000,), generator=torch.Generator().manual_seed(0)).tolist()))
    split = windows(text)
    assert pairs.text_baseline(TEXT, split, split)[1] == pytest.approx(math.log(2), abs=0.002)


def test_the_baseline_of_classes_is_the_commonest_and_of_values_the_variance() -> None:
    x = torch.zeros(4, 3)
    classes = DataSpec(kind="vector", shape=(3,), outputs=3)
    split = (x, torch.tensor([2, 2, 2, 0]))
    assert pairs.baselines(classes, split, split) == {"test/accuracy": ("majority", 0.75)}
    value = DataSpec(kind="vector", shape=(3,), target="value", outputs=1)
    split = (x, torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    variance: Any = pytest.approx(5 / 3)
    assert pairs.baselines(value, split, split) == {"test/loss": ("variance", variance)}


@pytest.mark.slow
def test_the_table_has_a_mean_over_seeds_and_strikes_out_what_beats_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- pairs -->\nold\n<!-- end of pairs -->\nafter\n")
    command = ["dataset=moons,xor", "model=linear,mlp", "seed=0,1", "trainer.max_steps=300"]
    assert (
        command_line(["pairs", *command, "dataset.num_train=600", f"runs='{tmp_path / 'runs'}'", "--write", str(page)])
        == 0
    )
    before, head, rule, moons, xor, after = [line for line in page.read_text().splitlines() if "<!--" not in line]
    assert (before, after) == ("before", "after")
    assert head == "| dataset | metric | baseline | linear | mlp |"
    cells = [cell.strip() for cell in moons.strip("|").split("|")]
    assert cells[:3] == ["moons 600", "test/accuracy", "majority 0.500"]
    assert 0.85 < float(cells[3]) < 0.9 < float(cells[4])
    assert float(xor.strip("| ").split("|")[-1]) > 0.95
    assert rule.count("---") == 5


def test_a_file_without_a_place_for_the_table_is_refused_and_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    for text in (None, "| table |"):
        with pytest.raises(NnexpError, match="no place for the table"):
            pairs.write(page, text)
    assert page.read_text() == "nothing here\n"
    assert (
        command_line(["pairs", "dataset=moons", "--write", str(tmp_path / "missing"), f"runs='{tmp_path / 'runs'}'"])
        == 2
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_dataset_that_cannot_be_made_fails_in_its_own_row(tmp_path: Path, capsys) -> None:
    command = ["dataset=moons", "dataset=pattern dataset.length=2", "model=mlp", "trainer.max_steps=5"]
    assert command_line(["pairs", *command, f"runs='{tmp_path / 'runs'}'"]) == 1
    _, _, moons, pattern = capsys.readouterr().out.splitlines()
    assert moons.startswith("| moons | test/accuracy | majority 0.500 | ")
    assert pattern == "| pattern 2 |  |  | failed |"


def test_a_bad_override_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["pairs", "dataset=moons", "model=mlpp"]) == 2
    assert "Did you mean 'mlp'" in capsys.readouterr().err


def test_markers_in_the_wrong_order_are_no_place_and_line_endings_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- end of pairs -->\nmiddle\n<!-- pairs -->\n")
    with pytest.raises(NnexpError, match="no place for the table"):
        pairs.write(page, "| table |")
    page.write_bytes(b"a\r\n<!-- pairs -->\r\nold\r\n<!-- end of pairs -->\r\nb\r\n")
    pairs.write(page, "| table |")
    assert page.read_bytes() == b"a\r\n<!-- pairs -->\r\n| table |\n<!-- end of pairs -->\r\nb\r\n"


def test_a_page_is_whole_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- pairs -->\n<!-- end of pairs -->\nprecious\n")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        pairs.write(page, "| table |")
    assert page.read_text().endswith("precious\n")


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["model.hidden_size=2,40"], "moons with mlp has 2 settings, and a cell is a mean over seeds"),
        (["sweep.dry_run=true"], "pairs trains. Use it with nnexp -m"),
    ],
)
def test_what_pairs_cannot_do_is_refused(tmp_path: Path, capsys, overrides: list[str], reason: str) -> None:
    runs = tmp_path / "runs"
    assert command_line(["pairs", "dataset=moons", "model=mlp", "seed=0,1", *overrides, f"runs='{runs}'"]) == 2
    assert reason in capsys.readouterr().err
    assert not runs.exists()
