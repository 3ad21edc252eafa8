"""python -m nnexp.sample RUN: text drawn, character by character, from a model trained on text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nnexp.errors import NnexpError
from nnexp.reopen import Loaded, load
from nnexp.seeding import generator
from nnexp.spec import DataSpec
from nnexp.tell import answer, tell


def sample(run: Loaded, prompt: str, length: int, *, temperature: float = 1.0, seed: int = 0) -> str:
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
    (drawn,) = continued(run.model, run.data, tokens, length, [temperature], generator(seed, "sample"))
    return prompt + "".join(vocab[token] for token in tokens[max(1, len(prompt)) :] + drawn)


def characters_of(dataset: Any, data: DataSpec) -> str | None:
    """The character of each token, where the data are text of which the next character is to be told."""
    vocab = getattr(dataset, "vocab", None)
    is_text = data.kind == "tokens" and data.per_step and isinstance(vocab, str) and len(vocab) == data.vocab
    return vocab if is_text else None


@torch.no_grad()
def continued(
    model: nn.Module,
    data: DataSpec,
    tokens: Sequence[int],
    length: int,
    temperatures: Sequence[float],
    draws: torch.Generator,
    device: torch.device | None = None,
) -> list[list[int]]:
    """`length` tokens that go on from `tokens`, once for each of K temperatures; one forward pass for each position.

    Args:
        draws: a generator of the CPU.
        device: where the model is; the CPU where none is given.
    """
    window = data.max_length
    rows = torch.tensor(tokens).repeat(len(temperatures), 1)  # (K, T)
    for _ in range(length):
        chances = next_chances(model, data, rows[:, -window:].to(device), temperatures)
        chosen = torch.multinomial(chances, 1, generator=draws)
        rows = torch.cat([rows, chosen], dim=1)
    return rows[:, len(tokens) :].tolist()


@torch.no_grad()
def next_chances(model: nn.Module, data: DataSpec, rows: Tensor, temperatures: Sequence[float]) -> Tensor:
    """(K, V) on the CPU: how likely each token is to follow rows (K, T) of at most a window; 0 takes the likeliest."""
    x = torch.zeros(len(rows), data.max_length, dtype=torch.long, device=rows.device)
    x[:, : rows.shape[1]] = rows
    logits = model(x)[:, rows.shape[1] - 1].double().cpu()
    heat = torch.tensor(temperatures, dtype=torch.float64).unsqueeze(1)
    above = logits - logits.amax(1, keepdim=True)
    chances = (above / torch.where(heat > 0, heat, 1)).softmax(1)
    likeliest = torch.nn.functional.one_hot(logits.argmax(1), data.vocab).double()
    return torch.where(heat > 0, chances, likeliest)


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
