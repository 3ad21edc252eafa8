"""Sample text, character by character, from a model trained on text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nnexp.answers import LoadedRun, load
from nnexp.base import NnexpError, print_out
from nnexp.commands.arguments import Parser
from nnexp.data import seeded_generator
from nnexp.probing import characters_of, continue_text


def sample_text(run: LoadedRun, prompt: str, length: int, *, temperature: float = 1.0, seed: int = 0) -> str:
    """Return the prompt and `length` characters sampled after it.

    Args:
        run: a run of a model that predicts the next character at every position.
        prompt: the text to continue; "" continues, without showing it, from the first character of the vocabulary. The
            model reads at most the last window as long as those of the training data.
        length: number of characters to sample.
        temperature: divides the logits; below 1 sharpens the distribution, 0 takes the most likely character.
        seed: seed of the samples.

    Raises:
        NnexpError: where the run's dataset is not text, or the prompt has characters outside its vocabulary.

    >>> sample_text(load("runs/hello/default-1a2b3c4d"), "h", 4)
    'hello'
    """
    vocab = characters_of(run.dataset, run.data)
    if vocab is None:
        raise NnexpError(f"dataset '{run.job.dataset.name}' has no characters to sample. Train with dataset=chartext.")
    if unknown := sorted(set(prompt) - set(vocab)):
        raise NnexpError(f"--prompt: {unknown} not in the vocabulary of the run. Available: {vocab!r}.")
    tokens = [vocab.index(character) for character in prompt or vocab[0]]
    (drawn,) = continue_text(run.model, run.data, tokens, length, [temperature], seeded_generator(seed, "sample"))
    return prompt + "".join(vocab[token] for token in tokens[max(1, len(prompt)) :] + drawn)


def main(argv: Sequence[str]) -> int:
    """Print a sample and return the exit code."""
    parser = Parser(prog="nnexp sample", description=__doc__)
    parser.add_argument("run", type=Path, help="the directory of a finished run")
    parser.add_argument("--prompt", default="", help="text to continue")
    parser.add_argument("--length", type=int, default=200, help="number of characters to sample (default: 200)")
    parser.add_argument("--temperature", type=float, default=1.0, help="0 takes the most likely character (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples (default: 0)")
    given = parser.parse_args(argv)
    if not given.temperature >= 0 or given.length < 0:
        raise NnexpError("--temperature and --length must be at least 0.")
    run = load(given.run)
    print_out(sample_text(run, given.prompt, given.length, temperature=given.temperature, seed=given.seed))
    return 0
