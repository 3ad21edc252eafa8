"""Text drawn from a model of text, token by token. K temperatures, T positions, V tokens of the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nnexp.data import DataSpec


def characters_of(dataset: Any, data: DataSpec) -> str | None:
    """The character of each token, where the data are text of which the next character is to be told."""
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
        chances = next_token_probabilities(model, data, rows[:, -window:].to(device), temperatures)
        chosen = torch.multinomial(chances, 1, generator=draws)
        rows = torch.cat([rows, chosen], dim=1)
    return rows[:, len(tokens) :].tolist()


@torch.no_grad()
def next_token_probabilities(model: nn.Module, data: DataSpec, rows: Tensor, temperatures: Sequence[float]) -> Tensor:
    """(K, V) on the CPU: how likely each token is to follow rows (K, T) of at most a window; 0 takes the likeliest."""
    x = torch.zeros(len(rows), data.max_length, dtype=torch.long, device=rows.device)
    x[:, : rows.shape[1]] = rows
    logits = model(x)[:, rows.shape[1] - 1].double().cpu()
    heat = torch.tensor(temperatures, dtype=torch.float64).unsqueeze(1)
    above = logits - logits.amax(1, keepdim=True)
    chances = (above / torch.where(heat > 0, heat, 1)).softmax(1)
    likeliest = torch.nn.functional.one_hot(logits.argmax(1), data.vocab).double()
    return torch.where(heat > 0, chances, likeliest)
