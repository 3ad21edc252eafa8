"""Text drawn from a model of text at several temperatures, as by Sutskever, Martens & Hinton (2011, ICML, "Generating
text with recurrent neural networks"), and which character it expects next.

    p(character) = softmax(logits / T);  T below 1 makes the likely likelier, 0 takes the likeliest

Departs from the paper in the temperatures, which are those of Karpathy (2015, "The unreasonable effectiveness of
recurrent neural networks"), and in giving all of them the same beginning, taken from the text where none is given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from nnexp import Observation, Picture, Probe, Range, probe
from nnexp.plotting import MOST_SERIES, bars
from nnexp.probing import View, characters_of, continue_text, next_token_probabilities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CHARACTERS = 10
PROMPT = 10  # characters taken from the text
NAMES = {" ": "space", "\n": "newline", "\t": "tab"}
DRAWN = ((0x21, 0x24F), (0x391, 0x3C9), (0x410, 0x44F))  # Latin, Greek, Cyrillic: what the type of a picture has


@probe
@dataclass(kw_only=True)
class Sample(Probe):
    """Text drawn from the model, and how likely it holds each character to be the next.

    Args:
        temperatures: what logits are divided by; for each of them a text is drawn.
        length: characters of each.
        prompt: how they begin; none takes the beginning of the validation text.
    """

    temperatures: tuple[Annotated[float, Range(min=0)], ...] = (0.2, 0.5, 1.0, 2.0)
    length: Annotated[int, Range(min=1)] = 60
    prompt: str = ""

    def __call__(self, view: View) -> Observation | None:
        vocab = characters_of(view.dataset, view.data)
        if vocab is None or not self.temperatures:
            return None
        if unknown := sorted(set(self.prompt) - set(vocab)):
            raise ValueError(f"the text that the model reads has no {unknown}. Change the prompt.")
        tokens = [vocab.index(character) for character in self.prompt] or view.rows("val", 1)[0][0, :PROMPT].tolist()
        prompt = "".join(vocab[token] for token in tokens)
        given = (view.module, view.data)
        drawn = continue_text(*given, tokens, self.length, self.temperatures, view.generator, view.device)
        texts = ["".join(vocab[token] for token in row) for row in drawn]
        parts = [
            f"temperature {t:g}\n\n{_as_it_is(prompt + text)}" for t, text in zip(self.temperatures, texts, strict=True)
        ]
        return Observation(pictures={"next": self._picture(view, vocab, tokens)}, texts={"drawn": "\n\n".join(parts)})

    def _picture(self, view: View, vocab: str, tokens: list[int]) -> Picture:
        shown = self.temperatures[:MOST_SERIES]
        window = view.rows("val", 1)[0].new_tensor([tokens[-view.data.max_length :]] * len(shown))
        chances = next_token_probabilities(view.module, view.data, window, shown)
        likely = next_token_probabilities(view.module, view.data, window[:1], [1.0])[0]
        order = likely.topk(min(MOST_CHARACTERS, len(vocab))).indices
        by_temperature = {f"temperature {t:g}": chances[row, order] for row, t in enumerate(shown)}
        characters = [vocab[token] for token in order.tolist()]
        prompt = "".join(vocab[token] for token in tokens)
        numbers = {"prompt": prompt, "characters": characters, "of": len(vocab), "chances": by_temperature}
        return Picture("The next character", numbers, _draw, (6.0, 1.5 + 0.33 * len(characters)))


def _as_it_is(text: str) -> str:
    """Markdown that shows a text as it is: a block between more backticks than there are in it."""
    visible = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", visible)), default=0))
    return f"{fence}\n{visible}\n{fence}"


def _draw(figure: Figure, numbers: dict[str, Any]) -> None:
    names = [_label(character) for character in numbers["characters"]]
    end = "".join(_within(character) for character in numbers["prompt"][-20:])
    most = f", likeliest {len(names)} of {numbers['of']}" if len(names) < numbers["of"] else ""
    axes = figure.subplots()
    bars(axes, names, numbers["chances"], f"probability to follow '{end}'{most}")
    axes.set_xlim(0, 1)


def _within(character: str) -> str:
    """The same in a line of text."""
    return " " if character == " " else repr(character)[1:-1] if character in NAMES else _label(character)


def _label(character: str) -> str:
    """A character that can be drawn, or what it is called; the plotting library takes $ for a formula."""
    if character in NAMES:
        return NAMES[character]
    is_drawn = character.isprintable() and any(low <= ord(character) <= high for low, high in DRAWN)
    return character.replace("$", r"\$") if is_drawn else f"U+{ord(character):04X}"
