"""Sampling of text from a language model, token by token.

Shapes: K temperatures, T positions, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nnexp.data import DataSpec


def characters_of(dataset: Any, data: DataSpec) -> str | None:
    """Return the vocabulary of a dataset for next-character prediction, one character per token, or None for others."""
    vocab = getattr(dataset, "vocab", None)
    is_text = data.kind == "tokens" and data.per_step and isinstance(vocab, str) and len(vocab) == data.vocab
    return vocab if is_text else None


@torch.no_grad()
def continue_text(
    model: nn.Module,
    data: DataSpec,
    tokens: Sequence[int],
    length: int,
    temperatures: Sequence[float],
    generator: torch.Generator,
    device: torch.device | None = None,
) -> list[list[int]]:
    """Sample a continuation of a prompt at each temperature, with one forward pass per new token.

        rows = continue_text(view.module, view.data, prompt, 60, [0.5, 1.0], view.generator, view.device)

    Args:
        model: maps tokens (K, data.max_length) to logits (K, data.max_length, V).
        data: specification of the dataset.
        tokens: the prompt; only its last `data.max_length` tokens are read.
        length: number of tokens to sample.
        temperatures: K divisors of the logits; 0 selects the likeliest token.
        generator: generator on the CPU.
        device: device of the model, by default the CPU.

    Returns:
        K lists of `length` tokens, without the prompt.
    """
    window = data.max_length
    rows = torch.tensor(tokens).repeat(len(temperatures), 1)  # (K, T)
    for _ in range(length):
        probabilities = next_token_probabilities(model, data, rows[:, -window:].to(device), temperatures)
        chosen = torch.multinomial(probabilities, 1, generator=generator)
        rows = torch.cat([rows, chosen], dim=1)
    return rows[:, len(tokens) :].tolist()


@torch.no_grad()
def next_token_probabilities(model: nn.Module, data: DataSpec, rows: Tensor, temperatures: Sequence[float]) -> Tensor:
    """Return the probabilities (K, V) of the token that follows each row, in float64 on the CPU.

    Args:
        model: maps tokens (K, data.max_length) to logits (K, data.max_length, V).
        data: specification of the dataset.
        rows: (K, T) tokens, with T at most `data.max_length`.
        temperatures: one per row; 0 gives the likeliest token probability 1.
    """
    x = torch.zeros(len(rows), data.max_length, dtype=torch.long, device=rows.device)
    x[:, : rows.shape[1]] = rows
    logits = model(x)[:, rows.shape[1] - 1].double().cpu()
    temperature = torch.tensor(temperatures, dtype=torch.float64).unsqueeze(1)
    shifted = logits - logits.amax(1, keepdim=True)
    probabilities = (shifted / torch.where(temperature > 0, temperature, 1)).softmax(1)
    likeliest = torch.nn.functional.one_hot(logits.argmax(1), data.vocab).double()
    return torch.where(temperature > 0, probabilities, likeliest)
