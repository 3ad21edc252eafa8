"""Text drawn while a model trains: from its own chances, at each temperature, written as it is."""

from __future__ import annotations

import pytest
import torch

from nnexp.data.seeding import seeded_generator
from nnexp.plotting.rendering import render
from nnexp.probing.text_sampling import continue_text, next_token_probabilities
from nnexp.registry.observation import to_plain

TEXT = ("dataset=chartext", "dataset.held_out=0", "dataset.length=8", "model=rnn")
ODD = "a$b$c\n<b>x</b> `q` ```` *bold* \t\u4e2d \u00e9 \u0436 _x_\r\n"


def overrides(text: str) -> tuple[str, ...]:
    return (*TEXT, "trainer.batch_size=full", f"dataset.text='{text}'")


@pytest.fixture
def sample(registry):
    return lambda view, **values: registry.get("probe", "sample").load()(**values)(view)


def texts_of(told: str) -> list[str]:
    """What stands in the blocks."""
    parts = told.split("temperature ")[1:]
    return [part.split("\n", 2)[2].strip("\n").split("\n", 1)[1].rsplit("\n", 1)[0] for part in parts]


class Known(torch.nn.Module):
    """Of three tokens, the logits at each position, whatever it reads."""

    def forward(self, x, lengths=None):
        return torch.tensor([2.0, 1.0, 0.0]).expand(*x.shape, 3)


def test_chances_are_the_softmax_of_logits_over_temperature(make_lane) -> None:
    data = make_lane(*overrides("abcabcabcabcabc")).data
    chances = next_token_probabilities(Known(), data, torch.tensor([[0, 1]] * 3), [0.5, 1, 0])
    expected = [torch.tensor([4.0, 2.0, 0.0]).softmax(0).tolist(), torch.tensor([2.0, 1.0, 0.0]).softmax(0).tolist()]
    assert chances.tolist() == [pytest.approx(expected[0]), pytest.approx(expected[1]), [1, 0, 0]]


def test_several_temperatures_are_drawn_with_one_forward_pass_for_each_character(make_lane) -> None:
    lane = make_lane(*overrides("abcabcabcabcabc"))
    module, sizes = Known(), []
    module.register_forward_hook(lambda layer, inputs, output: sizes.append(tuple(inputs[0].shape)))
    drawn = continue_text(module, lane.data, [0], 2000, [0, 0.5, 5.0], seeded_generator(0, "draws"))
    assert sizes == [(3, 8)] * 2000
    assert drawn[0] == [0] * 2000
    for row, heat in ((1, 0.5), (2, 5.0)):
        counts = torch.bincount(torch.tensor(drawn[row]), minlength=3) / 2000
        assert counts.tolist() == pytest.approx((torch.tensor([2.0, 1.0, 0.0]) / heat).softmax(0).tolist(), abs=0.04)


def test_each_reads_its_own_characters_and_the_last_window_of_them(make_lane) -> None:
    class Sum(torch.nn.Module):
        def forward(self, x, lengths=None):
            return 50.0 * torch.nn.functional.one_hot((x.cumsum(1) + 1) % 3, 3)

    lane = make_lane(*overrides("abcabcabcabcabc"))
    (drawn,) = continue_text(Sum(), lane.data, [1, 2], 20, [0], seeded_generator(0, "draws"))
    expected = [1, 2]
    for _ in range(20):
        expected.append((sum(expected[-8:]) + 1) % 3)
    assert drawn == expected[2:]


def test_a_model_that_knows_its_text_goes_on_with_it(view_of, sample) -> None:
    view = view_of(*overrides(12 * "hello "), "trainer.lr=0.05", step=150)
    seen = sample(view, length=18, temperatures=(0.0, 0.2), prompt="he")
    assert texts_of(seen.texts["drawn"]) == ["hello hello hello he"] * 2
    numbers = to_plain(seen.pictures["next"].numbers)
    assert numbers["characters"][0] == "l"
    assert numbers["chances"]["temperature 0"][0] == 1
    assert 0.9 < numbers["chances"]["temperature 0.2"][0] <= 1


def test_without_a_prompt_it_goes_on_from_the_text(view_of, sample) -> None:
    view = view_of(*overrides(12 * "hello "))
    seen = sample(view, length=7)
    assert [text[:8] for text in texts_of(seen.texts["drawn"])] == ["hello he"] * 4
    assert {len(text) for text in texts_of(seen.texts["drawn"])} == {15}
    shown = to_plain(seen.pictures["next"].numbers)
    assert shown["prompt"] == "hello he"
    assert list(shown["chances"]) == ["temperature 0.2", "temperature 0.5", "temperature 1", "temperature 2"]
    for chances in shown["chances"].values():
        assert sum(chances) == pytest.approx(1)
        assert chances == sorted(chances, reverse=True)


def test_the_same_step_draws_the_same_text(view_of, sample) -> None:
    first, second = (sample(view_of(*overrides(12 * "hello "))).texts for _ in range(2))
    assert first == second


@pytest.mark.filterwarnings("ignore:html5lib's sanitizer is deprecated")
def test_characters_are_shown_as_they_are(view_of, sample, tmp_path) -> None:
    from tensorboard.plugin_util import markdown_to_safe_html  # which warns

    path = tmp_path / "text"
    path.write_bytes(3 * ODD.encode())
    view = view_of(*TEXT, f"dataset.path={path}")
    seen = sample(view, prompt=ODD, length=1, temperatures=(1.0,))
    html = markdown_to_safe_html(seen.texts["drawn"])
    expected = "a$b$c\n&lt;b&gt;x&lt;/b&gt; `q` ```` *bold* \\t\u4e2d \u00e9 \u0436 _x_\\r\n"
    assert f"<code>{expected}" in html
    assert render(seen.pictures["next"], to_plain(seen.pictures["next"].numbers), "step 0")["png"]


def test_a_prompt_of_other_characters_is_refused(view_of, sample) -> None:
    with pytest.raises(ValueError, match=r"has no \['z'\]"):
        sample(view_of(*overrides(12 * "hello ")), prompt="hez")


def test_what_is_no_text_has_nothing_to_draw(view_of, sample) -> None:
    assert sample(view_of("dataset=moons", "model=mlp")) is None
    assert sample(view_of("dataset=sine")) is None
