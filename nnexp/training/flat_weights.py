"""All weights of a module in one flat vector, so that an optimiser step takes a few operations."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from nnexp.base import NnexpError
from nnexp.training.norms import layer_norms, tensor_norms


def layer_name(name: str) -> str:
    """Return the layer that a parameter belongs to: `head.bias` -> `head`, `lstm.weight_hh_l1` -> `lstm.l1`."""
    path, _, leaf = name.rpartition(".")
    recurrent = re.fullmatch(r"(?:weight|bias)_[ih]h_(l\d+.*)", leaf)
    return ".".join(filter(None, (path, recurrent[1] if recurrent else ""))) or leaf


class FlatWeights:
    """The trainable parameters of a module as views of one vector (P,).

        weights = FlatWeights(nn.Linear(3, 2))
        weights.vector.shape  # (8,)
        weights.vector.mul_(0.5)  # changes the module's parameters

    Args:
        module: on its device and in its precision; its parameters are moved into the vector.

    Raises:
        NnexpError: the module has no trainable parameters.
    """

    def __init__(self, module: nn.Module) -> None:
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise NnexpError(f"{type(module).__name__} has no weights to train.")
        self.names = [name for name, _ in named]
        self.params = [p for _, p in named]
        self.sizes = [p.numel() for p in self.params]
        self.bind(torch.cat([p.detach().reshape(-1) for p in self.params]))
        layers = list(map(layer_name, self.names))
        self.layers = list(dict.fromkeys(layers))
        self.layer_index = torch.tensor([self.layers.index(layer) for layer in layers], device=self.vector.device)

    def bind(self, vector: Tensor) -> None:
        """Make each parameter a view of `vector` (P,), which must hold the values."""
        self.vector = vector
        for p, part in zip(self.params, vector.split(self.sizes), strict=True):
            p.data = part.view(p.shape)

    def gradient(self, loss: Tensor) -> tuple[Tensor, ...]:
        """Return the gradient of a loss () by parameter; zeros for parameters that the loss does not depend on."""
        return torch.autograd.grad(loss, self.params, allow_unused=True, materialize_grads=True)

    def layer_norms(self, grads: tuple[Tensor, ...]) -> Tensor:
        """Return the gradient's norm by layer, (len(layers),), in the order of `layers`."""
        return layer_norms(tensor_norms(grads), self.layer_index, len(self.layers))

    @torch.no_grad()
    def set(self, vector: Tensor) -> None:
        """Copy `vector` (P,) into the weights."""
        self.vector.copy_(vector)
