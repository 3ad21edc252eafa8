"""Text sampled from a language model at several temperatures, after Sutskever, Martens & Hinton (2011, ICML,
"Generating text with recurrent neural networks"), and its distribution of the next character.

    p(character) = softmax(logits / T);  T < 1 sharpens the distribution, T = 0 takes the most probable character

Departs from the paper in using several temperatures, as Karpathy (2015, "The unreasonable effectiveness of recurrent
neural networks") does, and the same prompt for all of them, by default the beginning of the validation text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from nnexp import Observation, Picture, Probe, Range, probe
from nnexp.plotting import MAX_SERIES, bars
from nnexp.probing import View, characters_of, continue_text, next_token_probabilities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_CHARACTERS = 10
PROMPT = 10  # characters of the default prompt
NAMES = {" ": "space", "\n": "newline", "\t": "tab"}
DRAWN = ((0x21, 0x24F), (0x391, 0x3C9), (0x410, 0x44F))  # Latin, Greek, Cyrillic: in matplotlib's font


@probe
@dataclass(kw_only=True)
class Sample(Probe):
    """Text sampled at several temperatures, and the most probable next characters.

    Args:
        temperatures: divisors of the logits; one text is sampled for each.
        length: characters in each text.
        prompt: beginning of the texts; if empty, the beginning of the validation text.
    """

    temperatures: tuple[Annotated[float, Range(min=0)], ...] = (0.2, 0.5, 1.0, 2.0)
    length: Annotated[int, Range(min=1)] = 60
    prompt: str = ""

    def __call__(self, view: View) -> Observation | None:
        """Return texts by temperature and the next-character probabilities; None where the data are not text."""
        vocab = characters_of(view.dataset, view.data)
        if vocab is None or not self.temperatures:
            return None
        if unknown := sorted(set(self.prompt) - set(vocab)):
            raise ValueError(f"the vocabulary of the text has no {unknown}. Change the prompt.")
        tokens = [vocab.index(character) for character in self.prompt] or view.rows("val", 1)[0][0, :PROMPT].tolist()
        prompt = "".join(vocab[token] for token in tokens)
        options = (self.length, self.temperatures, view.generator, view.device)
        sampled = continue_text(view.module, view.data, tokens, *options)
        texts = ["".join(vocab[token] for token in row) for row in sampled]
        parts = [
            f"temperature {t:g}\n\n{_verbatim(prompt + text)}" for t, text in zip(self.temperatures, texts, strict=True)
        ]
        return Observation(pictures={"next": self._picture(view, vocab, tokens)}, texts={"drawn": "\n\n".join(parts)})

    def _picture(self, view: View, vocab: str, tokens: list[int]) -> Picture:
        shown = self.temperatures[:MAX_SERIES]
        window = view.rows("val", 1)[0].new_tensor([tokens[-view.data.max_length :]] * len(shown))
        chances = next_token_probabilities(view.module, view.data, window, shown)
        at_one = next_token_probabilities(view.module, view.data, window[:1], [1.0])[0]
        order = at_one.topk(min(MAX_CHARACTERS, len(vocab))).indices
        by_temperature = {f"temperature {t:g}": chances[row, order] for row, t in enumerate(shown)}
        characters = [vocab[token] for token in order.tolist()]
        prompt = "".join(vocab[token] for token in tokens)
        numbers = {"prompt": prompt, "characters": characters, "of": len(vocab), "chances": by_temperature}
        return Picture("The next character", numbers, _draw, (6.0, 1.5 + 0.33 * len(characters)))


def _verbatim(text: str) -> str:
    """Return Markdown that shows a text verbatim: a block fenced by more backticks than the text has in a row."""
    visible = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", visible)), default=0))
    return f"{fence}\n{visible}\n{fence}"


def _draw(figure: Figure, numbers: dict[str, Any]) -> None:
    names = [_label(character) for character in numbers["characters"]]
    end = "".join(_in_line(character) for character in numbers["prompt"][-20:])
    cut = f", top {len(names)} of {numbers['of']}" if len(names) < numbers["of"] else ""
    axes = figure.subplots()
    bars(axes, names, numbers["chances"], f"probability to follow '{end}'{cut}")
    axes.set_xlim(0, 1)


def _in_line(character: str) -> str:
    """Return the label of a character within a line of text."""
    return " " if character == " " else repr(character)[1:-1] if character in NAMES else _label(character)


def _label(character: str) -> str:
    """Return a character as it can be drawn, or its name; `$` is escaped, since matplotlib reads it as mathematics."""
    if character in NAMES:
        return NAMES[character]
    is_drawn = character.isprintable() and any(low <= ord(character) <= high for low, high in DRAWN)
    return character.replace("$", r"\$") if is_drawn else f"U+{ord(character):04X}"
