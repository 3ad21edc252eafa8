"""Vision transformer (Dosovitskiy et al., 2021, arXiv:2010.11929), after the transformer of Vaswani et al. (2017,
arXiv:1706.03762).

    t = E patch + p,  t = t + attention(norm(t)),  t = t + mlp(norm(t)),  y = V mean(norm(t)) + c

Departs from the paper in mean pooling over patches instead of a class token, in small sizes, and in reading data other
than images position by position, with causal attention where each position has a target.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from nnexp import DataSpec, PerLane, Range, model
from nnexp.data import as_patches, as_sequence, mean_valid, patch_counts, valid_positions
from nnexp.nn import attention, initialise, is_compiled

Size = Annotated[int, Range(min=1)]
Attention = Callable[[Tensor], Tensor]  # queries, keys and values (B, N, 3H) -> (B, N, H)
MIN_VECTORISED = 16  # row length from which torch's softmax is faster


@model
class ViT(nn.Module):
    """Transformer encoder over the patches of an image, or the positions of a sequence.

    Args:
        data: specification of the dataset's tensors.
        hidden_size: features of each token; a multiple of num_heads.
        num_layers: number of blocks, each of attention and an MLP.
        num_heads: attention heads in each block.
        mlp_ratio: hidden units of each MLP, as a multiple of hidden_size.
        patch_size: side of an image's patches in pixels.
        positions: add a learned vector for each position; without it the model ignores the order of tokens.
        init: initial weights: PyTorch's defaults (torch), or N(0, 1/fan_in) with zero biases (normal).
        init_scale: factor on every initial weight matrix but the output layer's.
    """

    fused = True  # False: attention in an operation that torch.func.vmap supports

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
            raise ValueError(f"model.hidden_size={hidden_size} is not a multiple of model.num_heads={num_heads}.")
        self.data, self.patch_size, self.num_heads = data, patch_size, num_heads
        num_patches, size = (data.max_length, data.channels) if data.per_step else patch_counts(data, patch_size)
        self.embed = nn.Linear(size, hidden_size)
        self.blocks = nn.ModuleList(Block(hidden_size, mlp_ratio) for _ in range(num_layers))
        self.norm = nn.LayerNorm(hidden_size)
        self.head = nn.Linear(hidden_size, data.outputs)
        initialise(self, init, init_scale, head=self.head)
        self.positions = nn.Parameter(torch.randn(num_patches, hidden_size) * 0.02) if positions else None

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return outputs (B, outputs), or (B, T, outputs) where data.per_step, for inputs (B, *data.shape)."""
        per_step = self.data.per_step
        patches = as_sequence(x, self.data, lengths) if per_step else as_patches(x, self.data, self.patch_size, lengths)
        if self.data.kind == "image" and not per_step:
            lengths = None  # they count rows of pixels, not patches: as_patches zeroes padding, all patches are used
        tokens = self.embed(patches)
        if self.positions is not None:
            tokens = tokens + self.positions
        attend = self._attention(tokens, lengths)
        for block in self.blocks:
            tokens = block(tokens, attend)
        tokens = self.norm(tokens)
        output: Tensor = self.head(tokens if per_step else mean_valid(tokens, lengths))
        return output

    def _attention(self, tokens: Tensor, lengths: Tensor | None) -> Attention:
        """Return the attention of all blocks, for tokens (B, N, H): a compiled kernel, or plain tensor operations."""
        if not self.fused and is_compiled(tokens.device):
            return lambda qkv: attention(qkv, lengths, self.num_heads, self.data.per_step)
        allowed = self._allowed(tokens.shape[1], lengths, tokens.device)
        return lambda qkv: plain_attention(qkv, self.num_heads, allowed)

    def _allowed(self, size: int, lengths: Tensor | None, device: torch.device) -> Tensor | None:
        """Return the mask (..., N, N) of keys (columns) that each query (row) may attend to, or None for no mask."""
        allowed = None
        if self.data.per_step:
            allowed = torch.ones(size, size, dtype=torch.bool, device=device).tril()
        if lengths is not None:
            valid = valid_positions(lengths, size)[:, None, None, :]
            allowed = valid if allowed is None else valid & allowed
        return allowed


class Block(nn.Module):
    """Pre-norm transformer block: attention and an MLP, each with a residual connection."""

    def __init__(self, hidden_size: int, mlp_ratio: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden_size), nn.LayerNorm(hidden_size)
        self.qkv, self.out = nn.Linear(hidden_size, 3 * hidden_size), nn.Linear(hidden_size, hidden_size)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_size, mlp_ratio * hidden_size), nn.GELU(), nn.Linear(mlp_ratio * hidden_size, hidden_size)
        )

    def forward(self, tokens: Tensor, attend: Attention) -> Tensor:
        """Return the block's output, (B, N, H) -> (B, N, H)."""
        tokens = tokens + self.out(attend(self.qkv(self.norm1(tokens))))
        output: Tensor = tokens + self.mlp(self.norm2(tokens))
        return output


def plain_attention(qkv: Tensor, num_heads: int, allowed: Tensor | None) -> Tensor:
    """Return scaled dot-product attention, (B, N, 3H) -> (B, N, H), where `allowed` (..., N, N) is the mask."""
    heads: Tensor = qkv.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)  # (3, B, heads, N, size)
    q, k, v = heads.contiguous().unbind()
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return (softmax(scores) @ v).transpose(1, 2).flatten(2)


def softmax(scores: Tensor) -> Tensor:
    """Return `scores.softmax(-1)`; torch's own is up to four times slower on rows shorter than a SIMD register."""
    if scores.shape[-1] >= MIN_VECTORISED:
        return scores.softmax(-1)
    weight: Tensor = (scores - scores.detach().amax(-1, keepdim=True)).exp()
    return weight * weight.sum(-1, keepdim=True).reciprocal()
