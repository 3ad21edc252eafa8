"""Text drawn from a model of text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from nnexp.answers.open_run import LoadedRun, load
from nnexp.base.errors import NnexpError
from nnexp.commands.cli import command_line
from nnexp.commands.sample import sample_text

pytestmark = pytest.mark.slow


HELLO = ("experiment=hello",)


@pytest.fixture
def hello(train) -> Path:
    return train(*HELLO).path


@pytest.mark.slow
def test_hello_is_learned_by_heart(train) -> None:
    for seed in range(5):
        run = train(*HELLO, f"seed={seed}")
        assert 4 * run.read()["metrics"]["train/loss"] < 0.01
        assert run.read()["parameters"] == 33
        assert sample_text(load(run.path), "h", 4, temperature=1.0, seed=seed) == "hello"
        assert sample_text(load(run.path), "h", 4, temperature=0) == "hello"


class Unigram(torch.nn.Module):
    """The same logits at every position."""

    def forward(self, x, lengths=None):
        return torch.tensor([2.0, 1.0, 0.0, -1.0]).expand(*x.shape, 4)


@pytest.mark.slow
def test_characters_come_as_often_as_the_softmax_says(hello: Path) -> None:
    loaded = load(hello)
    flat = LoadedRun(**{**vars(loaded), "model": Unigram()})
    for temperature in (0.5, 1.0, 3.0):
        text = sample_text(flat, "h", 3000, temperature=temperature)
        chances = (torch.tensor([2.0, 1.0, 0.0, -1.0]) / temperature).softmax(0)
        counts = Counter(text[1:])
        for character, chance in zip(loaded.dataset.vocab, chances.tolist(), strict=True):
            assert counts[character] / 3000 == pytest.approx(chance, abs=0.03)
    assert sample_text(flat, "h", 5, temperature=0) == "h" + 5 * loaded.dataset.vocab[0]
    assert sample_text(flat, "h", 5, temperature=1e-320) == "h" + 5 * loaded.dataset.vocab[0]
    assert sample_text(flat, "", 5, temperature=0) == 5 * loaded.dataset.vocab[0]


def test_a_sample_depends_on_its_seed_alone(hello: Path) -> None:
    flat = LoadedRun(**{**vars(load(hello)), "model": Unigram()})
    assert (
        sample_text(flat, "h", 50, seed=1) == sample_text(flat, "h", 50, seed=1) != sample_text(flat, "h", 50, seed=2)
    )


def test_a_prompt_longer_than_the_window_counts_with_its_end(hello: Path) -> None:
    loaded = load(hello)
    long, short = (sample_text(loaded, prompt, 1, temperature=0) for prompt in ("hellhel", "lhel"))
    assert long[-1] == short[-1]


def test_the_command_writes_the_sample(hello: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["sample", str(hello), "--prompt", "h", "--length", "4", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == "hello\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--prompt", "hexx"], "['x'] not in the vocabulary"),
        (["--temperature", "-1"], "must be at least 0"),
        (["--temperature", "nan"], "must be at least 0"),
        (["--length", "-1"], "must be at least 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(hello: Path, arguments, reason, capsys) -> None:
    assert command_line(["sample", str(hello), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


def test_a_run_that_is_not_about_text_is_refused(train) -> None:
    run = train("dataset=moons", "trainer.max_steps=2")
    with pytest.raises(NnexpError, match="dataset=chartext"):
        sample_text(load(run.path), "", 1)
    assert command_line(["sample", str(run.path.parent)]) == 2


def test_a_run_without_weights_says_what_it_is(train) -> None:
    run = train(*HELLO, "trainer.batch_size=99")
    with pytest.raises(NnexpError, match=r"has no model.pt: it is 'failed' at step 0"):
        load(run.path)


@pytest.mark.parametrize("precision", [64, "bf16"])
def test_a_run_in_another_precision_is_sampled_in_it(train, precision) -> None:
    run = train(*HELLO, f"precision={precision}")
    assert sample_text(load(run.path), "h", 4, temperature=0) == "hello"
