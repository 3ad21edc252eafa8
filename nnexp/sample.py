"""python -m nnexp.sample RUN: text drawn, character by character, from a model trained on text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from nnexp.errors import NnexpError
from nnexp.reopen import Loaded, load
from nnexp.seeding import generator
from nnexp.tell import answer, tell


@torch.no_grad()
def sample(run: Loaded, prompt: str, length: int, *, temperature: float = 1.0, seed: int = 0) -> str:
    """The prompt and `length` characters after it.

    Without a prompt it goes on from the first character of the vocabulary. The model reads a window as long as those it
    was trained on; being causal, it may be given one that is not yet full. Logits are divided by `temperature`: below 1
    the likely becomes likelier, 0 takes the likeliest.
    Raises NnexpError where the run is not about text, or does not know a character of the prompt.
    """
    vocab: str = getattr(run.dataset, "vocab", "")
    if run.data.kind != "tokens" or not run.data.per_step or len(vocab) != run.data.vocab:
        raise NnexpError(f"dataset '{run.job.dataset.name}' has no characters to draw. Train with dataset=chartext.")
    if unknown := sorted(set(prompt) - set(vocab)):
        raise NnexpError(f"the run never saw {unknown}. It knows: {vocab!r}.")
    tokens = [vocab.index(character) for character in prompt or vocab[0]]
    draws, window = generator(seed, "sample"), run.data.max_length
    for _ in range(length):
        seen = tokens[-window:]
        x = torch.zeros(1, window, dtype=torch.long)
        x[0, : len(seen)] = torch.tensor(seen)
        logits = run.model(x)[0, len(seen) - 1].double()
        if temperature == 0:
            tokens.append(int(logits.argmax()))
        else:
            chances = ((logits - logits.max()) / temperature).softmax(0)
            tokens.append(int(torch.multinomial(chances, 1, generator=draws)))
    return prompt + "".join(vocab[token] for token in tokens[max(1, len(prompt)) :])


def main(argv: Sequence[str] | None = None) -> int:
    """Print a sample; gives the exit code."""
    parser = argparse.ArgumentParser(prog="nnexp.sample", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="the directory of a finished run")
    parser.add_argument("--prompt", default="", help="text to go on from")
    parser.add_argument("--length", type=int, default=200, help="characters to draw")
    parser.add_argument("--temperature", type=float, default=1.0, help="0 is the likeliest character, 1 as learned")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    given = parser.parse_args(argv)
    try:
        if not given.temperature >= 0 or given.length < 0:
            raise NnexpError("--temperature and --length are numbers from 0 on.")
        run = load(given.run)
        answer(sample(run, given.prompt, given.length, temperature=given.temperature, seed=given.seed))
    except NnexpError as error:
        tell(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
