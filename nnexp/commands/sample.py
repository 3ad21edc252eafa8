"""Draw text, character by character, from a model trained on text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nnexp.answers import LoadedRun, load
from nnexp.base import NnexpError, print_out
from nnexp.commands.arguments import Parser
from nnexp.data import seeded_generator
from nnexp.probing import characters_of, continue_text


def sample_text(run: LoadedRun, prompt: str, length: int, *, temperature: float = 1.0, seed: int = 0) -> str:
    """The prompt and `length` characters after it.

    Without a prompt it goes on from the first character of the vocabulary. The model reads a window as long as those it
    was trained on; being causal, it may be given one that is not yet full. Logits are divided by `temperature`: below 1
    the likely becomes likelier, 0 takes the likeliest.
    Raises NnexpError where the run is not about text, or does not know a character of the prompt.
    """
    vocab = characters_of(run.dataset, run.data)
    if vocab is None:
        raise NnexpError(f"dataset '{run.job.dataset.name}' has no characters to draw. Train with dataset=chartext.")
    if unknown := sorted(set(prompt) - set(vocab)):
        raise NnexpError(f"the run never saw {unknown}. It knows: {vocab!r}.")
    tokens = [vocab.index(character) for character in prompt or vocab[0]]
    (drawn,) = continue_text(run.model, run.data, tokens, length, [temperature], seeded_generator(seed, "sample"))
    return prompt + "".join(vocab[token] for token in tokens[max(1, len(prompt)) :] + drawn)


def main(argv: Sequence[str]) -> int:
    """Print a sample; gives the exit code."""
    parser = Parser(prog="nnexp sample", description=__doc__)
    parser.add_argument("run", type=Path, help="the directory of a finished run")
    parser.add_argument("--prompt", default="", help="text to go on from")
    parser.add_argument("--length", type=int, default=200, help="characters to draw")
    parser.add_argument("--temperature", type=float, default=1.0, help="0 is the likeliest character, 1 as learned")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    given = parser.parse_args(argv)
    if not given.temperature >= 0 or given.length < 0:
        raise NnexpError("--temperature and --length are numbers from 0 on.")
    run = load(given.run)
    print_out(sample_text(run, given.prompt, given.length, temperature=given.temperature, seed=given.seed))
    return 0
