"""Vision transformer (Dosovitskiy et al., 2021, arXiv:2010.11929), of the transformer of Vaswani et al. (2017,
arXiv:1706.03762).

    t = E patch + p,  t = t + attention(norm(t)),  t = t + mlp(norm(t)),  y = V mean(norm(t)) + c

Departs from the paper in the mean over all patches where the paper has a class token, in small sizes, and in reading
data that are no images position by position, each up to itself where each has its own prediction.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from nnexp import DataSpec, PerLane, Range, model
from nnexp.data import as_patches, as_sequence, mean_valid, patch_counts, valid_positions
from nnexp.nn import attention, initialise, is_compiled

Size = Annotated[int, Range(min=1)]
Mix = Callable[[Tensor], Tensor]  # queries, keys and values (B, N, 3H) -> (B, N, H)
SHORT = 16


@model
class ViT(nn.Module):
    """Patches that look at each other: each is moved by a mean of the others, weighted by how well they match.

    Args:
        data: what the dataset says of its tensors.
        hidden_size: numbers that stand for a patch; a multiple of num_heads.
        num_layers: blocks of attention and MLP.
        num_heads: separate means in each attention.
        mlp_ratio: units of each MLP, as a multiple of hidden_size.
        patch_size: side of a patch in pixels, where the data are images.
        positions: add a learned vector for each place; without, the order of patches cannot be told.
        init: initial weights; torch is PyTorch's own draw, normal is N(0, 1/fan_in) with zero biases.
        init_scale: multiplies every weight matrix but the output's.
    """

    fused = True  # False: attention in one operation, which torch.func.vmap can follow

    def __init__(
        self,
        data: DataSpec,
        *,
        hidden_size: Size = 32,
        num_layers: Size = 2,
        num_heads: Size = 4,
        mlp_ratio: Size = 2,
        patch_size: Size = 4,
        positions: bool = True,
        init: Literal["torch", "normal"] = "torch",
        init_scale: Annotated[float, Range(min=0), PerLane] = 1.0,
    ) -> None:
        super().__init__()
        if hidden_size % num_heads:
            raise ValueError(f"model.hidden_size={hidden_size} is no multiple of model.num_heads={num_heads}.")
        self.data, self.patch_size, self.num_heads = data, patch_size, num_heads
        num_patches, size = (data.max_length, data.channels) if data.per_step else patch_counts(data, patch_size)
        self.embed = nn.Linear(size, hidden_size)
        self.blocks = nn.ModuleList(Block(hidden_size, mlp_ratio) for _ in range(num_layers))
        self.norm = nn.LayerNorm(hidden_size)
        self.head = nn.Linear(hidden_size, data.outputs)
        initialise(self, init, init_scale, head=self.head)
        self.positions = nn.Parameter(torch.randn(num_patches, hidden_size) * 0.02) if positions else None

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, *data.shape) -> (B, outputs), or (B, T, outputs) where data.per_step."""
        per_step = self.data.per_step
        patches = as_sequence(x, self.data, lengths) if per_step else as_patches(x, self.data, self.patch_size, lengths)
        if self.data.kind == "image" and not per_step:
            lengths = None  # of rows of pixels, not of patches: they are read as zeros, and all patches count
        tokens = self.embed(patches)
        if self.positions is not None:
            tokens = tokens + self.positions
        mix = self._mix(tokens, lengths)
        for block in self.blocks:
            tokens = block(tokens, mix)
        tokens = self.norm(tokens)
        return self.head(tokens if per_step else mean_valid(tokens, lengths))

    def _mix(self, tokens: Tensor, lengths: Tensor | None) -> Mix:
        """Attention, in one operation or in the few that it is."""
        if not self.fused and is_compiled(tokens.device):
            return lambda qkv: attention(qkv, lengths, self.num_heads, self.data.per_step)
        allowed = self._allowed(tokens.shape[1], lengths, tokens.device)
        return lambda qkv: attended(qkv, self.num_heads, allowed)

    def _allowed(self, size: int, lengths: Tensor | None, device: torch.device) -> Tensor | None:
        """(..., N, N): whether a patch (row) may look at another (column), or None where all may look at all."""
        allowed = None
        if self.data.per_step:
            allowed = torch.ones(size, size, dtype=torch.bool, device=device).tril()
        if lengths is not None:
            valid = valid_positions(lengths, size)[:, None, None, :]
            allowed = valid if allowed is None else valid & allowed
        return allowed


class Block(nn.Module):
    """Attention and MLP, each on a normalised copy and added to what was there."""

    def __init__(self, hidden_size: int, mlp_ratio: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden_size), nn.LayerNorm(hidden_size)
        self.qkv, self.out = nn.Linear(hidden_size, 3 * hidden_size), nn.Linear(hidden_size, hidden_size)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_size, mlp_ratio * hidden_size), nn.GELU(), nn.Linear(mlp_ratio * hidden_size, hidden_size)
        )

    def forward(self, tokens: Tensor, mix: Mix) -> Tensor:
        """(B, N, H) -> (B, N, H)."""
        tokens = tokens + self.out(mix(self.qkv(self.norm1(tokens))))
        return tokens + self.mlp(self.norm2(tokens))


def attended(qkv: Tensor, num_heads: int, allowed: Tensor | None) -> Tensor:
    """(B, N, 3H) -> (B, N, H): means of the values, weighted by how well the queries match the keys."""
    heads = qkv.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)  # (3, B, heads, N, size)
    q, k, v = heads.contiguous().unbind()
    match = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if allowed is not None:
        match = match.masked_fill(~allowed, -torch.inf)
    return (softmax(match) @ v).transpose(1, 2).flatten(2)


def softmax(match: Tensor) -> Tensor:
    """`match.softmax(-1)`, which takes up to four times as long on rows shorter than a vector of the processor."""
    if match.shape[-1] >= SHORT:
        return match.softmax(-1)
    weight = (match - match.detach().amax(-1, keepdim=True)).exp()
    return weight * weight.sum(-1, keepdim=True).reciprocal()
